// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/augmentation.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "TrivialAugmentWide",
      .sentence = "Does one of 14 operations, at random, of random strength.",
      .params = {MagnitudeBinsParam(), WarpInterpolationParam(), FillParam(Json(nullptr))}};
  return *schema;
}

class TrivialAugmentWide : public Transform {
 public:
  TrivialAugmentWide(int bins, const BorderLook& look) : bins_(bins), look_(look) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckFilledPlace("TrivialAugmentWide", look_.fill, format);
  }

  // Draws: which operation, how strong, its sign.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    const auto operation = static_cast<Augmentation>(draws->NextBelow(kRandomAugmentations));
    const auto bin = static_cast<int>(draws->NextBelow(static_cast<uint32_t>(bins_)));
    const bool is_negative = draws->NextUniform() < 0.5 && IsSigned(operation);
    const double magnitude = MagnitudeOf(operation, kWideStrength, bin, bins_, plan->output());
    ApplyAugmentation(operation, is_negative ? -magnitude : magnitude, look_, plan);
    return absl::OkStatus();
  }

 private:
  const int bins_;
  const BorderLook look_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(const BorderLook look, BorderLookArgument(operation));
  return std::make_unique<TrivialAugmentWide>(operation.arguments["num_magnitude_bins"].get<int>(),
                                              look);
}

}  // namespace

const TransformKind kTrivialAugmentWideKind = {&GetSchema, &Make, /*is_random=*/true,
                                               Geometry::kAlso};

}  // namespace batchd
