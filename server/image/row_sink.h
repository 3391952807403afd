// SPDX-License-Identifier: Apache-2.0
//
// A RowSink takes a picture a few rows at a time, as a decoder or a resampler makes it, so that a
// picture need not exist in memory as a whole.

#pragma once

#include <cstddef>
#include <cstdint>

namespace batchd {

// Rows that a producer should hand over at once: few enough to stay in the innermost cache.
inline constexpr int kRowsPerPut = 8;

// Not thread-safe: one producer calls it.
class RowSink {
 public:
  virtual ~RowSink() = default;

  // Rows come from the top, each once, without gaps: `row_count` (1 or more) of them, 8-bit RGB,
  // 3 * width bytes each, stride_bytes apart. They are valid during the call only; the
  // kRowSlackBytes behind the last one may be read, too, and mean nothing.
  virtual void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) = 0;
};

}  // namespace batchd
