// SPDX-License-Identifier: Apache-2.0

#include "server/pipeline/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "server/base/hash.h"
#include "server/base/status.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

constexpr size_t kColumnsMax = 64;
constexpr size_t kOperationsMax = 64;
constexpr size_t kNameMax = 64;

constexpr const ColumnSource* kSources[] = {&kDecodeImage, &kLabel};

const ColumnSource* FindSource(std::string_view name) {
  for (const ColumnSource* source : kSources) {
    if (source->schema().name == name) return source;
  }
  return nullptr;
}

std::string SourceNames() {
  std::vector<std::string> names;
  for (const ColumnSource* source : kSources) names.push_back(source->schema().name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string OperationNames() {
  std::vector<std::string> names = {SourceNames()};
  for (const TransformKind* kind : TransformKinds()) names.push_back(kind->schema().name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool IsColumnName(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

// For a message: what a stranger sent, made printable and short.
std::string Quoted(const std::string& text) {
  return Json(text.substr(0, kNameMax)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

absl::Status CheckColumns(const PipelineSpec& spec) {
  if (spec.columns.empty() || spec.columns.size() > kColumnsMax) {
    return FieldErr("pipeline", "{} columns; give 1 to {}", spec.columns.size(), kColumnsMax);
  }
  std::set<std::string> names;
  for (const ColumnSpec& column : spec.columns) {
    if (!IsColumnName(column.name)) {
      return FieldErr("pipeline",
                      "column name {} is refused; use 1 to {} letters, digits and underscores",
                      Quoted(column.name), kNameMax);
    }
    if (!names.insert(column.name).second) {
      return FieldErr("pipeline." + column.name, "there are two columns of this name; rename one");
    }
    if (column.operations.empty() || column.operations.size() > kOperationsMax) {
      return FieldErr("pipeline." + column.name, "{} operations; give 1 to {}, the first of {}",
                      column.operations.size(), kOperationsMax, SourceNames());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckedOperation> CheckOperation(const OperationSpec& spec, std::string path,
                                                bool is_first) {
  const ColumnSource* const source = FindSource(spec.name);
  const TransformKind* const kind = FindTransform(spec.name);
  if (source == nullptr && kind == nullptr) {
    return FieldErr(path, "no such operation {}; there are {}", Quoted(spec.name),
                    OperationNames());
  }
  if (is_first && source == nullptr) {
    return FieldErr(path, "{} cannot begin a column; begin it with one of {}", spec.name,
                    SourceNames());
  }
  if (!is_first && kind == nullptr) {
    return FieldErr(path, "{} must be the first operation of a column; move it into its own",
                    spec.name);
  }
  const Schema& schema = is_first ? source->schema() : kind->schema();
  CheckedOperation checked;
  BATCHD_ASSIGN_OR_RETURN(checked.arguments, CheckArguments(schema, spec.arguments, path));
  checked.path = std::move(path);
  checked.name = spec.name;
  checked.kind = is_first ? nullptr : kind;
  return checked;
}

absl::StatusOr<CheckedColumn> CheckColumn(const ColumnSpec& spec) {
  CheckedColumn column;
  column.name = spec.name;
  column.path = "pipeline." + spec.name;
  std::map<std::string, int> seen;
  for (size_t i = 0; i < spec.operations.size(); ++i) {
    BATCHD_ASSIGN_OR_RETURN(
        CheckedOperation operation,
        CheckOperation(spec.operations[i], fmt::format("{}[{}]", column.path, i), i == 0));
    operation.draw_name =
        fmt::format("{}/{}#{}", spec.name, operation.name, seen[operation.name]++);
    operation.op_id = static_cast<uint16_t>(Xxh32(operation.draw_name) & 0xFFFF);
    column.operations.push_back(std::move(operation));
  }
  return column;
}

// Two operations with one op id would draw the same numbers: a flip, say, that follows a crop's
// area.
absl::Status CheckDraws(const std::vector<CheckedColumn>& columns) {
  std::map<uint16_t, const CheckedOperation*> owners;
  for (const CheckedColumn& column : columns) {
    for (const CheckedOperation& operation : column.operations) {
      if (operation.kind == nullptr || !operation.kind->is_random) continue;
      const auto [owner, is_new] = owners.emplace(operation.op_id, &operation);
      if (is_new) continue;
      return FieldErr(
          operation.path,
          "{} and {} (at {}) would draw the same random numbers, since their names have "
          "the same hash {:#06x}; rename a column",
          operation.draw_name, owner->second->draw_name, owner->second->path, operation.op_id);
    }
  }
  return absl::OkStatus();
}

std::string FingerprintOf(const std::vector<CheckedColumn>& columns) {
  Fingerprinter fingerprinter;
  fingerprinter.Add(uint64_t{columns.size()});
  for (const CheckedColumn& column : columns) {
    fingerprinter.Add(column.name);
    fingerprinter.Add(uint64_t{column.operations.size()});
    for (const CheckedOperation& operation : column.operations) {
      fingerprinter.Add(operation.name);
      // Keys are in order and numbers in their shortest form, so that equal arguments are equal
      // text.
      fingerprinter.Add(operation.arguments.dump());
    }
  }
  return fingerprinter.Hex();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PipelinePlan>> PipelinePlan::Compile(
    const PipelineSpec& spec, std::shared_ptr<const Dataset> dataset, DecodeIsolation* isolation) {
  BATCHD_RETURN_IF_ERROR(CheckColumns(spec));
  std::vector<CheckedColumn> columns;
  for (const ColumnSpec& column_spec : spec.columns) {
    BATCHD_ASSIGN_OR_RETURN(CheckedColumn column, CheckColumn(column_spec));
    columns.push_back(std::move(column));
  }
  BATCHD_RETURN_IF_ERROR(CheckDraws(columns));

  std::shared_ptr<PipelinePlan> plan(new PipelinePlan);
  plan->fingerprint_ = FingerprintOf(columns);
  for (const CheckedColumn& column : columns) {
    const ColumnSource* const source = FindSource(column.operations[0].name);
    BATCHD_ASSIGN_OR_RETURN(MadeColumn made, source->make(column, *dataset, isolation));
    plan->needs_bytes_ = plan->needs_bytes_ || made.plan->needs_bytes();
    // One thread makes the columns of a sample one after the other.
    plan->scratch_bytes_max_ = std::max(plan->scratch_bytes_max_, made.scratch_bytes_max);
    plan->encoded_bytes_max_ = std::max(plan->encoded_bytes_max_, made.encoded_bytes_max);
    plan->columns_.push_back(std::move(made.plan));
  }
  plan->dataset_ = std::move(dataset);
  return std::shared_ptr<const PipelinePlan>(std::move(plan));
}

std::vector<ColumnShape> PipelinePlan::shapes() const {
  std::vector<ColumnShape> shapes;
  for (const auto& column : columns_) shapes.push_back(column->shape());
  return shapes;
}

std::vector<const Schema*> ColumnSourceSchemas() {
  std::vector<const Schema*> schemas;
  for (const ColumnSource* source : kSources) schemas.push_back(&source->schema());
  return schemas;
}

}  // namespace batchd
