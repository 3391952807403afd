// SPDX-License-Identifier: Apache-2.0
//
// Between checking a pipeline and making its columns; internal to server/pipeline.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/dataset/dataset.h"
#include "server/pipeline/plan.h"
#include "server/transform/transform.h"

namespace batchd {

// An operation whose name is known and whose arguments have passed its schema.
struct CheckedOperation {
  std::string path;  // "pipeline.image[2]"
  std::string name;
  Json arguments;                       // every default filled in
  const TransformKind* kind = nullptr;  // null for what a column begins with
  std::string draw_name;                // "image/RandomResizedCrop#0"
  uint16_t op_id = 0;                   // of draw_name
};

// A column whose first operation is DecodeImage or Label, and the rest transforms.
struct CheckedColumn {
  std::string name;
  std::string path;  // "pipeline.image"
  std::vector<CheckedOperation> operations;
};

// A finished column with what it takes.
struct MadeColumn {
  std::unique_ptr<ColumnPlan> plan;
  int64_t scratch_bytes_max = 0;
  int64_t encoded_bytes_max = 0;
};

// What a column may begin with. Plain data with static lifetime.
struct ColumnSource {
  const Schema& (*schema)();
  // May read headers of samples, as PipelinePlan::Compile says. Errors: field errors.
  absl::StatusOr<MadeColumn> (*make)(const CheckedColumn& column, const Dataset& dataset,
                                     DecodeIsolation* isolation);
};
extern const ColumnSource kDecodeImage;
extern const ColumnSource kLabel;

}  // namespace batchd
