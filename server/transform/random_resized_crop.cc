// SPDX-License-Identifier: Apache-2.0
//
// RandomResizedCrop, torchvision's rule: ten tries of an area uniform in `scale` and an aspect
// whose logarithm is uniform in that of `ratio`, and a place uniform over all; else the fallback's
// box.
#include "server/base/status.h"
#include "server/image/fixed_math.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "RandomResizedCrop",
      .sentence = "Cuts a box of random area, aspect and place, and resizes it.",
      .params = {{.name = "size",
                  .type = ParamType::kSize,
                  .sentence = "Height and width of the result, in pixels; one integer is both.",
                  .default_value = std::nullopt,
                  .min = 1,
                  .max = kSideMax},
                 {.name = "scale",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the box's area, as a share of the picture's.",
                  .default_value = Json::array({0.08, 1.0}),
                  .min = 1e-6,
                  .max = 1000,
                  .count_min = 2,
                  .count_max = 2},
                 {.name = "ratio",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the box's width divided by its height.",
                  .default_value = Json::array({0.75, 1.3333333333333333}),
                  .min = 1e-3,
                  .max = 1000,
                  .count_min = 2,
                  .count_max = 2},
                 InterpolationParam()}};
  return *schema;
}

class RandomResizedCrop : public Transform {
 public:
  RandomResizedCrop(ImageSize size, Range scale, Range ratio, Filter filter)
      : size_(size),
        scale_(scale),
        ratio_(ratio),
        log_ratio_{FixedLog(ratio.min), FixedLog(ratio.max)},
        filter_(filter) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    BATCHD_RETURN_IF_ERROR(CheckPixelPlace("RandomResizedCrop", *format));
    format->size = size_;
    return absl::OkStatus();
  }

  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    plan->Crop(DrawBox(plan->output(), draws));
    plan->Resize(size_, filter_);
    return absl::OkStatus();
  }

 private:
  static constexpr int kTries = 10;

  // Try k has draws 4k to 4k + 3: area, logarithm of the aspect, top, left. A try that fails leaves
  // its last two unused, so that each try's draws do not depend on how the ones before ended.
  Box DrawBox(ImageSize picture, Draws* draws) const {
    for (int k = 0; k < kTries; ++k) {
      const double area = draws->NextUniform(scale_.min, scale_.max);
      const double log_aspect = draws->NextUniform(log_ratio_.min, log_ratio_.max);
      const auto size = CropSize(picture, area, FixedExp(log_aspect));
      const uint32_t top = draws->NextBelow(size ? picture.height - size->height + 1 : 1);
      const uint32_t left = draws->NextBelow(size ? picture.width - size->width + 1 : 1);
      if (size) {
        return {static_cast<int>(top), static_cast<int>(left), size->height, size->width};
      }
    }
    return FallbackBox(picture, ratio_.min, ratio_.max);
  }

  const ImageSize size_;
  const Range scale_;
  const Range ratio_;
  const Range log_ratio_;
  const Filter filter_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(const Range scale, RangeArgument(operation, "scale"));
  BATCHD_ASSIGN_OR_RETURN(const Range ratio, RangeArgument(operation, "ratio"));
  return std::make_unique<RandomResizedCrop>(SizeArgument(operation.arguments["size"]), scale,
                                             ratio,
                                             FilterArgument(operation.arguments["interpolation"]));
}

}  // namespace

const TransformKind kRandomResizedCropKind = {&GetSchema, &Make, /*is_random=*/true,
                                              Geometry::kOnly};

}  // namespace batchd
