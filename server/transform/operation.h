// SPDX-License-Identifier: Apache-2.0
//
// Operations as they stand in a list, in a column's or inside another operation's: checking them
// against their schemas, naming what they draw, making them, and running through them.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/philox.h"
#include "server/base/schema.h"
#include "server/transform/transform.h"

namespace batchd {

// An operation whose name is known and whose arguments have passed its schema.
struct CheckedOperation {
  std::string path;  // "pipeline.image[2]", "pipeline.image[2].transforms[0]"
  std::string name;
  Json arguments;                        // every default filled in, also of those inside
  const TransformKind* kind = nullptr;   // null for what a column begins with
  std::string draw_name;                 // "image/RandomApply#0", "image/RandomApply#0/Pad#0"
  uint16_t op_id = 0;                    // of draw_name
  std::vector<CheckedOperation> inside;  // those of its list of operations
  bool shares_draws = false;             // it and those inside draw what other columns draw, too
};

// How many operations of one name have stood in a list so far, so that the next one has its number.
class DrawNames {
 public:
  // `prefix`: "image", or the draw name of the operation that has the list.
  explicit DrawNames(std::string_view prefix) : prefix_(prefix) {}
  // Gives `operation` its draw_name and op_id.
  void Name(CheckedOperation* operation);

 private:
  const std::string prefix_;
  std::vector<std::string> seen_;
};

// Checks a transform and all that are inside it. Errors: field errors below `path`.
absl::StatusOr<CheckedOperation> CheckTransform(const std::string& name, const Json& arguments,
                                                std::string path, DrawNames* names);

// Names the operation again, and those inside it.
void NameDraws(DrawNames* names, CheckedOperation* operation);

// That of the kind; that of those inside, taken together, for an operation that has some.
Geometry GeometryOf(const CheckedOperation& operation);

// The operation and all inside it.
int CountOperations(const CheckedOperation& operation);

// An operation that is ready to run.
struct Operation {
  std::string path;
  uint16_t op_id = 0;
  std::unique_ptr<Transform> transform;
};

// Errors: field errors with the whole path.
absl::StatusOr<std::vector<Operation>> MakeOperations(std::span<const CheckedOperation> checked);

// Prepare of each, in order. Errors: field errors with the whole path.
absl::Status PrepareOperations(std::span<const Operation> operations, RowFormat* format,
                               ValueTable* table);

// Plan of each, in order, with draws of its own: `key` but for the op id. Errors: as Transform's,
// INVALID_ARGUMENT with the path of the operation.
absl::Status PlanOperations(std::span<const Operation> operations, DrawKey key, PicturePlan* plan);

}  // namespace batchd
