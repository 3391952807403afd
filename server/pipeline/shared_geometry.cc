// SPDX-License-Identifier: Apache-2.0
//
// Columns of one geometry="name" draw the same numbers for the operations that move pixels, so that
// a picture and its mask are cut, flipped and turned alike. That holds only if these operations are
// the same in all of them.

#include <algorithm>
#include <map>

#include "server/base/status.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

// How a picture is sampled and what lies outside need not be the same.
constexpr const char* kFree[] = {"interpolation", "fill"};

// The arguments that decide where pixels come from, also of operations inside.
Json PlaceArguments(Json arguments) {
  if (arguments.is_object()) {
    for (const char* key : kFree) arguments.erase(key);
  }
  if (arguments.is_structured()) {
    for (Json& value : arguments) value = PlaceArguments(value);
  }
  return arguments;
}

// The operations that move pixels, up to the last one that draws: what comes behind it moves all
// samples' pixels alike, and may be left to each column.
std::vector<const CheckedOperation*> SharedOperations(const CheckedColumn& column) {
  std::vector<const CheckedOperation*> shared;
  size_t count = 0;
  for (const CheckedOperation& operation : column.operations) {
    if (!operation.shares_draws) continue;
    shared.push_back(&operation);
    if (operation.kind->is_random) count = shared.size();
  }
  shared.resize(count);
  return shared;
}

std::string TextOf(const CheckedOperation& operation) {
  return operation.name + PlaceArguments(operation.arguments).dump();
}

absl::Status CheckPair(const CheckedColumn& column, const CheckedColumn& other) {
  const Json& decode = column.operations[0].arguments;
  const Json& other_decode = other.operations[0].arguments;
  if (decode["orientation"] != other_decode["orientation"]) {
    return FieldErr(column.operations[0].path + ".orientation",
                    "{} has geometry {} too, and orientation {}; make them equal", other.path,
                    Quoted(column.geometry), other_decode["orientation"].dump());
  }
  const auto mine = SharedOperations(column), others = SharedOperations(other);
  for (size_t i = 0; i < std::max(mine.size(), others.size()); ++i) {
    if (i >= mine.size()) {
      return FieldErr(
          column.path,
          "{} of the same geometry {} has {} at {}, and nothing here goes with it; make "
          "the operations that move pixels equal",
          other.path, Quoted(column.geometry), TextOf(*others[i]), others[i]->path);
    }
    if (i < others.size() && TextOf(*mine[i]) == TextOf(*others[i])) continue;
    return FieldErr(mine[i]->path,
                    "{} differs from {} of the same geometry {}, which has {}; make the operations "
                    "that move pixels equal, but for interpolation and fill",
                    TextOf(*mine[i]), other.path, Quoted(column.geometry),
                    i < others.size() ? TextOf(*others[i]) + " at " + others[i]->path
                                      : std::string("none there"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGeometries(std::span<const CheckedColumn> columns) {
  std::map<std::string, const CheckedColumn*> firsts;
  for (const CheckedColumn& column : columns) {
    if (column.geometry.empty()) continue;
    const auto [first, is_new] = firsts.emplace(column.geometry, &column);
    if (!is_new) BATCHD_RETURN_IF_ERROR(CheckPair(column, *first->second));
  }
  return absl::OkStatus();
}

}  // namespace batchd
