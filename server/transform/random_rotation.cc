// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

constexpr double kDegreesMax = 1000;

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "RandomRotation",
      .sentence = "Turns the picture by a random angle.",
      .params = {{.name = "degrees",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the angle, counter-clockwise; one number x is "
                              "from -x to x.",
                  .default_value = std::nullopt,
                  .min = -kDegreesMax,
                  .max = kDegreesMax,
                  .count_min = 1,
                  .count_max = 2},
                 WarpInterpolationParam(),
                 {.name = "expand",
                  .type = ParamType::kBool,
                  .sentence = "The result is as large as the turned picture, which it shows whole "
                              "if the center is the middle; otherwise it has the picture's size.",
                  .default_value = false},
                 CenterParam(),
                 FillParam(0)}};
  return *schema;
}

class RandomRotation : public Transform {
 public:
  RandomRotation(Range degrees, Filter filter, bool expands, std::optional<WarpPoint> center,
                 const Colour& fill)
      : degrees_(degrees), filter_(filter), expands_(expands), center_(center), fill_(fill) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    BATCHD_RETURN_IF_ERROR(CheckFilledPlace("RandomRotation", fill_, format));
    if (expands_) format->size.reset();
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    const double degrees = draws->NextUniform(degrees_.min, degrees_.max);
    const Rotation rotation = RotationOf(plan->output(), degrees, center_, expands_);
    BATCHD_RETURN_IF_ERROR(CheckSides("RandomRotation", rotation.size));
    plan->Apply(WarpStep(rotation.matrix, rotation.size, filter_, fill_));
    return absl::OkStatus();
  }

 private:
  const Range degrees_;
  const Filter filter_;
  const bool expands_;
  const std::optional<WarpPoint> center_;
  const Colour fill_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const Json& arguments = operation.arguments;
  BATCHD_ASSIGN_OR_RETURN(const Range degrees, RangeAboutZero("degrees", arguments["degrees"]));
  BATCHD_ASSIGN_OR_RETURN(const Colour fill, FillArgument(operation));
  return std::make_unique<RandomRotation>(degrees, FilterArgument(arguments["interpolation"]),
                                          arguments["expand"].get<bool>(),
                                          CenterArgument(arguments["center"]), fill);
}

}  // namespace

const TransformKind kRandomRotationKind = {&GetSchema, &Make, /*is_random=*/true, Geometry::kOnly};

}  // namespace batchd
