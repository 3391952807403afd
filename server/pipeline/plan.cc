// SPDX-License-Identifier: Apache-2.0

#include "server/pipeline/plan.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "server/base/hash.h"
#include "server/base/status.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

constexpr size_t kOperationsMax = 64;
constexpr size_t kNameMax = 64;

constexpr const ColumnSource* kSources[] = {&kDecodeImage, &kDecodeMask, &kLabel};

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

bool IsColumnName(std::string_view name) {
  return !name.empty() && name.size() <= kNameMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '_';
         });
}

absl::Status CheckColumns(const PipelineSpec& spec) {
  if (spec.columns.empty() || spec.columns.size() > PipelinePlan::kColumnsMax) {
    return FieldErr("pipeline", "{} columns; give 1 to {}", spec.columns.size(),
                    PipelinePlan::kColumnsMax);
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

// What a column begins with.
absl::StatusOr<CheckedOperation> CheckSource(const OperationSpec& spec, std::string path,
                                             DrawNames* names) {
  const ColumnSource* const source = FindSource(spec.name);
  if (source == nullptr && FindTransform(spec.name) == nullptr) {
    return FieldErr(path, "no such operation {}; begin a column with one of {}", Quoted(spec.name),
                    SourceNames());
  }
  if (source == nullptr) {
    return FieldErr(path, "{} cannot begin a column; begin it with one of {}", spec.name,
                    SourceNames());
  }
  CheckedOperation checked;
  BATCHD_ASSIGN_OR_RETURN(checked.arguments,
                          CheckArguments(source->schema(), spec.arguments, path));
  checked.path = std::move(path);
  checked.name = spec.name;
  names->Name(&checked);
  return checked;
}

absl::StatusOr<CheckedColumn> CheckColumn(const ColumnSpec& spec) {
  CheckedColumn column;
  column.name = spec.name;
  column.path = "pipeline." + spec.name;
  DrawNames names(spec.name);
  BATCHD_ASSIGN_OR_RETURN(CheckedOperation source,
                          CheckSource(spec.operations[0], column.path + "[0]", &names));
  column.geometry = source.arguments.value("geometry", std::string());
  if (!column.geometry.empty() && !IsColumnName(column.geometry)) {
    return FieldErr(source.path + ".geometry",
                    "{} is refused; use 1 to {} letters, digits and underscores",
                    Quoted(column.geometry), kNameMax);
  }
  column.operations.push_back(std::move(source));
  DrawNames shared_names(column.geometry);
  int count = 1;
  for (size_t i = 1; i < spec.operations.size(); ++i) {
    const OperationSpec& operation = spec.operations[i];
    std::string path = fmt::format("{}[{}]", column.path, i);
    if (FindSource(operation.name) != nullptr) {
      return FieldErr(path, "{} must be the first operation of a column; move it into its own",
                      operation.name);
    }
    DrawNames any("");
    BATCHD_ASSIGN_OR_RETURN(
        CheckedOperation checked,
        CheckTransform(operation.name, operation.arguments, std::move(path), &any));
    checked.shares_draws = !column.geometry.empty() && GeometryOf(checked) != Geometry::kNone;
    NameDraws(checked.shares_draws ? &shared_names : &names, &checked);
    count += CountOperations(checked);
    column.operations.push_back(std::move(checked));
  }
  if (count > static_cast<int>(kOperationsMax)) {
    return FieldErr(column.path, "{} operations with those inside others; give at most {}", count,
                    kOperationsMax);
  }
  return column;
}

// Two operations with one op id would draw the same numbers: a flip, say, that follows a crop's
// area. Those of one geometry are meant to.
struct DrawOwner {
  const CheckedOperation* operation;
  bool shares;
};
using DrawOwners = std::map<uint16_t, DrawOwner>;

absl::Status CheckDraws(std::span<const CheckedOperation> operations, bool share,
                        DrawOwners* owners) {
  for (const CheckedOperation& operation : operations) {
    const bool shares = share || operation.shares_draws;
    BATCHD_RETURN_IF_ERROR(CheckDraws(operation.inside, shares, owners));
    if (operation.kind == nullptr || !operation.kind->is_random) continue;
    const auto [entry, is_new] = owners->emplace(operation.op_id, DrawOwner{&operation, shares});
    if (is_new) continue;
    const CheckedOperation& other = *entry->second.operation;
    if (shares && entry->second.shares && other.draw_name == operation.draw_name) continue;
    return FieldErr(operation.path,
                    "{} and {} (at {}) would draw the same random numbers, since their names have "
                    "the same hash {:#06x}; rename a column or geometry",
                    operation.draw_name, other.draw_name, other.path, operation.op_id);
  }
  return absl::OkStatus();
}

// What of a source's arguments decides how it decodes.
Json DecodeArguments(const CheckedOperation& source) {
  Json arguments = source.arguments;
  arguments.erase("geometry");
  arguments.erase("dtype");
  return arguments;
}

// The columns that begin with the same source and decode the same way, in the order of their first
// ones; a source that joins nothing has columns of their own.
std::vector<std::vector<int>> GroupColumns(const std::vector<CheckedColumn>& columns) {
  std::vector<std::vector<int>> groups;
  for (size_t i = 0; i < columns.size(); ++i) {
    const CheckedOperation& source = columns[i].operations[0];
    const auto is_alike = [&](const std::vector<int>& group) {
      const CheckedOperation& other = columns[static_cast<size_t>(group[0])].operations[0];
      return other.name == source.name && DecodeArguments(other) == DecodeArguments(source);
    };
    const auto group = std::find_if(groups.begin(), groups.end(), is_alike);
    if (group != groups.end() && FindSource(source.name)->join != nullptr) {
      group->push_back(static_cast<int>(i));
    } else {
      groups.push_back({static_cast<int>(i)});
    }
  }
  return groups;
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
  DrawOwners owners;
  for (const CheckedColumn& column : columns) {
    BATCHD_RETURN_IF_ERROR(CheckDraws(column.operations, /*share=*/false, &owners));
  }
  BATCHD_RETURN_IF_ERROR(CheckGeometries(columns));

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
  for (std::vector<int>& group : GroupColumns(columns)) {
    std::vector<const ColumnPlan*> alike;
    for (const int i : group) alike.push_back(&plan->column(i));
    const size_t first = static_cast<size_t>(group[0]);
    std::unique_ptr<JointPlan> joint;
    if (alike.size() > 1) joint = FindSource(columns[first].operations[0].name)->join(alike);
    plan->groups_.push_back({std::move(group), std::move(joint)});
  }
  plan->dataset_ = std::move(dataset);
  return std::shared_ptr<const PipelinePlan>(std::move(plan));
}

absl::Status PipelinePlan::MakeRows(Bytes bytes, const DrawKey& key, Worker* worker,
                                    std::span<uint8_t* const> rows) const {
  for (const Group& group : groups_) {
    std::array<uint8_t*, kColumnsMax> out;
    size_t count = 0;
    for (const int i : group.columns) out[count++] = rows[static_cast<size_t>(i)];
    BATCHD_RETURN_IF_ERROR(
        group.joint != nullptr
            ? group.joint->MakeRows(*dataset_, bytes, key, worker, std::span(out).first(count))
            : column(group.columns[0]).MakeRow(*dataset_, bytes, key, worker, out[0]));
  }
  return absl::OkStatus();
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
