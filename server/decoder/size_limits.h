// SPDX-License-Identifier: Apache-2.0
//
// The checks of a picture's size that all decoders share.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/image/geometry.h"

namespace batchd {

// Of one side. Keeps a row of any format within bounds: a row is what a decoder always holds.
inline constexpr int64_t kDecodedSideMax = int64_t{1} << 20;

// The size that a header claims, once it is within limits.
// Errors: sample errors corrupt (an empty side), too_large (naming both numbers).
inline absl::StatusOr<ImageSize> CheckedSize(int64_t height, int64_t width,
                                             const DecodeLimits& limits) {
  if (height < 1 || width < 1) {
    return SampleErr(SampleReason::kCorrupt, "the header claims {}x{} pixels (width x height)",
                     width, height);
  }
  if (height > kDecodedSideMax || width > kDecodedSideMax) {
    return SampleErr(SampleReason::kTooLarge,
                     "{}x{} pixels (width x height): a side may have {} pixels", width, height,
                     kDecodedSideMax);
  }
  if (height * width > limits.pixels_max) {
    return SampleErr(SampleReason::kTooLarge,
                     "{}x{} = {} pixels are above the limit of {}; shrink the picture or leave it "
                     "out",
                     width, height, height * width, limits.pixels_max);
  }
  return ImageSize{static_cast<int>(height), static_cast<int>(width)};
}

// Whether `box` is a part of the picture: at least one pixel, nothing outside.
inline bool LiesInside(const Box& box, ImageSize size) {
  return box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
         box.height <= size.height - box.top && box.width <= size.width - box.left;
}

}  // namespace batchd
