// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/augmentation.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "AutoAugment",
      .sentence =
          "Does one of 25 pairs of operations, at random: what a search found best for a "
          "data set.",
      .params = {{.name = "policy",
                  .type = ParamType::kString,
                  .sentence = "The data set that the pairs were found on.",
                  .default_value = "imagenet",
                  .choices = {"imagenet", "cifar10", "svhn"}},
                 WarpInterpolationParam(),
                 FillParam(Json(nullptr))}};
  return *schema;
}

using A = Augmentation;

struct Part {
  Augmentation operation;
  double probability;
  int bin;  // of 10
};
struct Pair {
  Part parts[2];
};
struct Policy {
  Pair pairs[25];
};

// The tables of the paper (Cubuk et al., CVPR 2019), as torchvision has them.
constexpr Policy kImageNet = {{
    {{{A::kPosterize, 0.4, 8}, {A::kRotate, 0.6, 9}}},
    {{{A::kSolarize, 0.6, 5}, {A::kAutoContrast, 0.6, 0}}},
    {{{A::kEqualize, 0.8, 0}, {A::kEqualize, 0.6, 0}}},
    {{{A::kPosterize, 0.6, 7}, {A::kPosterize, 0.6, 6}}},
    {{{A::kEqualize, 0.4, 0}, {A::kSolarize, 0.2, 4}}},
    {{{A::kEqualize, 0.4, 0}, {A::kRotate, 0.8, 8}}},
    {{{A::kSolarize, 0.6, 3}, {A::kEqualize, 0.6, 0}}},
    {{{A::kPosterize, 0.8, 5}, {A::kEqualize, 1.0, 0}}},
    {{{A::kRotate, 0.2, 3}, {A::kSolarize, 0.6, 8}}},
    {{{A::kEqualize, 0.6, 0}, {A::kPosterize, 0.4, 6}}},
    {{{A::kRotate, 0.8, 8}, {A::kColor, 0.4, 0}}},
    {{{A::kRotate, 0.4, 9}, {A::kEqualize, 0.6, 0}}},
    {{{A::kEqualize, 0.0, 0}, {A::kEqualize, 0.8, 0}}},
    {{{A::kInvert, 0.6, 0}, {A::kEqualize, 1.0, 0}}},
    {{{A::kColor, 0.6, 4}, {A::kContrast, 1.0, 8}}},
    {{{A::kRotate, 0.8, 8}, {A::kColor, 1.0, 2}}},
    {{{A::kColor, 0.8, 8}, {A::kSolarize, 0.8, 7}}},
    {{{A::kSharpness, 0.4, 7}, {A::kInvert, 0.6, 0}}},
    {{{A::kShearX, 0.6, 5}, {A::kEqualize, 1.0, 0}}},
    {{{A::kColor, 0.4, 0}, {A::kEqualize, 0.6, 0}}},
    {{{A::kEqualize, 0.4, 0}, {A::kSolarize, 0.2, 4}}},
    {{{A::kSolarize, 0.6, 5}, {A::kAutoContrast, 0.6, 0}}},
    {{{A::kInvert, 0.6, 0}, {A::kEqualize, 1.0, 0}}},
    {{{A::kColor, 0.6, 4}, {A::kContrast, 1.0, 8}}},
    {{{A::kEqualize, 0.8, 0}, {A::kEqualize, 0.6, 0}}},
}};
constexpr Policy kCifar10 = {{
    {{{A::kInvert, 0.1, 0}, {A::kContrast, 0.2, 6}}},
    {{{A::kRotate, 0.7, 2}, {A::kTranslateX, 0.3, 9}}},
    {{{A::kSharpness, 0.8, 1}, {A::kSharpness, 0.9, 3}}},
    {{{A::kShearY, 0.5, 8}, {A::kTranslateY, 0.7, 9}}},
    {{{A::kAutoContrast, 0.5, 0}, {A::kEqualize, 0.9, 0}}},
    {{{A::kShearY, 0.2, 7}, {A::kPosterize, 0.3, 7}}},
    {{{A::kColor, 0.4, 3}, {A::kBrightness, 0.6, 7}}},
    {{{A::kSharpness, 0.3, 9}, {A::kBrightness, 0.7, 9}}},
    {{{A::kEqualize, 0.6, 0}, {A::kEqualize, 0.5, 0}}},
    {{{A::kContrast, 0.6, 7}, {A::kSharpness, 0.6, 5}}},
    {{{A::kColor, 0.7, 7}, {A::kTranslateX, 0.5, 8}}},
    {{{A::kEqualize, 0.3, 0}, {A::kAutoContrast, 0.4, 0}}},
    {{{A::kTranslateY, 0.4, 3}, {A::kSharpness, 0.2, 6}}},
    {{{A::kBrightness, 0.9, 6}, {A::kColor, 0.2, 8}}},
    {{{A::kSolarize, 0.5, 2}, {A::kInvert, 0.0, 0}}},
    {{{A::kEqualize, 0.2, 0}, {A::kAutoContrast, 0.6, 0}}},
    {{{A::kEqualize, 0.2, 0}, {A::kEqualize, 0.6, 0}}},
    {{{A::kColor, 0.9, 9}, {A::kEqualize, 0.6, 0}}},
    {{{A::kAutoContrast, 0.8, 0}, {A::kSolarize, 0.2, 8}}},
    {{{A::kBrightness, 0.1, 3}, {A::kColor, 0.7, 0}}},
    {{{A::kSolarize, 0.4, 5}, {A::kAutoContrast, 0.9, 0}}},
    {{{A::kTranslateY, 0.9, 9}, {A::kTranslateY, 0.7, 9}}},
    {{{A::kAutoContrast, 0.9, 0}, {A::kSolarize, 0.8, 3}}},
    {{{A::kEqualize, 0.8, 0}, {A::kInvert, 0.1, 0}}},
    {{{A::kTranslateY, 0.7, 9}, {A::kAutoContrast, 0.9, 0}}},
}};
constexpr Policy kSvhn = {{
    {{{A::kShearX, 0.9, 4}, {A::kInvert, 0.2, 0}}},
    {{{A::kShearY, 0.9, 8}, {A::kInvert, 0.7, 0}}},
    {{{A::kEqualize, 0.6, 0}, {A::kSolarize, 0.6, 6}}},
    {{{A::kInvert, 0.9, 0}, {A::kEqualize, 0.6, 0}}},
    {{{A::kEqualize, 0.6, 0}, {A::kRotate, 0.9, 3}}},
    {{{A::kShearX, 0.9, 4}, {A::kAutoContrast, 0.8, 0}}},
    {{{A::kShearY, 0.9, 8}, {A::kInvert, 0.4, 0}}},
    {{{A::kShearY, 0.9, 5}, {A::kSolarize, 0.2, 6}}},
    {{{A::kInvert, 0.9, 0}, {A::kAutoContrast, 0.8, 0}}},
    {{{A::kEqualize, 0.6, 0}, {A::kRotate, 0.9, 3}}},
    {{{A::kShearX, 0.9, 4}, {A::kSolarize, 0.3, 3}}},
    {{{A::kShearY, 0.8, 8}, {A::kInvert, 0.7, 0}}},
    {{{A::kEqualize, 0.9, 0}, {A::kTranslateY, 0.6, 6}}},
    {{{A::kInvert, 0.9, 0}, {A::kEqualize, 0.6, 0}}},
    {{{A::kContrast, 0.3, 3}, {A::kRotate, 0.8, 4}}},
    {{{A::kInvert, 0.8, 0}, {A::kTranslateY, 0.0, 2}}},
    {{{A::kShearY, 0.7, 6}, {A::kSolarize, 0.4, 8}}},
    {{{A::kInvert, 0.6, 0}, {A::kRotate, 0.8, 4}}},
    {{{A::kShearY, 0.3, 7}, {A::kTranslateX, 0.9, 3}}},
    {{{A::kShearX, 0.1, 6}, {A::kInvert, 0.6, 0}}},
    {{{A::kSolarize, 0.7, 2}, {A::kTranslateY, 0.6, 7}}},
    {{{A::kShearY, 0.8, 4}, {A::kInvert, 0.8, 0}}},
    {{{A::kShearX, 0.7, 9}, {A::kTranslateY, 0.8, 3}}},
    {{{A::kShearY, 0.8, 5}, {A::kAutoContrast, 0.7, 0}}},
    {{{A::kShearX, 0.7, 2}, {A::kInvert, 0.1, 0}}},
}};

