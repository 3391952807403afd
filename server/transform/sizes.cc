// SPDX-License-Identifier: Apache-2.0
#include "server/transform/sizes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "server/base/status.h"
#include "server/image/fixed_math.h"

namespace batchd {

absl::StatusOr<ImageSize> ShortSideSize(ImageSize picture, int short_side,
                                        std::optional<int> max_size) {
  const int64_t short_now = std::min(picture.height, picture.width);
  const int64_t long_now = std::max(picture.height, picture.width);
  // The product comes first, then the division: the other way round loses a pixel at times.
  int64_t new_short = short_side;
  int64_t new_long = short_side * long_now / short_now;
  if (max_size.has_value() && new_long > *max_size) {
    new_short = std::max<int64_t>(*max_size * new_short / new_long, 1);
    new_long = *max_size;
  }
  if (new_long > kSideMax) {
    return SampleErr(
        SampleReason::kTooLarge,
        "a picture of {}x{} (height x width) with a short side of {} would be {} pixels "
        "long; a side has at most {}; give Resize a max_size or both sides",
        picture.height, picture.width, short_side, new_long, kSideMax);
  }
  const auto s = static_cast<int>(new_short);
  const auto l = static_cast<int>(new_long);
  return picture.width <= picture.height ? ImageSize{l, s} : ImageSize{s, l};
}

absl::Status CheckSides(std::string_view operation, ImageSize picture) {
  if (picture.height <= kSideMax && picture.width <= kSideMax) return absl::OkStatus();
  return SampleErr(SampleReason::kTooLarge,
                   "{} has a picture of {}x{} (height x width); a side has at most {} pixels",
                   operation, picture.height, picture.width, kSideMax);
}

Box CenterBox(ImageSize picture, ImageSize crop) {
  // Along one axis. Half of an odd rest is rounded to the even side, as Python's round() does.
  const auto offset = [](int size, int cut) {
    if (cut > size) return -((cut - size) / 2);
    return RoundHalfEven((size - cut) * 0.5);
  };
  return {offset(picture.height, crop.height), offset(picture.width, crop.width), crop.height,
          crop.width};
}

std::optional<ImageSize> CropSize(ImageSize picture, double area_fraction, double aspect) {
  const double area = static_cast<double>(int64_t{picture.height} * picture.width) * area_fraction;
  // IEEE 754 defines the square root exactly.
  const int width = RoundHalfEven(std::sqrt(area * aspect));
  const int height = RoundHalfEven(std::sqrt(area / aspect));
  if (width <= 0 || width > picture.width || height <= 0 || height > picture.height) {
    return std::nullopt;
  }
  return ImageSize{height, width};
}

Box FallbackBox(ImageSize picture, double ratio_min, double ratio_max) {
  const double ratio = static_cast<double>(picture.width) / picture.height;
  int height = picture.height;
  int width = picture.width;
  if (ratio < ratio_min) {
    height = std::max(RoundHalfEven(width / ratio_min), 1);
  } else if (ratio > ratio_max) {
    width = std::max(RoundHalfEven(height * ratio_max), 1);
  }
  return {(picture.height - height) / 2, (picture.width - width) / 2, height, width};
}

}  // namespace batchd
