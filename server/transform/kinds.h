// SPDX-License-Identifier: Apache-2.0
//
// The transforms of this build, each defined in its own file, and what several of them do. Internal
// to server/transform.

#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "server/transform/arguments.h"
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

// Whether what lies outside a picture needs a step: what geometry finds there is 0.
inline bool PadsByStep(PadMode mode, const Colour& fill) {
  return mode != PadMode::kConstant || fill != Colour{};
}
// Folds the box in, whatever lies outside the picture.
void CropOrPad(const Box& box, PadMode mode, const Colour& fill, PicturePlan* plan);

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
// The same for one that fills with a colour, which must be grey where rows have one channel.
absl::Status CheckFilledPlace(std::string_view name, const Colour& fill, RowFormat* format);

}  // namespace batchd
