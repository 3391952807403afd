// SPDX-License-Identifier: Apache-2.0
//
// Transforms by name, for tests.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/status.h"
#include "server/transform/transform.h"

namespace batchd {

// The transform as a pipeline makes it: name, schema, then its own checks.
inline absl::StatusOr<std::unique_ptr<Transform>> MakeTransform(const std::string& name,
                                                                const Json& arguments) {
  const TransformKind* const kind = FindTransform(name);
  if (kind == nullptr) return absl::InvalidArgumentError("no such operation " + name);
  BATCHD_ASSIGN_OR_RETURN(const Json checked, CheckArguments(kind->schema(), arguments, name));
  return kind->make(checked);
}

}  // namespace batchd
