// SPDX-License-Identifier: Apache-2.0

#include "server/transform/operation.h"

#include <algorithm>

#include "server/base/hash.h"
#include "server/base/status.h"

namespace batchd {
namespace {

// How deep operations may stand in each other.
constexpr ptrdiff_t kDepthMax = 8;

std::string TransformNames() {
  std::vector<std::string> names;
  for (const TransformKind* kind : TransformKinds()) names.push_back(kind->schema().name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Checks the list of operations that is an argument, and puts what is checked in its place.
absl::Status CheckInside(const std::string& param, CheckedOperation* operation) {
  const std::string path = operation->path + "." + param;
  if (std::count(operation->draw_name.begin(), operation->draw_name.end(), '/') >= kDepthMax) {
    return FieldErr(path, "operations stand in each other more than {} deep; take some out",
                    kDepthMax);
  }
  DrawNames names(operation->draw_name);
  Json& list = operation->arguments[param];
  for (size_t i = 0; i < list.size(); ++i) {
    BATCHD_ASSIGN_OR_RETURN(CheckedOperation inside,
                            CheckTransform(list[i]["name"].get<std::string>(), list[i]["arguments"],
                                           fmt::format("{}[{}]", path, i), &names));
    list[i]["arguments"] = inside.arguments;
    operation->inside.push_back(std::move(inside));
  }
  return absl::OkStatus();
}

// Puts the path of an operation before an error of its own; one inside has said its path.
absl::Status WithPath(const std::string& path, const absl::Status& status) {
  const std::string field = FieldOf(status);
  const std::string message(status.message());
  if (field.empty()) return MakeFieldError(path, message);
  if (field.starts_with(path)) return status;
  // The field is relative to the operation, and the message begins with it.
  return MakeFieldError(path + "." + field, message.substr(field.size() + 2));
}

}  // namespace

void DrawNames::Name(CheckedOperation* operation) {
  const auto number = std::count(seen_.begin(), seen_.end(), operation->name);
  seen_.push_back(operation->name);
  operation->draw_name = fmt::format("{}/{}#{}", prefix_, operation->name, number);
  operation->op_id = static_cast<uint16_t>(Xxh32(operation->draw_name) & 0xFFFF);
}

absl::StatusOr<CheckedOperation> CheckTransform(const std::string& name, const Json& arguments,
                                                std::string path, DrawNames* names) {
  CheckedOperation checked;
  checked.kind = FindTransform(name);
  if (checked.kind == nullptr) {
    return FieldErr(path, "no such operation {}; there are {}", Quoted(name), TransformNames());
  }
  const Schema& schema = checked.kind->schema();
  BATCHD_ASSIGN_OR_RETURN(checked.arguments, CheckArguments(schema, arguments, path));
  checked.path = std::move(path);
  checked.name = name;
  names->Name(&checked);
  for (const Param& param : schema.params) {
    if (param.type != ParamType::kOperations) continue;
    BATCHD_RETURN_IF_ERROR(CheckInside(param.name, &checked));
  }
  return checked;
}

void NameDraws(DrawNames* names, CheckedOperation* operation) {
  names->Name(operation);
  DrawNames inside_names(operation->draw_name);
  for (CheckedOperation& inside : operation->inside) NameDraws(&inside_names, &inside);
}

Geometry GeometryOf(const CheckedOperation& operation) {
  if (operation.inside.empty()) return operation.kind->geometry;
  const Geometry first = GeometryOf(operation.inside[0]);
  for (const CheckedOperation& inside : operation.inside) {
    if (GeometryOf(inside) != first) return Geometry::kAlso;
  }
  return first;
}

int CountOperations(const CheckedOperation& operation) {
  int count = 1;
  for (const CheckedOperation& inside : operation.inside) count += CountOperations(inside);
  return count;
}

absl::StatusOr<std::vector<Operation>> MakeOperations(std::span<const CheckedOperation> checked) {
  std::vector<Operation> operations;
  for (const CheckedOperation& operation : checked) {
    auto transform = operation.kind->make(operation);
    if (!transform.ok()) return WithPath(operation.path, transform.status());
    operations.push_back({operation.path, operation.op_id, std::move(*transform)});
  }
  return operations;
}

absl::Status PrepareOperations(std::span<const Operation> operations, RowFormat* format,
                               ValueTable* table) {
  for (const Operation& operation : operations) {
    const absl::Status prepared = operation.transform->Prepare(format, table);
    if (!prepared.ok()) return WithPath(operation.path, prepared);
  }
  return absl::OkStatus();
}

absl::Status PlanOperations(std::span<const Operation> operations, DrawKey key, PicturePlan* plan) {
  for (const Operation& operation : operations) {
    key.op_id = operation.op_id;
    Draws draws(key);
    const absl::Status planned = operation.transform->Plan(plan, &draws);
    if (planned.ok()) continue;
    return absl::IsInvalidArgument(planned) ? WithPath(operation.path, planned) : planned;
  }
  return absl::OkStatus();
}

}  // namespace batchd
