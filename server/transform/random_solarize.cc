// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomSolarize",
                 .sentence = "Inverts the values at or above a threshold, at random.",
                 .params = {{.name = "threshold",
                             .type = ParamType::kFloat,
                             .sentence = "The least value that is inverted; 256 is none.",
                             .default_value = std::nullopt,
                             .min = 0,
                             .max = 256},
                            ProbabilityParam("The probability of doing it.")}};
  return *schema;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return MakeRandomStep(operation, SolarizeStep(operation.arguments["threshold"].get<double>()));
}

}  // namespace

const TransformKind kRandomSolarizeKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
