// SPDX-License-Identifier: Apache-2.0
//
// Which input pixels make an output pixel, and with what weights: Pillow's filters in fixed point,
// for a part of one axis. Tables lie in memory of the caller. Pure functions: thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>

#include "server/image/geometry.h"

namespace batchd {

// Fraction bits of a weight.
inline constexpr int kWeightBits = 22;

// Outputs [out_begin, out_begin + out_count) of an axis of `in_size` pixels resized to `out_size`.
struct FilterAxis {
  Filter filter = Filter::kBilinear;
  int in_size = 0;
  int out_size = 0;
  int out_begin = 0;
  int out_count = 0;
  // With an extent, not all of the input is resized but [in_begin, in_begin + in_extent) of it,
  // which lies inside; what is beside it counts as the neighbours that it is.
  double in_begin = 0;
  double in_extent = 0;

  bool resizes() const { return in_extent > 0 || in_size != out_size; }
};

// Output out_begin + i is the sum over k < count[i] of input first[i] + k by
// weights[i * stride + k]. Borrows the caller's memory.
struct FilterTaps {
  const int32_t* first = nullptr;
  const int32_t* count = nullptr;
  const int32_t* weights = nullptr;
  int stride = 0;
};

// The most inputs that any output takes; never more than in_size.
int MostTaps(const FilterAxis& axis);

// The inputs [*begin, *begin + *count) that all outputs of the axis together read; count is 1 or
// more. Also for Filter::kNearest.
void FilterSpan(const FilterAxis& axis, int* begin, int* count);

// What MakeFilterTaps needs; a multiple of 8.
size_t FilterTableBytes(const FilterAxis& axis);

// Fills `memory`, FilterTableBytes(axis) bytes aligned to 8. Not for Filter::kNearest.
FilterTaps MakeFilterTaps(const FilterAxis& axis, uint8_t* memory);

// Whether Pillow 13 filters down columns before it filters across rows; the 8 bits in between make
// the two orders differ.
inline bool VerticalFirst(ImageSize in, ImageSize resized) {
  return resized.height < in.height && in.height - resized.height > 2 * (in.width - resized.width);
}

// The input pixel of each output [out_begin, out_begin + out_count), as Filter::kNearest takes it.
void NearestIndices(int in_size, int out_size, int out_begin, int out_count, int32_t* indices);

}  // namespace batchd
