// SPDX-License-Identifier: Apache-2.0
//
// The transforms of this build, each defined in its own file, and what several of them need to read
// their arguments. Internal to server/transform.

#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/transform/operation.h"
#include "server/transform/steps.h"
#include "server/transform/transform.h"

namespace batchd {

extern const TransformKind kRandomResizedCropKind;
extern const TransformKind kRandomCropKind;
extern const TransformKind kResizeKind;
extern const TransformKind kCenterCropKind;
extern const TransformKind kPadKind;
extern const TransformKind kRandomHorizontalFlipKind;
extern const TransformKind kRandomVerticalFlipKind;
extern const TransformKind kRandomRotationKind;
extern const TransformKind kRandomAffineKind;
extern const TransformKind kColorJitterKind;
extern const TransformKind kGrayscaleKind;
extern const TransformKind kRandomGrayscaleKind;
extern const TransformKind kGaussianBlurKind;
extern const TransformKind kRandomAdjustSharpnessKind;
extern const TransformKind kRandomAutocontrastKind;
extern const TransformKind kRandomEqualizeKind;
extern const TransformKind kRandomInvertKind;
extern const TransformKind kRandomPosterizeKind;
extern const TransformKind kRandomSolarizeKind;
extern const TransformKind kAutoAugmentKind;
extern const TransformKind kRandAugmentKind;
extern const TransformKind kTrivialAugmentWideKind;
extern const TransformKind kRandomApplyKind;
extern const TransformKind kRandomChoiceKind;
extern const TransformKind kToTensorKind;
extern const TransformKind kNormalizeKind;
extern const TransformKind kRandomErasingKind;
extern const TransformKind kLayoutKind;
extern const TransformKind kCastKind;

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
// Whether what lies outside a picture needs a step: what geometry finds there is 0.
inline bool PadsByStep(PadMode mode, const Colour& fill) {
  return mode != PadMode::kConstant || fill != Colour{};
}
// Folds the box in, whatever lies outside the picture.
void CropOrPad(const Box& box, PadMode mode, const Colour& fill, PicturePlan* plan);

// The parameter "transforms": 1 to kInsideMax operations.
inline constexpr size_t kInsideMax = 32;
Param TransformsParam();

// The most that a factor of a colour operation may be.
inline constexpr double kFactorMax = 1000;

// With probability p one step on the picture, else nothing.
std::unique_ptr<Transform> MakeRandomStep(const CheckedOperation& operation,
                                          const PictureStep& step);

// Whether the operation `name` may stand where the rows are `format`: nothing but each other may
// follow Layout and Cast, and what moves or changes pixels works on 8 bits, before anything is
// erased. INVALID_ARGUMENT with the way out.
absl::Status CheckNotLast(std::string_view name, const RowFormat& format);
absl::Status CheckPixelPlace(std::string_view name, const RowFormat& format);
// The same for an operation that adds steps to the plan; `step_bytes` is the most scratch that one
// takes beside its pictures, which is noted in the format.
inline constexpr int64_t kStepBytes = int64_t{16} << 20;  // a few rows, for sharpness
absl::Status CheckPicturePlace(std::string_view name, RowFormat* format,
                               int64_t step_bytes = kStepBytes);

}  // namespace batchd
