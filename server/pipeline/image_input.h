// SPDX-License-Identifier: Apache-2.0
//
// What DecodeImage and DecodeMask do: from a sample's bytes to the rows of a part of its picture.
// Internal to server/pipeline.

#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/schema.h"
#include "server/decoder/decoder.h"
#include "server/image/orientation.h"
#include "server/image/row_sink.h"
#include "server/pipeline/plan.h"

namespace batchd {

// A picture whose header has been read.
struct OpenedPicture {
  ImageDecoder* decoder;
  Bytes bytes;
  ImageSize stored;
  int orientation;  // 1 unless it is to be turned upright

  ImageSize size() const { return UprightSize(stored, orientation); }
  // `part` of the upright picture, in the stored one.
  Box StoredPart(const Box& part) const { return StoredRegion(orientation, stored, part); }
};

// Immutable: thread-safe.
class ImageInput {
 public:
  // Of DecodeImage and of DecodeMask.
  static const Schema& ImageSchema();
  static const Schema& MaskSchema();

  // `arguments` have passed one of the schemas.
  ImageInput(const Schema& schema, const Json& arguments);

  // Whether pixels are class numbers, three times each: palette indices or grey levels.
  bool is_mask() const { return limits_.as_mask; }

  int64_t pixels_max() const { return limits_.pixels_max; }
  int64_t encoded_bytes_max() const { return encoded_bytes_max_; }

  // Errors: sample errors.
  absl::StatusOr<OpenedPicture> Open(Bytes bytes, Worker* worker) const;

  // For fast decoding: where the plans make the picture smaller by half or more, lets the decoder
  // do that, and changes the plans to it. Before Decode. False, and no plan is changed, if they are
  // not to have the same reduction.
  bool Reduce(const OpenedPicture& picture, std::span<PicturePlan> plans) const;

  // Puts the rows of `region` of the upright picture into `sink`. Of a damaged picture, if those
  // are taken, the rows that do not come are grey; it is an error all the same if fewer than
  // `good_rows_min` of the stored rows have come. Adds the time that is spent in `sink` to
  // worker->transform_time, and the rest to worker->decode_time. Errors: sample errors;
  // RESOURCE_EXHAUSTED.
  absl::Status Decode(const OpenedPicture& picture, const Box& region, int good_rows_min,
                      RowSink* sink, Worker* worker) const;

 private:
  const Schema& schema_;
  const DecodeLimits limits_;
  const int64_t encoded_bytes_max_;
  const bool upright_;
};

// A large picture's share of the scratch budget. What threads keep for small ones is not counted.
class ScratchShare {
 public:
  ScratchShare(ByteGate* gate, int64_t size_bytes)
      : gate_(size_bytes > static_cast<int64_t>(kScratchKeepBytes) ? gate : nullptr),
        size_bytes_(size_bytes) {
    if (gate_ != nullptr) gate_->Acquire(size_bytes_);
  }
  ~ScratchShare() {
    if (gate_ != nullptr) gate_->Release(size_bytes_);
  }
  ScratchShare(const ScratchShare&) = delete;
  ScratchShare& operator=(const ScratchShare&) = delete;

 private:
  ByteGate* const gate_;
  const int64_t size_bytes_;
};

}  // namespace batchd
