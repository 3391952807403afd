// SPDX-License-Identifier: Apache-2.0
//
// A RowSink takes a picture row by row, as a decoder or a resampler makes it, so that a picture
// need not exist in memory as a whole.

#pragma once

#include <cstdint>

namespace batchd {

// Not thread-safe: one producer calls it.
class RowSink {
 public:
  virtual ~RowSink() = default;

  // Rows come from the top, each once, without gaps: 8-bit RGB, 3 * width bytes. `rgb` is valid
  // during the call only.
  virtual void PutRow(const uint8_t* rgb) = 0;
};

}  // namespace batchd
