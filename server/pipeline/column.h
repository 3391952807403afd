// SPDX-License-Identifier: Apache-2.0
//
// Between checking a pipeline and making its columns; internal to server/pipeline.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/dataset/dataset.h"
#include "server/pipeline/plan.h"
#include "server/transform/operation.h"

namespace batchd {

// A column whose first operation is DecodeImage, DecodeMask or Label, and the rest transforms.
struct CheckedColumn {
  std::string name;
  std::string path;  // "pipeline.image"
  std::vector<CheckedOperation> operations;
  std::string geometry;  // the name that it shares its geometry's draws under; empty: with none
};

// Checks that columns of one geometry do the same to their pictures. Errors: field errors.
absl::Status CheckGeometries(std::span<const CheckedColumn> columns);

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
  // Of columns that `make` has made and whose source has the same arguments, but for dtype and
  // geometry; null: each is made for itself. The columns outlive what it returns.
  std::unique_ptr<JointPlan> (*join)(std::span<const ColumnPlan* const> columns) = nullptr;
};
extern const ColumnSource kDecodeImage;
extern const ColumnSource kDecodeMask;
extern const ColumnSource kLabel;

}  // namespace batchd
