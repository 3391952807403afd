// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomVerticalFlip",
                 .sentence = "Turns the picture upside down, at random.",
                 .params = {{.name = "p",
                             .type = ParamType::kFloat,
                             .sentence = "The probability of a flip.",
                             .default_value = 0.5,
                             .min = 0,
                             .max = 1}}};
  return *schema;
}

class RandomVerticalFlip : public Transform {
 public:
  explicit RandomVerticalFlip(double p) : p_(p) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckPixelPlace("RandomVerticalFlip", *format);
  }
  // A uniform number is below 1, so that p = 1 always flips and p = 0 never does.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    if (draws->NextUniform() < p_) plan->FlipVertical();
    return absl::OkStatus();
  }

 private:
  const double p_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return std::make_unique<RandomVerticalFlip>(operation.arguments["p"].get<double>());
}

}  // namespace

const TransformKind kRandomVerticalFlipKind = {&GetSchema, &Make, /*is_random=*/true,
                                               Geometry::kOnly};

}  // namespace batchd
