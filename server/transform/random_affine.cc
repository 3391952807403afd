// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/image/fixed_math.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

constexpr double kDegreesMax = 1000;
constexpr double kShearMax = 89;  // at 90 the picture is a line

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "RandomAffine",
      .sentence = "Turns, moves, scales and shears the picture about its middle, at random.",
      .params = {{.name = "degrees",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the angle, clockwise; one number x is from -x to "
                              "x.",
                  .default_value = std::nullopt,
                  .min = -kDegreesMax,
                  .max = kDegreesMax,
                  .count_min = 1,
                  .count_max = 2},
                 {.name = "translate",
                  .type = ParamType::kFloatList,
                  .sentence = "The most that it moves to either side, as a share of the width and "
                              "of the height.",
                  .default_value = Json(nullptr),
                  .min = 0,
                  .max = 1,
                  .count_min = 2,
                  .count_max = 2},
                 {.name = "scale",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the factor by which it grows.",
                  .default_value = Json(nullptr),
                  .min = 1e-3,
                  .max = 1000,
                  .count_min = 2,
                  .count_max = 2},
                 {.name = "shear",
                  .type = ParamType::kFloatList,
                  .sentence = "Degrees: least and most along x, and along y, which is 0 if it is "
                              "left out; one number x is from -x to x, along x.",
                  .default_value = Json(nullptr),
                  .min = -kShearMax,
                  .max = kShearMax,
                  .count_min = 1,
                  .count_max = 4},
                 WarpInterpolationParam(),
                 FillParam(0),
                 CenterParam()}};
  return *schema;
}

struct Ranges {
  Range degrees = {0, 0};
  double translate_x = 0;  // shares
  double translate_y = 0;
  Range scale = {1, 1};
  Range shear_x = {0, 0};
  Range shear_y = {0, 0};
};

class RandomAffine : public Transform {
 public:
  RandomAffine(const Ranges& ranges, Filter filter, const Colour& fill,
               std::optional<WarpPoint> center)
      : ranges_(ranges), filter_(filter), fill_(fill), center_(center) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckFilledPlace("RandomAffine", fill_, format);
  }

  // Draws: angle, x and y of the move, scale, shear along x and along y; each has its place whether
  // it is asked for or not.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    const ImageSize size = plan->output();
    const double most_x = ranges_.translate_x * size.width;
    const double most_y = ranges_.translate_y * size.height;
    Affine affine;
    affine.degrees = Draw(ranges_.degrees, draws);
    affine.translate_x = RoundHalfEven(draws->NextUniform(-most_x, most_x));
    affine.translate_y = RoundHalfEven(draws->NextUniform(-most_y, most_y));
    affine.scale = Draw(ranges_.scale, draws);
    affine.shear_x_degrees = Draw(ranges_.shear_x, draws);
    affine.shear_y_degrees = Draw(ranges_.shear_y, draws);
    plan->Apply(WarpStep(AffineMatrix(size, affine, center_), size, filter_, fill_));
    return absl::OkStatus();
  }

 private:
  static double Draw(const Range& range, Draws* draws) {
    return draws->NextUniform(range.min, range.max);
  }

  const Ranges ranges_;
  const Filter filter_;
  const Colour fill_;
  const std::optional<WarpPoint> center_;
};

absl::StatusOr<Ranges> RangesArgument(const CheckedOperation& operation) {
  const Json& arguments = operation.arguments;
  Ranges ranges;
  BATCHD_ASSIGN_OR_RETURN(ranges.degrees, RangeAboutZero("degrees", arguments["degrees"]));
  if (!arguments["translate"].is_null()) {
    ranges.translate_x = arguments["translate"][0].get<double>();
    ranges.translate_y = arguments["translate"][1].get<double>();
  }
  if (!arguments["scale"].is_null()) {
    BATCHD_ASSIGN_OR_RETURN(ranges.scale, RangeArgument(operation, "scale"));
  }
  const Json& shear = arguments["shear"];
  if (shear.is_null()) return ranges;
  if (shear.size() == 3) return FieldErr("shear", "three numbers; give one, two or four");
  BATCHD_ASSIGN_OR_RETURN(ranges.shear_x, RangeAboutZero("shear", shear));
  if (shear.size() == 4) {
    BATCHD_ASSIGN_OR_RETURN(ranges.shear_y, RangeOfItems("shear", shear, 2));
  }
  return ranges;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(const Ranges ranges, RangesArgument(operation));
  BATCHD_ASSIGN_OR_RETURN(const Colour fill, FillArgument(operation));
  return std::make_unique<RandomAffine>(ranges,
                                        FilterArgument(operation.arguments["interpolation"]), fill,
                                        CenterArgument(operation.arguments["center"]));
}

}  // namespace

const TransformKind kRandomAffineKind = {&GetSchema, &Make, /*is_random=*/true, Geometry::kOnly};

}  // namespace batchd
