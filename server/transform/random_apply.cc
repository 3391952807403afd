// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "server/base/status.h"
#include "server/transform/group.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "RandomApply",
                 .sentence = "Does all operations of a list or none, at random.",
                 .params = {TransformsParam(), ProbabilityParam("The probability of doing them.")}};
  return *schema;
}

class RandomApply : public Transform {
 public:
  RandomApply(std::vector<Operation> inside, double p) : inside_(std::move(inside)), p_(p) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    RowFormat done = *format;
    BATCHD_RETURN_IF_ERROR(PrepareChoice(inside_, &done, table));
    JoinFormats(done, format);
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    if (draws->NextUniform() >= p_) return absl::OkStatus();
    return PlanOperations(inside_, draws->key(), plan);
  }

 private:
  const std::vector<Operation> inside_;
  const double p_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(std::vector<Operation> inside, MakeOperations(operation.inside));
  return std::make_unique<RandomApply>(std::move(inside), operation.arguments["p"].get<double>());
}

}  // namespace

const TransformKind kRandomApplyKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
