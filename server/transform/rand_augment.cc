// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/augmentation.h"

namespace batchd {
namespace {

constexpr int kOpsMax = 16;

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandAugment",
                 .sentence = "Does a few of 14 operations, at random, all of one strength.",
                 .params = {{.name = "num_ops",
                             .type = ParamType::kInt,
                             .sentence = "How many, one after the other; one may come twice.",
                             .default_value = 2,
                             .min = 0,
                             .max = kOpsMax},
                            {.name = "magnitude",
                             .type = ParamType::kInt,
                             .sentence = "The strength, from 0 up to num_magnitude_bins - 1.",
                             .default_value = 9,
                             .min = 0,
                             .max = 999},
                            MagnitudeBinsParam(),
                            WarpInterpolationParam(),
                            FillParam(Json(nullptr))}};
  return *schema;
}

class RandAugment : public Transform {
 public:
  RandAugment(int ops, int magnitude, int bins, const BorderLook& look)
      : ops_(ops), magnitude_(magnitude), bins_(bins), look_(look) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckFilledPlace("RandAugment", look_.fill, format);
  }

  // Draws 2i and 2i + 1 are which operation is the i-th, and its sign.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    for (int i = 0; i < ops_; ++i) {
      const auto operation = static_cast<Augmentation>(draws->NextBelow(kRandomAugmentations));
      const bool is_negative = draws->NextUniform() < 0.5 && IsSigned(operation);
      const double magnitude =
          MagnitudeOf(operation, kRandStrength, magnitude_, bins_, plan->output());
      ApplyAugmentation(operation, is_negative ? -magnitude : magnitude, look_, plan);
    }
    return absl::OkStatus();
  }

 private:
  const int ops_;
  const int magnitude_;
  const int bins_;
  const BorderLook look_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const int magnitude = operation.arguments["magnitude"].get<int>();
  const int bins = operation.arguments["num_magnitude_bins"].get<int>();
  if (magnitude >= bins) {
    return FieldErr("magnitude", "{} is out of range; with num_magnitude_bins={} it is at most {}",
                    magnitude, bins, bins - 1);
  }
  BATCHD_ASSIGN_OR_RETURN(const BorderLook look, BorderLookArgument(operation));
  return std::make_unique<RandAugment>(operation.arguments["num_ops"].get<int>(), magnitude, bins,
                                       look);
}

}  // namespace

const TransformKind kRandAugmentKind = {&GetSchema, &Make, /*is_random=*/true, Geometry::kAlso};

}  // namespace batchd
