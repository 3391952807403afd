// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "server/base/status.h"
#include "server/image/fixed_math.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "RandomErasing",
      .sentence =
          "Fills a box of random area, aspect and place, at random; no operation on pixels "
          "may follow.",
      .params = {ProbabilityParam("The probability of doing it."),
                 {.name = "scale",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the box's area, as a share of the picture's.",
                  .default_value = Json::array({0.02, 0.33}),
                  .min = 0,
                  .max = 1,
                  .count_min = 2,
                  .count_max = 2},
                 {.name = "ratio",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the box's height divided by its width.",
                  .default_value = Json::array({0.3, 3.3}),
                  .min = 1e-3,
                  .max = 1000,
                  .count_min = 2,
                  .count_max = 2},
                 {.name = "value",
                  .type = ParamType::kFloatList,
                  .sentence = "What the box is filled with, one number for all channels or one for "
                              "each, in the units of its place: 0 to 255 before ToTensor. Noise "
                              "(torchvision's \"random\") is not there.",
                  .default_value = 0,
                  .min = -1e30,
                  .max = 1e30,
                  .count_min = 1,
                  .count_max = 3}}};
  return *schema;
}

class RandomErasing : public Transform {
 public:
  RandomErasing(double p, Range scale, Range ratio, std::vector<double> value)
      : p_(p),
        scale_(scale),
        log_ratio_{FixedLog(ratio.min), FixedLog(ratio.max)},
        value_(std::move(value)) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    BATCHD_RETURN_IF_ERROR(CheckNotLast("RandomErasing", *format));
    BATCHD_RETURN_IF_ERROR(CheckValue(*format));
    std::array<float, 3> value;
    for (size_t c = 0; c < value.size(); ++c) {
      value[c] = static_cast<float>(value_[c % value_.size()]);
    }
    constant_ = table->AddConstant(value);
    format->is_erased = true;
    return absl::OkStatus();
  }

  // Draw 0 is whether; try k has draws 4k + 1 to 4k + 4: area, logarithm of the ratio, top, left.
  // The box must be smaller than the picture both ways; after ten tries nothing is erased.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    if (draws->NextUniform() >= p_) return absl::OkStatus();
    const ImageSize size = plan->output();
    const double pixels = static_cast<double>(int64_t{size.height} * size.width);
    for (int k = 0; k < kTries; ++k) {
      const double area = pixels * draws->NextUniform(scale_.min, scale_.max);
      const double ratio = FixedExp(draws->NextUniform(log_ratio_.min, log_ratio_.max));
      // IEEE 754 defines the square root exactly.
      const int height = RoundHalfEven(std::sqrt(area * ratio));
      const int width = RoundHalfEven(std::sqrt(area / ratio));
      const bool fits = height < size.height && width < size.width;
      const uint32_t top = draws->NextBelow(fits ? size.height - height + 1 : 1);
      const uint32_t left = draws->NextBelow(fits ? size.width - width + 1 : 1);
      if (!fits) continue;
      plan->Erase({static_cast<int>(top), static_cast<int>(left), height, width}, constant_);
      break;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kTries = 10;

  absl::Status CheckValue(const RowFormat& format) const {
    if (value_.size() != 1 && value_.size() != static_cast<size_t>(format.channels)) {
      return FieldErr("value", "{} numbers for rows of {} channel{}; give {}", value_.size(),
                      format.channels, format.channels == 1 ? "" : "s",
                      format.channels == 1 ? "1" : "1 or 3");
    }
    if (format.is_tensor) return absl::OkStatus();
    for (const double value : value_) {
      if (value >= 0 && value <= 255 && value == std::floor(value)) continue;
      return FieldErr("value",
                      "{} is no value of 8 bits; give an integer from 0 to 255, or put "
                      "RandomErasing after ToTensor",
                      value);
    }
    return absl::OkStatus();
  }

  const double p_;
  const Range scale_;
  const Range log_ratio_;
  const std::vector<double> value_;
  int constant_ = 0;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  BATCHD_ASSIGN_OR_RETURN(const Range scale, RangeArgument(operation, "scale"));
  BATCHD_ASSIGN_OR_RETURN(const Range ratio, RangeArgument(operation, "ratio"));
  return std::make_unique<RandomErasing>(operation.arguments["p"].get<double>(), scale, ratio,
                                         operation.arguments["value"].get<std::vector<double>>());
}

}  // namespace

const TransformKind kRandomErasingKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
