// SPDX-License-Identifier: Apache-2.0
//
// Transforms by name, for tests.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/status.h"
#include "server/transform/operation.h"

namespace batchd {

// The transform as a pipeline makes it: name, schema, then its own checks.
inline absl::StatusOr<std::unique_ptr<Transform>> MakeTransform(const std::string& name,
                                                                const Json& arguments) {
  DrawNames names("column");
  BATCHD_ASSIGN_OR_RETURN(const CheckedOperation checked,
                          CheckTransform(name, arguments, name, &names));
  return checked.kind->make(checked);
}

}  // namespace batchd
