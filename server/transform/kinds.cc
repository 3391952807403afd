// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

#include <string>

#include "server/base/check.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr Filter kFilters[] = {Filter::kNearest, Filter::kBox,     Filter::kBilinear,
                               Filter::kHamming, Filter::kBicubic, Filter::kLanczos};

}  // namespace

ImageSize SizeArgument(const Json& size) {
  if (size.is_array()) return {size[0].get<int>(), size[1].get<int>()};
  return {size.get<int>(), size.get<int>()};
}

absl::StatusOr<Range> RangeArgument(const CheckedOperation& operation, const char* name) {
  const Json& list = operation.arguments[name];
  const Range range = {list[0].get<double>(), list[1].get<double>()};
  if (range.min > range.max) {
    return FieldErr(name, "[{}, {}] is empty; the first number is at most the second", range.min,
                    range.max);
  }
  return range;
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

Filter FilterArgument(const Json& interpolation) {
  const std::string& name = interpolation.get_ref<const std::string&>();
  for (const Filter filter : kFilters) {
    if (FilterName(filter) == name) return filter;
  }
  BATCHD_CHECK(false);  // the schema has let a choice through that is none
  return Filter::kBilinear;
}

absl::Status CheckNotLast(std::string_view name, const RowFormat& format) {
  if (!format.is_laid_out && !format.is_cast) return absl::OkStatus();
  return Err(absl::StatusCode::kInvalidArgument,
             "{} may not follow {}, which comes last; put {} before it", name,
             format.is_laid_out ? "Layout" : "Cast", name);
}

absl::Status CheckPixelPlace(std::string_view name, const RowFormat& format) {
  BATCHD_RETURN_IF_ERROR(CheckNotLast(name, format));
  if (format.is_tensor) {
    return Err(absl::StatusCode::kInvalidArgument,
               "{} works on 8-bit pixels; put it before ToTensor", name);
  }
  if (format.is_erased) {
    return Err(absl::StatusCode::kInvalidArgument,
               "{} may not follow RandomErasing; put RandomErasing after it", name);
  }
  return absl::OkStatus();
}

absl::Status CheckPicturePlace(std::string_view name, RowFormat* format) {
  BATCHD_RETURN_IF_ERROR(CheckPixelPlace(name, *format));
  format->has_steps = true;
  return absl::OkStatus();
}

}  // namespace batchd
