// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomGrayscale",
                 .sentence = "Makes the picture grey, at random; it keeps its channels.",
                 .params = {ProbabilityParam("The probability of doing it.", 0.1)}};
  return *schema;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return MakeRandomStep(operation, GrayscaleStep());
}

}  // namespace

const TransformKind kRandomGrayscaleKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
