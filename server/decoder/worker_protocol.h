// SPDX-License-Identifier: Apache-2.0
//
// What the daemon and a decode worker say to each other; internal to server/decoder.
//
// Both are the same program. A SOCK_SEQPACKET pair carries one request, then one answer; the bytes
// go through shared memory, whose first part is the encoded picture and whose last kRowsSizeBytes
// are the rows that come back:
//
//   kHeader  the encoded bytes are there      → kHeader: the size, or an error
//   kDecode  rows of a region of that picture → kRows: the window is full; kGoOn goes on
//                                             → kEnd: the rest of the rows, and how it ended
//
// The daemon trusts no answer: what is in one is checked here, and of what is in the shared memory
// it reads pixels alone, by which nothing is decided.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/size_limits.h"
#include "server/image/geometry.h"
#include "server/image/row_kernels.h"

namespace batchd {

// Rows that go over at once: few enough to stay in a core's cache, enough for most pictures.
inline constexpr int64_t kRowsWindowBytes = int64_t{512} << 10;
// The place for them: one row of any picture, and what may be read behind it.
inline constexpr int64_t kRowsSizeBytes = 3 * kDecodedSideMax + int64_t{kRowSlackBytes};
static_assert(kRowsWindowBytes + kRowSlackBytes <= kRowsSizeBytes);

// How many rows of `width` pixels are in a full window.
inline int RowsPerWindow(int width) {
  return static_cast<int>(std::max<int64_t>(1, kRowsWindowBytes / (int64_t{3} * width)));
}

struct WorkerRequest {
  enum class Kind : uint32_t { kHeader, kDecode, kGoOn };
  Kind kind = Kind::kGoOn;
  // kHeader.
  DecodeLimits limits;
  int64_t size_bytes = 0;
  // kDecode.
  int reduction = 1;  // by ImageDecoder::Reduce, if above 1
  Box region;
};

struct WorkerAnswer {
  enum class Kind : uint32_t { kReady, kHeader, kRows, kEnd };
  static constexpr size_t kTextMax = 1000;

  Kind kind = Kind::kEnd;
  // kReady, kHeader and kEnd: a status; SetStatus and StatusIn know how.
  int32_t code = 0;
  int32_t reason = -1;
  // kHeader, if all is well.
  int32_t height = 0;
  int32_t width = 0;
  int32_t orientation = 1;
  // kRows and kEnd: rows in the window.
  int32_t row_count = 0;
  uint32_t text_size = 0;
  char text[kTextMax];

  size_t size_bytes() const { return offsetof(WorkerAnswer, text) + text_size; }
};

// Puts `status` into the answer; a longer text is cut.
void SetStatus(const absl::Status& status, WorkerAnswer* answer);

// Whether a datagram of `size_bytes` is a whole answer of one of the kinds.
bool IsWhole(const WorkerAnswer& answer, size_t size_bytes);

// The status in a whole answer, its text made printable; nothing if no decoder returns such a one.
std::optional<absl::Status> StatusIn(const WorkerAnswer& answer);

}  // namespace batchd
