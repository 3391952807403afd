// SPDX-License-Identifier: Apache-2.0
#include "server/transform/augmentation.h"

#include <cmath>

#include "server/base/status.h"
#include "server/image/fixed_math.h"

namespace batchd {
namespace {

constexpr int kBinsMax = 1000;

// torch.linspace(start, end, bins)[bin] in float32: from the nearer end, product and sum rounded
// once, as the fused multiply-add of torch's vector code has it. A double holds the product.
float LinspaceAt(float start, float end, int bin, int bins) {
  const double step = (end - start) / static_cast<float>(bins - 1);
  if (bin < bins / 2) return static_cast<float>(start + step * bin);
  return static_cast<float>(end - step * (bins - 1 - bin));
}

double TranslationOf(const Strength& strength, int side, int bin, int bins) {
  const float most = strength.translates_by_share
                         ? static_cast<float>(150.0 / 331.0 * static_cast<double>(side))
                         : strength.translate;
  return LinspaceAt(0, most, bin, bins);
}

void Bend(const Affine& affine, std::optional<WarpPoint> center, const BorderLook& look,
          PicturePlan* plan) {
  const ImageSize size = plan->output();
  plan->Apply(WarpStep(AffineMatrix(size, affine, center), size, look.filter, look.fill));
}

// The magnitude is a tangent: the paper's operation is (1, magnitude, 0, 0, 1, 0), about the
// corner.
double ShearDegrees(double magnitude) { return DegreesOf(NearestArctan(magnitude)); }

void ApplyGeometry(Augmentation operation, double magnitude, const BorderLook& look,
                   PicturePlan* plan) {
  constexpr WarpPoint kCorner = {0, 0};
  switch (operation) {
    case Augmentation::kShearX:
      return Bend({.shear_x_degrees = ShearDegrees(magnitude)}, kCorner, look, plan);
    case Augmentation::kShearY:
      return Bend({.shear_y_degrees = ShearDegrees(magnitude)}, kCorner, look, plan);
    case Augmentation::kTranslateX:
      return Bend({.translate_x = std::trunc(magnitude)}, std::nullopt, look, plan);
    case Augmentation::kTranslateY:
      return Bend({.translate_y = std::trunc(magnitude)}, std::nullopt, look, plan);
    default: {
      const Rotation rotation = RotationOf(plan->output(), magnitude, std::nullopt, false);
      plan->Apply(WarpStep(rotation.matrix, rotation.size, look.filter, look.fill));
    }
  }
}

PictureStep ColourStep(Augmentation operation, double magnitude) {
  switch (operation) {
    case Augmentation::kBrightness:
      return BrightnessStep(1 + magnitude);
    case Augmentation::kColor:
      return SaturationStep(1 + magnitude);
    case Augmentation::kContrast:
      return ContrastStep(1 + magnitude);
    case Augmentation::kSharpness:
      return SharpnessStep(1 + magnitude);
    case Augmentation::kPosterize:
      return PosterizeStep(static_cast<int>(magnitude));
    case Augmentation::kSolarize:
      return SolarizeStep(255.0 * magnitude);
    case Augmentation::kAutoContrast:
      return AutocontrastStep();
    case Augmentation::kEqualize:
      return EqualizeStep();
    default:
      return InvertStep();
  }
}

}  // namespace

double MagnitudeOf(Augmentation operation, const Strength& strength, int bin, int bins,
                   ImageSize picture) {
  switch (operation) {
    case Augmentation::kShearX:
    case Augmentation::kShearY:
      return LinspaceAt(0, strength.shear, bin, bins);
    case Augmentation::kTranslateX:
      return TranslationOf(strength, picture.width, bin, bins);
    case Augmentation::kTranslateY:
      return TranslationOf(strength, picture.height, bin, bins);
    case Augmentation::kRotate:
      return LinspaceAt(0, strength.rotate_degrees, bin, bins);
    case Augmentation::kBrightness:
    case Augmentation::kColor:
    case Augmentation::kContrast:
    case Augmentation::kSharpness:
      return LinspaceAt(0, strength.factor, bin, bins);
    case Augmentation::kPosterize:
      return RoundHalfEven(8.0f - static_cast<float>(bin) /
                                      (static_cast<float>(bins - 1) / strength.posterize_bits));
    case Augmentation::kSolarize:
      return LinspaceAt(1, 0, bin, bins);
    default:
      return 0;
  }
}

bool IsSigned(Augmentation operation) {
  return operation >= Augmentation::kShearX && operation <= Augmentation::kSharpness;
}

void ApplyAugmentation(Augmentation operation, double magnitude, const BorderLook& look,
                       PicturePlan* plan) {
  if (operation == Augmentation::kIdentity || (IsSigned(operation) && magnitude == 0)) return;
  if (operation <= Augmentation::kRotate) {
    ApplyGeometry(operation, magnitude, look, plan);
  } else {
    plan->Apply(ColourStep(operation, magnitude));
  }
}

Param MagnitudeBinsParam() {
  return {.name = "num_magnitude_bins",
          .type = ParamType::kInt,
          .sentence = "How many strengths there are.",
          .default_value = 31,
          .min = 2,
          .max = kBinsMax};
}

absl::StatusOr<BorderLook> BorderLookArgument(const CheckedOperation& operation) {
  BorderLook look = {.filter = FilterArgument(operation.arguments["interpolation"])};
  BATCHD_ASSIGN_OR_RETURN(look.fill, FillArgument(operation));
  return look;
}

}  // namespace batchd
