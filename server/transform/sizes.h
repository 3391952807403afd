// SPDX-License-Identifier: Apache-2.0
//
// The rules by which crops and resizes find their sizes and places: torchvision's, to the rounding.
// Pure functions: thread-safe.

#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/image/geometry.h"

namespace batchd {

// The most pixels along one side of a picture that an operation makes.
inline constexpr int kSideMax = 65535;

// The size of a picture whose short side becomes `short_side`; the long side is cut to an integer.
// If it is above `max_size`, it becomes that, and the short side is cut, to 1 or more. Errors: the
// sample error too_large if a side is above kSideMax.
absl::StatusOr<ImageSize> ShortSideSize(ImageSize picture, int short_side,
                                        std::optional<int> max_size);

// The sample error too_large if a side of the picture that `operation` makes or
// works on is above kSideMax.
absl::Status CheckSides(std::string_view operation, ImageSize picture);

// The box of a central crop. It reaches outside along a side that the picture is shorter than;
// there the odd pixel goes to the bottom and right.
Box CenterBox(ImageSize picture, ImageSize crop);

// One try of RandomResizedCrop: the size of a box of `area_fraction` of the picture and width /
// height `aspect`, or nothing if that is empty or does not fit.
std::optional<ImageSize> CropSize(ImageSize picture, double area_fraction, double aspect);

// The box of RandomResizedCrop after ten tries without one: as large as the ratio's limits let it
// be, in the middle. At least one pixel.
Box FallbackBox(ImageSize picture, double ratio_min, double ratio_max);

}  // namespace batchd
