// SPDX-License-Identifier: Apache-2.0
#include "server/base/schema.h"

#include <algorithm>
#include <cmath>

#include "server/base/status.h"

namespace batchd {
namespace {

constexpr double kExactIntegerMax = 9007199254740992.0;  // 2^53
constexpr size_t kQuotedMax = 64;
constexpr size_t kValueTextMax = 256;

std::string CountText(const Param& param) {
  return param.count_min == param.count_max
             ? fmt::format("{}", param.count_min)
             : fmt::format("{} to {}", param.count_min, param.count_max);
}

std::string TypeText(const Param& param) {
  switch (param.type) {
    case ParamType::kInt:
      return "an integer";
    case ParamType::kFloat:
      return "a number";
    case ParamType::kBool:
      return "true or false";
    case ParamType::kString:
      return "a string";
    case ParamType::kSize:
      return "an integer or [height, width]";
    case ParamType::kFloatList:
      return fmt::format("a list of {} numbers", CountText(param));
    case ParamType::kIntList:
      return fmt::format("a list of {} integers", CountText(param));
    case ParamType::kOperations:
      return fmt::format("a list of {} operations, each with name and arguments", CountText(param));
  }
  return "";
}

std::string RangeText(const Param& param) {
  if (std::isinf(param.max)) return fmt::format("at least {:g}", param.min);
  if (std::isinf(param.min)) return fmt::format("at most {:g}", param.max);
  return fmt::format("from {:.17g} to {:.17g}", param.min, param.max);
}

absl::Status WrongType(const Param& param, const Json& value, const std::string& field) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kValueTextMax) text = text.substr(0, kValueTextMax) + "...";
  return FieldErr(field, "{} is not {}", text, TypeText(param));
}

absl::Status CheckRange(const Param& param, double value, const std::string& field) {
  if (value >= param.min && value <= param.max) return absl::OkStatus();  // NaN fails
  return FieldErr(field, "{:g} is out of range; allowed is {}", value, RangeText(param));
}

// An integer however it is written: 3, 3.0 or "3".
absl::StatusOr<int64_t> ToInteger(const Param& param, const Json& value, const std::string& field) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) {
    return WrongType(param, value, field);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double d = value.get<double>();
    if (d == std::floor(d) && std::abs(d) <= kExactIntegerMax) return static_cast<int64_t>(d);
  }
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    errno = 0;
    char* end = nullptr;
    const long long parsed = std::strtoll(text.c_str(), &end, 10);
    if (!text.empty() && errno == 0 && *end == '\0' && !std::isspace(text[0])) return parsed;
  }
  return WrongType(param, value, field);
}

absl::StatusOr<Json> CheckInteger(const Param& param, const Json& value, const std::string& field) {
  BATCHD_ASSIGN_OR_RETURN(const int64_t number, ToInteger(param, value, field));
  BATCHD_RETURN_IF_ERROR(CheckRange(param, static_cast<double>(number), field));
  return Json(number);
}

absl::StatusOr<Json> CheckFloat(const Param& param, const Json& value, const std::string& field) {
  if (!value.is_number()) return WrongType(param, value, field);
  BATCHD_RETURN_IF_ERROR(CheckRange(param, value.get<double>(), field));
  return Json(value.get<double>());
}

// Name and arguments of an operation inside another.
absl::StatusOr<Json> CheckOperation(const Param& param, const Json& value,
                                    const std::string& field) {
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) {
    return FieldErr(field, "an item of {} has no name", TypeText(param));
  }
  for (const auto& [key, part] : value.items()) {
    if (key == "name") continue;
    if (key != "arguments" || !(part.is_object() || part.is_null())) {
      return FieldErr(field,
                      "an operation is {{\"name\": ..., \"arguments\": {{...}}}}, and {} is "
                      "not of it",
                      Quoted(key));
    }
  }
  Json arguments = value.value("arguments", Json(nullptr));
  if (arguments.is_null()) arguments = Json::object();
  return Json{{"name", value["name"]}, {"arguments", std::move(arguments)}};
}

using CheckItem = absl::StatusOr<Json> (*)(const Param&, const Json&, const std::string&);

absl::StatusOr<Json> CheckItems(const Param& param, const Json& list, const std::string& field,
                                CheckItem check) {
  Json checked = Json::array();
  for (size_t i = 0; i < list.size(); ++i) {
    BATCHD_ASSIGN_OR_RETURN(Json item, check(param, list[i], fmt::format("{}[{}]", field, i)));
    checked.push_back(std::move(item));
  }
  return checked;
}

