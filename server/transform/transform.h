// SPDX-License-Identifier: Apache-2.0
//
// A transform is one operation of a column after its decode. What it does to a sample is decided
// before the sample is decoded, and is one of these:
//
//   geometry  crop, resize, flip: folds itself into the plan; rows stream through it;
//   picture   needs the whole picture of its place: adds a step to the plan (colour, rotation);
//   value     folds itself into the column's ValueTable and format when the pipeline is made
//             (ToTensor, Normalize, Layout, Cast);
//   erasing   fills a box of the finished row.
//
// Some have operations inside and choose among them (RandomApply, RandomChoice).
//
// A transform object is made once per pipeline from checked arguments; after Prepare it is
// immutable: thread-safe. Randomness comes from `draws` alone, so that a row depends on (seed,
// epoch, sample, operation).
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
#include "server/image/picture_plan.h"
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
  bool is_erased = false;         // boxes may be filled: no pixel may move or change after this
  int64_t step_bytes = 0;         // the most scratch that a step takes beside its pictures
  int channels = 3;               // 3, or 1: red, green and blue are equal, and one is given
  std::optional<ImageSize> size;  // the size of all rows, where it does not depend on the picture
};

struct CheckedOperation;  // operation.h

class Transform {
 public:
  virtual ~Transform() = default;

  // Checks that the operation may stand here and changes `format` to what it makes. Value
  // transforms also fold themselves into `table`. Called in the order of the column, before Plan.
  // Errors: INVALID_ARGUMENT that says what must stand before or after, with a field where that is
  // inside the operation; the caller adds the path.
  virtual absl::Status Prepare(RowFormat* format, ValueTable* table) = 0;

  // Folds what the operation does to one sample into `plan`; value transforms do nothing.
  // Errors: the sample error too_large; INVALID_ARGUMENT if the operation cannot be done to a
  // picture of this size, with the way out; the caller adds the path.
  virtual absl::Status Plan(PicturePlan* plan, Draws* draws) const;
};

// Whether an operation decides where in the picture a pixel of the row comes from.
enum class Geometry : uint8_t {
  kNone,
  kOnly,  // it does nothing else, but for the colour of what lies outside
  kAlso   // it changes colours, too
};

// Plain data with static lifetime.
struct TransformKind {
  const Schema& (*schema)();
  // Errors: a field error relative to the operation, for what a schema cannot say; or one with the
  // whole path, for an operation inside.
  absl::StatusOr<std::unique_ptr<Transform>> (*make)(const CheckedOperation& operation);
  // Whether Plan draws: the operation then needs an op id that no other one has.
  bool is_random = false;
  Geometry geometry = Geometry::kNone;
};

// All kinds of this build, in the order of the reference page.
std::span<const TransformKind* const> TransformKinds();

// The kind of that name, or null.
const TransformKind* FindTransform(std::string_view name);

}  // namespace batchd
