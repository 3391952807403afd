// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomAdjustSharpness",
                 .sentence = "Blurs or sharpens the picture, at random.",
                 .params = {{.name = "sharpness_factor",
                             .type = ParamType::kFloat,
                             .sentence = "0 is blurred, 1 is the picture, more is sharper.",
                             .default_value = std::nullopt,
                             .min = 0,
                             .max = kFactorMax},
                            ProbabilityParam("The probability of doing it.")}};
  return *schema;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return MakeRandomStep(operation,
                        SharpnessStep(operation.arguments["sharpness_factor"].get<double>()));
}

}  // namespace

const TransformKind kRandomAdjustSharpnessKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
