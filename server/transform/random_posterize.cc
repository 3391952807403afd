// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomPosterize",
                 .sentence = "Keeps the upper bits of each value only, at random.",
                 .params = {{.name = "bits",
                             .type = ParamType::kInt,
                             .sentence = "How many bits are kept.",
                             .default_value = std::nullopt,
                             .min = 1,
                             .max = 8},
                            ProbabilityParam("The probability of doing it.")}};
  return *schema;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return MakeRandomStep(operation, PosterizeStep(operation.arguments["bits"].get<int>()));
}

}  // namespace

const TransformKind kRandomPosterizeKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
