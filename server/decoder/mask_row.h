// SPDX-License-Identifier: Apache-2.0
//
// Rows of class numbers in the form of pictures. Pure functions: thread-safe.

#pragma once

#include <cstdint>

namespace batchd {

// `width` values, each three times.
inline void TripleRow(const uint8_t* values, int width, uint8_t* rgb) {
  for (int x = 0; x < width; ++x, rgb += 3) rgb[0] = rgb[1] = rgb[2] = values[x];
}

// Value `x` of a row of 1, 2, 4 or 8 bits each, the first one in the highest bits.
inline uint8_t PackedValue(const uint8_t* row, int64_t x, int bits) {
  const int64_t bit = x * bits;
  return static_cast<uint8_t>(row[bit / 8] >> (8 - bits - bit % 8) & ((1 << bits) - 1));
}

}  // namespace batchd
