// SPDX-License-Identifier: Apache-2.0
//
// A Schema says what a dataset, decoder or operation is and which arguments it takes. Validation,
// `batchd plugins` and the reference pages all come from it, so none of them can differ from the
// code. Arguments are JSON objects; CheckArguments fills in every default, so the code that reads
// them finds each parameter with the right type and in range.

#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace batchd {

using Json = nlohmann::json;

enum class ParamType {
  kInt,         // JSON integer, or a decimal string where 53 bits do not do
  kFloat,       // JSON number
  kBool,        // JSON true or false
  kString,      // JSON string; one of `choices` if there are any
  kSize,        // an integer, or [height, width]; each in [min, max]
  kFloatList,   // list of numbers, or one number for a list of one; each in [min, max]
  kIntList,     // the same of integers
  kOperations,  // list of {"name": ..., "arguments": {...}}; who knows the names checks the
                // arguments
};

struct Param {
  std::string name;
  ParamType type;
  std::string sentence;  // what it means, with its unit
  std::optional<Json>
      default_value;  // none: must be given. null: may be left out, and then is null
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};
  size_t count_min = 1;  // of a list: how many items
  size_t count_max = 64;
};

struct Schema {
  std::string name;
  std::string sentence;
  std::vector<Param> params = {};
};

// `arguments` (an object, or null for none) with every default filled in and integers normalised.
// Errors: a field error, "<field>.<param>: ..." for an unknown name (with the names that exist), a
// missing one, a wrong type (both named), a value out of range (with the range) or no choice (with
// the choices).
absl::StatusOr<Json> CheckArguments(const Schema& schema, const Json& arguments,
                                    std::string_view field);

// For a message: what a stranger sent, in quotes, made printable and short.
std::string Quoted(std::string_view text);

// The schema as JSON, for `batchd plugins --format=json`.
Json SchemaToJson(const Schema& schema);

}  // namespace batchd
