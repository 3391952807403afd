// SPDX-License-Identifier: Apache-2.0
#include "server/transform/arguments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "server/base/check.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr Filter kFilters[] = {Filter::kNearest, Filter::kBox,     Filter::kBilinear,
                               Filter::kHamming, Filter::kBicubic, Filter::kLanczos};

constexpr double kCenterMax = 1e6;

// In the order of PadMode.
constexpr std::array<const char*, 4> kPadModeNames = {"constant", "edge", "reflect", "symmetric"};

}  // namespace

ImageSize SizeArgument(const Json& size) {
  if (size.is_array()) return {size[0].get<int>(), size[1].get<int>()};
  return {size.get<int>(), size.get<int>()};
}

absl::StatusOr<Range> RangeOfItems(const char* name, const Json& list, size_t first) {
  const Range range = {list[first].get<double>(), list[first + 1].get<double>()};
  if (range.min > range.max) {
    return FieldErr(name, "[{}, {}] is empty; the first number is at most the second", range.min,
                    range.max);
  }
  return range;
}

absl::StatusOr<Range> RangeArgument(const CheckedOperation& operation, const char* name) {
  return RangeOfItems(name, operation.arguments[name], 0);
}

absl::StatusOr<Range> RangeAboutZero(const char* name, const Json& list) {
  if (list.size() > 1) return RangeOfItems(name, list, 0);
  const double most = list[0].get<double>();
  if (most < 0) {
    return FieldErr(name,
                    "{} is negative, and one number x stands for [-x, x]; give it without "
                    "the sign, or two numbers",
                    most);
  }
  return Range{-most, most};
}

Param ProbabilityParam(std::string sentence, double default_value) {
  return {.name = "p",
          .type = ParamType::kFloat,
          .sentence = std::move(sentence),
          .default_value = default_value,
          .min = 0,
          .max = 1};
}

Param TransformsParam() {
  return {.name = "transforms",
          .type = ParamType::kOperations,
          .sentence =
              "The operations, in order; those that change what all rows have in common "
              "(ToTensor, Normalize, Layout, Cast, channels) are refused.",
          .default_value = std::nullopt,
          .count_min = 1,
          .count_max = kInsideMax};
}

Param FillParam(Json default_value) {
  return {.name = "fill",
          .type = ParamType::kIntList,
          .sentence =
              "The colour of what lies outside the picture: red, green, blue, or one "
              "number for all.",
          .default_value = std::move(default_value),
          .min = 0,
          .max = 255,
          .count_min = 1,
          .count_max = 3};
}

absl::StatusOr<Colour> FillArgument(const CheckedOperation& operation) {
  const Json& list = operation.arguments["fill"];
  if (list.is_null()) return Colour{};
  if (list.size() == 2) return FieldErr("fill", "a colour is one number or three, not two");
  Colour colour;
  for (size_t c = 0; c < colour.size(); ++c) colour[c] = list[c % list.size()].get<uint8_t>();
  return colour;
}

Param InterpolationParam() {
  std::vector<std::string> names;
  for (const Filter filter : kFilters) names.emplace_back(FilterName(filter));
  return {.name = "interpolation",
          .type = ParamType::kString,
          .sentence = "The filter, with the pixels of Pillow's filter of that name.",
          .default_value = "bilinear",
          .choices = std::move(names)};
}

Param WarpInterpolationParam() {
  return {.name = "interpolation",
          .type = ParamType::kString,
          .sentence = "How the picture is read between its pixels.",
          .default_value = "nearest",
          .choices = {"nearest", "bilinear", "bicubic"}};
}

Param CenterParam() {
  return {.name = "center",
          .type = ParamType::kFloatList,
          .sentence =
              "The point that stays in its place, x and y in pixels from the top left; "
              "the middle if it is not given.",
          .default_value = Json(nullptr),
          .min = -kCenterMax,
          .max = kCenterMax,
          .count_min = 2,
          .count_max = 2};
}

std::optional<WarpPoint> CenterArgument(const Json& center) {
  if (center.is_null()) return std::nullopt;
  return WarpPoint{center[0].get<double>(), center[1].get<double>()};
}

Filter FilterArgument(const Json& interpolation) {
  const std::string& name = interpolation.get_ref<const std::string&>();
  for (const Filter filter : kFilters) {
    if (FilterName(filter) == name) return filter;
  }
  BATCHD_CHECK(false);  // the schema has let a choice through that is none
  return Filter::kBilinear;
}

absl::StatusOr<std::array<int, 4>> PaddingArgument(const char* name, const Json& list) {
  if (list.size() == 3) {
    return FieldErr(name,
                    "three numbers; give one for all sides, two (left and right, top and "
                    "bottom) or four (left, top, right, bottom)");
  }
  std::array<int, 4> padding;
  for (size_t i = 0; i < padding.size(); ++i) padding[i] = list[i % list.size()].get<int>();
  return padding;
}

Param PaddingModeParam() {
  return {.name = "padding_mode",
          .type = ParamType::kString,
          .sentence =
              "What lies outside the picture: the fill, the pixel at the border, or the "
              "picture mirrored without or with the pixel at the border.",
          .default_value = "constant",
          .choices = {kPadModeNames.begin(), kPadModeNames.end()}};
}

PadMode PaddingModeArgument(const Json& mode) {
  const auto found = std::find(kPadModeNames.begin(), kPadModeNames.end(), mode.get<std::string>());
  return static_cast<PadMode>(found - kPadModeNames.begin());
}

}  // namespace batchd
