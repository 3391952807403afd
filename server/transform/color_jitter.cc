// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <optional>
#include <utility>

#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

Param FactorParam(const char* name, const char* sentence) {
  return {.name = name,
          .type = ParamType::kFloatList,
          .sentence = sentence,
          .default_value = Json(nullptr),
          .min = 0,
          .max = kFactorMax,
          .count_min = 1,
          .count_max = 2};
}

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "ColorJitter",
      .sentence =
          "Changes brightness, contrast, saturation and hue, each by a random amount, in "
          "random order.",
      .params = {FactorParam("brightness",
                             "Least and most of the factor towards or away from "
                             "black; one number x is from 1 - x (0 or more) to 1 + "
                             "x."),
                 FactorParam("contrast", "The same, towards the mean grey level."),
                 FactorParam("saturation", "The same, towards grey."),
                 {.name = "hue",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the turn of the hue, in full circles; one number "
                              "x is from -x to x.",
                  .default_value = Json(nullptr),
                  .min = -0.5,
                  .max = 0.5,
                  .count_min = 1,
                  .count_max = 2}}};
  return *schema;
}

constexpr int kKinds = 4;  // brightness, contrast, saturation, hue
constexpr int kHue = 3;
constexpr std::array<const char*, kKinds> kNames = {"brightness", "contrast", "saturation", "hue"};

using Ranges = std::array<std::optional<Range>, kKinds>;

PictureStep StepOf(int kind, double amount) {
  switch (kind) {
    case 0:
      return BrightnessStep(amount);
    case 1:
      return ContrastStep(amount);
    case 2:
      return SaturationStep(amount);
    default:
      return HueStep(amount);
  }
}

class ColorJitter : public Transform {
 public:
  explicit ColorJitter(const Ranges& ranges) : ranges_(ranges) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckPicturePlace("ColorJitter", format);
  }

  // Draws 0 to 2 are the order, 3 to 6 the amounts, in the order of the parameters; each has its
  // place whether it is asked for or not.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    std::array<int, kKinds> order = {0, 1, 2, 3};
    for (uint32_t i = kKinds - 1; i > 0; --i) std::swap(order[i], order[draws->NextBelow(i + 1)]);
    std::array<double, kKinds> amounts;
    for (int kind = 0; kind < kKinds; ++kind) {
      const Range range = ranges_[kind].value_or(Range{0, 0});
      amounts[kind] = draws->NextUniform(range.min, range.max);
    }
    for (const int kind : order) {
      // A factor of 1 changes nothing; a hue goes through 8 bits even where it is not turned.
      if (!ranges_[kind].has_value() || (kind != kHue && amounts[kind] == 1)) continue;
      plan->Apply(StepOf(kind, amounts[kind]));
    }
    return absl::OkStatus();
  }

 private:
  const Ranges ranges_;
};

absl::StatusOr<std::optional<Range>> AmountArgument(const char* name, const Json& list,
                                                    bool is_hue) {
  if (list.is_null()) return std::nullopt;
  BATCHD_ASSIGN_OR_RETURN(Range range, RangeAboutZero(name, list));
  if (list.size() == 1 && !is_hue) range = {std::max(1 + range.min, 0.0), 1 + range.max};
  // torchvision leaves the hue alone then, though its own way there and back would not.
  if (is_hue && range.min == 0 && range.max == 0) return std::nullopt;
  return range;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  Ranges ranges;
  for (int kind = 0; kind < kKinds; ++kind) {
    BATCHD_ASSIGN_OR_RETURN(
        ranges[kind],
        AmountArgument(kNames[kind], operation.arguments[kNames[kind]], kind == kHue));
  }
  return std::make_unique<ColorJitter>(ranges);
}

}  // namespace

const TransformKind kColorJitterKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
