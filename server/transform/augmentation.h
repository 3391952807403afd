// SPDX-License-Identifier: Apache-2.0
//
// The operations that AutoAugment, RandAugment and TrivialAugmentWide choose from, and how strong
// they are: torchvision v2's tables. Internal to server/transform. Pure functions: thread-safe.

#pragma once

#include <array>
#include <cstdint>

#include "server/transform/kinds.h"

namespace batchd {

// In torchvision's order, in which a number drawn chooses; RandAugment and TrivialAugmentWide have
// all but the last.
enum class Augmentation : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert,
};
inline constexpr uint32_t kRandomAugmentations = 14;

// The strongest of each.
struct Strength {
  float shear;
  float translate;  // of the side, or in pixels
  bool translates_by_share;
  float rotate_degrees;
  float factor;          // of brightness, color, contrast, sharpness
  float posterize_bits;  // taken away
};
inline constexpr Strength kRandStrength = {0.3f, 0, true, 30.0f, 0.9f, 4.0f};
inline constexpr Strength kWideStrength = {0.99f, 32.0f, false, 135.0f, 0.99f, 6.0f};

// How strong the operation is at `bin` of `bins` (2 or more): a tangent, pixels, degrees, a factor
// less 1, bits kept, or a threshold in [0, 1]. 0 for operations without a strength.
double MagnitudeOf(Augmentation operation, const Strength& strength, int bin, int bins,
                   ImageSize picture);

// Whether the magnitude may be negative as well.
bool IsSigned(Augmentation operation);

// What the borders look like after a shear, move or turn.
struct BorderLook {
  Filter filter = Filter::kNearest;
  Colour fill = {};
};

// Folds the operation in; nothing where the magnitude makes it the identity.
void ApplyAugmentation(Augmentation operation, double magnitude, const BorderLook& look,
                       PicturePlan* plan);

// The parameters "num_magnitude_bins", "interpolation" and "fill".
Param MagnitudeBinsParam();
absl::StatusOr<BorderLook> BorderLookArgument(const CheckedOperation& operation);

}  // namespace batchd
