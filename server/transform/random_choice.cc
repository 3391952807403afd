// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "server/base/status.h"
#include "server/transform/group.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "RandomChoice",
      .sentence = "Does one operation of a list, at random.",
      .params = {TransformsParam(),
                 {.name = "p",
                  .type = ParamType::kFloatList,
                  .sentence = "A weight for each operation; equal ones if it is not given.",
                  .default_value = Json(nullptr),
                  .min = 0,
                  .max = 1e6,
                  .count_min = 1,
                  .count_max = kInsideMax}}};
  return *schema;
}

class RandomChoice : public Transform {
 public:
  // `below[i]` is the probability of the operations up to i.
  RandomChoice(std::vector<Operation> inside, std::vector<double> below)
      : inside_(std::move(inside)), below_(std::move(below)) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    const RowFormat before = *format;
    for (size_t i = 0; i < inside_.size(); ++i) {
      RowFormat done = before;
      BATCHD_RETURN_IF_ERROR(PrepareChoice(std::span(inside_).subspan(i, 1), &done, table));
      if (i == 0) format->size = done.size;
      JoinFormats(done, format);
    }
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    const double place = draws->NextUniform();
    size_t chosen = 0;
    while (place >= below_[chosen]) ++chosen;
    return PlanOperations(std::span(inside_).subspan(chosen, 1), draws->key(), plan);
  }

 private:
  const std::vector<Operation> inside_;
  const std::vector<double> below_;
};

absl::StatusOr<std::vector<double>> WeightsArgument(const Json& list, size_t count) {
  std::vector<double> below(count, 1.0);
  if (!list.is_null()) {
    if (list.size() != count) {
      return FieldErr("p", "{} weights for {} operations; give one for each", list.size(), count);
    }
    below = list.get<std::vector<double>>();
  }
  double total = 0;
  for (double& weight : below) weight = total += weight;
  if (total <= 0) return FieldErr("p", "all weights are 0; give one that is more");
  // The last quotient is exactly 1, also that of what follows with a weight of 0, so that every
  // place in [0, 1) is below one.
  for (double& weight : below) weight /= total;
  return below;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(std::vector<Operation> inside, MakeOperations(operation.inside));
  BATCHD_ASSIGN_OR_RETURN(std::vector<double> below,
                          WeightsArgument(operation.arguments["p"], inside.size()));
  return std::make_unique<RandomChoice>(std::move(inside), std::move(below));
}

}  // namespace

const TransformKind kRandomChoiceKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
