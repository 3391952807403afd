// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"
#include "server/transform/transform.h"

namespace batchd {

std::span<const TransformKind* const> TransformKinds() {
  static constexpr const TransformKind* kKinds[] = {
      &kRandomResizedCropKind,
      &kRandomCropKind,
      &kResizeKind,
      &kCenterCropKind,
      &kPadKind,
      &kRandomHorizontalFlipKind,
      &kRandomVerticalFlipKind,
      &kRandomRotationKind,
      &kRandomAffineKind,
      &kColorJitterKind,
      &kGrayscaleKind,
      &kRandomGrayscaleKind,
      &kGaussianBlurKind,
      &kRandomAdjustSharpnessKind,
      &kRandomAutocontrastKind,
      &kRandomEqualizeKind,
      &kRandomInvertKind,
      &kRandomPosterizeKind,
      &kRandomSolarizeKind,
      &kAutoAugmentKind,
      &kRandAugmentKind,
      &kTrivialAugmentWideKind,
      &kRandomApplyKind,
      &kRandomChoiceKind,
      &kToTensorKind,
      &kNormalizeKind,
      &kRandomErasingKind,
      &kLayoutKind,
      &kCastKind,
  };
  return kKinds;
}

const TransformKind* FindTransform(std::string_view name) {
  for (const TransformKind* kind : TransformKinds()) {
    if (kind->schema().name == name) return kind;
  }
  return nullptr;
}

}  // namespace batchd