absl::StatusOr<Json> CheckList(const Param& param, const Json& value, const std::string& field,
                               CheckItem check) {
  if (!value.is_array() || value.size() < param.count_min || value.size() > param.count_max) {
    return WrongType(param, value, field);
  }
  return CheckItems(param, value, field, check);
}

// One number stands for a list of one.
Json OfOne(const Json& value) { return value.is_number() ? Json::array({value}) : value; }

absl::StatusOr<Json> CheckValue(const Param& param, const Json& value, const std::string& field) {
  if (value.is_null() && param.default_value.has_value() && param.default_value->is_null()) {
    return Json(nullptr);
  }
  switch (param.type) {
    case ParamType::kInt:
      return CheckInteger(param, value, field);
    case ParamType::kFloat:
      return CheckFloat(param, value, field);
    case ParamType::kBool:
      if (!value.is_boolean()) return WrongType(param, value, field);
      return value;
    case ParamType::kString:
      if (!value.is_string()) return WrongType(param, value, field);
      if (value.get_ref<const std::string&>().find('\0') != std::string::npos) {
        return FieldErr(field, "has a NUL character, where the operating system would cut it");
      }
      if (!param.choices.empty() && std::find(param.choices.begin(), param.choices.end(),
                                              value.get<std::string>()) == param.choices.end()) {
        return FieldErr(field, "\"{}\" is unknown; there are {}", value.get<std::string>(),
                        fmt::join(param.choices, ", "));
      }
      return value;
    case ParamType::kSize:
      if (!value.is_array()) return CheckInteger(param, value, field);
      if (value.size() != 2) return WrongType(param, value, field);
      return CheckItems(param, value, field, CheckInteger);
    case ParamType::kFloatList:
      return CheckList(param, OfOne(value), field, CheckFloat);
    case ParamType::kIntList:
      return CheckList(param, OfOne(value), field, CheckInteger);
    case ParamType::kOperations:
      return CheckList(param, value, field, CheckOperation);
  }
  return value;
}

std::string NamesText(const Schema& schema) {
  std::vector<std::string> names;
  for (const Param& param : schema.params) names.push_back(param.name);
  if (names.empty()) return fmt::format("{} takes no arguments", schema.name);
  return fmt::format("{} takes {}", schema.name, fmt::join(names, ", "));
}

}  // namespace

absl::StatusOr<Json> CheckArguments(const Schema& schema, const Json& arguments,
                                    std::string_view field) {
  if (!arguments.is_null() && !arguments.is_object()) {
    return FieldErr(field, "arguments of {} are not an object", schema.name);
  }
  Json checked = Json::object();
  for (const Param& param : schema.params) {
    const std::string path = fmt::format("{}.{}", field, param.name);
    const auto it = arguments.is_null() ? arguments.end() : arguments.find(param.name);
    if (!arguments.is_null() && it != arguments.end()) {
      BATCHD_ASSIGN_OR_RETURN(checked[param.name], CheckValue(param, *it, path));
    } else if (param.default_value.has_value()) {
      // In the form of one that was given: a number for a list of one becomes the list.
      BATCHD_ASSIGN_OR_RETURN(checked[param.name], CheckValue(param, *param.default_value, path));
    } else {
      return FieldErr(path, "is missing: {}", param.sentence);
    }
  }
  if (arguments.is_object()) {
    for (const auto& [name, value] : arguments.items()) {
      if (!checked.contains(name)) {
        return FieldErr(fmt::format("{}.{}", field, name), "no such argument; {}",
                        NamesText(schema));
      }
    }
  }
  return checked;
}

std::string Quoted(std::string_view text) {
  return Json(text.substr(0, kQuotedMax)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

Json SchemaToJson(const Schema& schema) {
  static constexpr const char* kTypeNames[] = {"int",  "float",  "bool", "string",
                                               "size", "floats", "ints", "operations"};
  Json params = Json::array();
  for (const Param& param : schema.params) {
    Json entry = {{"name", param.name},
                  {"type", kTypeNames[static_cast<int>(param.type)]},
                  {"sentence", param.sentence},
                  {"required", !param.default_value.has_value()}};
    if (param.default_value.has_value()) entry["default"] = *param.default_value;
    if (!std::isinf(param.min)) entry["min"] = param.min;
    if (!std::isinf(param.max)) entry["max"] = param.max;
    if (!param.choices.empty()) entry["choices"] = param.choices;
    params.push_back(std::move(entry));
  }
  return {{"name", schema.name}, {"sentence", schema.sentence}, {"params", std::move(params)}};
}

}  // namespace batchd