constexpr int kBins = 10;

class AutoAugment : public Transform {
 public:
  AutoAugment(const Policy& policy, const BorderLook& look) : policy_(policy), look_(look) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckFilledPlace("AutoAugment", look_.fill, format);
  }

  // Draw 0 is the pair; 1 and 2 whether its first operation is done, and its sign; 3 and 4 the
  // second's.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    const Pair& pair = policy_.pairs[draws->NextBelow(std::size(policy_.pairs))];
    for (const Part& part : pair.parts) {
      const bool is_done = draws->NextUniform() < part.probability;
      const bool is_negative = draws->NextUniform() < 0.5 && IsSigned(part.operation);
      if (!is_done) continue;
      const double magnitude =
          MagnitudeOf(part.operation, kRandStrength, part.bin, kBins, plan->output());
      ApplyAugmentation(part.operation, is_negative ? -magnitude : magnitude, look_, plan);
    }
    return absl::OkStatus();
  }

 private:
  const Policy& policy_;
  const BorderLook look_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(const BorderLook look, BorderLookArgument(operation));
  const Json& name = operation.arguments["policy"];
  const Policy& policy = name == "imagenet" ? kImageNet : name == "cifar10" ? kCifar10 : kSvhn;
  return std::make_unique<AutoAugment>(policy, look);
}

}  // namespace

const TransformKind kAutoAugmentKind = {&GetSchema, &Make, /*is_random=*/true, Geometry::kAlso};

}  // namespace batchd
