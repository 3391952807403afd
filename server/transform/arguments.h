// SPDX-License-Identifier: Apache-2.0
//
// Parameters that several transforms have, and reading their checked values. Internal to
// server/transform. Pure functions: thread-safe.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/schema.h"
#include "server/image/geometry.h"
#include "server/image/pad.h"
#include "server/image/warp.h"
#include "server/transform/operation.h"

namespace batchd {

// A checked kSize argument; one integer is both sides.
ImageSize SizeArgument(const Json& size);

struct Range {
  double min;
  double max;
};
// A checked kFloatList of two numbers. Errors: a field error if the first is above the second.
absl::StatusOr<Range> RangeArgument(const CheckedOperation& operation, const char* name);
// The same from items `first` and `first` + 1 of a list.
absl::StatusOr<Range> RangeOfItems(const char* name, const Json& list, size_t first);
// One number x stands for [-x, x]. Errors: a field error if it is negative.
absl::StatusOr<Range> RangeAboutZero(const char* name, const Json& list);

// The parameter "p".
Param ProbabilityParam(std::string sentence, double default_value = 0.5);

// The parameter "fill": the colour of what lies outside the picture; null is black, if that is the
// default.
Param FillParam(Json default_value);
using Colour = std::array<uint8_t, 3>;
// Errors: a field error if there are two numbers.
absl::StatusOr<Colour> FillArgument(const CheckedOperation& operation);

// The parameter "interpolation" of a resize, or of what turns and bends pictures, and the filter
// that its checked value names.
Param InterpolationParam();
Param WarpInterpolationParam();
Filter FilterArgument(const Json& interpolation);

// The parameter "center", and its checked value.
Param CenterParam();
std::optional<WarpPoint> CenterArgument(const Json& center);

// [left, top, right, bottom] of a checked kIntList of 1, 2 (left and right, top and bottom) or 4
// numbers. Errors: a field error if there are three.
absl::StatusOr<std::array<int, 4>> PaddingArgument(const char* name, const Json& list);
Param PaddingModeParam();
PadMode PaddingModeArgument(const Json& mode);
// The parameter "transforms": 1 to kInsideMax operations.
inline constexpr size_t kInsideMax = 32;
Param TransformsParam();

// The most that a factor of a colour operation may be.
inline constexpr double kFactorMax = 1000;

}  // namespace batchd
