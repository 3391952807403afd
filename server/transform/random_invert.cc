// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomInvert",
                 .sentence = "Inverts the colours, at random.",
                 .params = {ProbabilityParam("The probability of doing it.")}};
  return *schema;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return MakeRandomStep(operation, InvertStep());
}

}  // namespace

const TransformKind kRandomInvertKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
