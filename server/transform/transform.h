// SPDX-License-Identifier: Apache-2.0
//
// A transform is one operation of a column after its decode. There are two natures:
//
//   geometry  folds itself into a GeometryPlan before anything is decoded (crop, resize, flip);
//   value     folds itself into the column's ValueTable and format when the pipeline is made
//             (ToTensor, Normalize, Layout, Cast).
//
// A transform object is made once per pipeline from checked arguments and is immutable:
// thread-safe. Randomness comes from `draws` alone, so that a row depends on (seed, epoch, sample,
// operation).
//
// Adding one: a file `<name>.cc` with a schema and a TransformKind, its line in registry.cc and
// CMakeLists.txt, and a unit test. tests/conformance/transform_suite.h runs over every kind.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/philox.h"
#include "server/base/schema.h"
#include "server/image/geometry.h"
#include "server/image/value_table.h"

namespace batchd {

// What the rows of a column are at one place of its list of operations.
struct RowFormat {
  DType dtype = DType::kUint8;
  Layout layout = Layout::kHwc;
  bool is_tensor = false;         // ToTensor has been applied
  bool is_normalized = false;     // Normalize has been applied
  bool is_laid_out = false;       // Layout has been applied
  bool is_cast = false;           // Cast has been applied
  std::optional<ImageSize> size;  // the size of all rows, where it does not depend on the picture
};

class Transform {
 public:
  virtual ~Transform() = default;

  // Checks that the operation may stand here and changes `format` to what it makes. Value
  // transforms also fold themselves into `table`. Called once, in the order of the column.
  // Errors: INVALID_ARGUMENT that says what must stand before or after; the caller adds the path.
  virtual absl::Status Prepare(RowFormat* format, ValueTable* table) const = 0;

  // Geometry transforms fold one sample's operation into `plan`; others do nothing.
  // Errors: those of GeometryPlan.
  virtual absl::Status Plan(GeometryPlan* plan, Draws* draws) const;
};

// Plain data with static lifetime.
struct TransformKind {
  const Schema& (*schema)();
  // `arguments` have passed CheckArguments with the schema. Errors: a field error relative to the
  // operation, for what a schema cannot say.
  absl::StatusOr<std::unique_ptr<Transform>> (*make)(const Json& arguments);
  // Whether Plan draws: the operation then needs an op id that no other one has.
  bool is_random = false;
};

// All kinds of this build, in the order of the reference page.
std::span<const TransformKind* const> TransformKinds();

// The kind of that name, or null.
const TransformKind* FindTransform(std::string_view name);

}  // namespace batchd
