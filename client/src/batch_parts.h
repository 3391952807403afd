// SPDX-License-Identifier: Apache-2.0
//
// How the Loader makes a Batch.

#pragma once

#include <memory>
#include <vector>

#include "batchd/batch.h"
#include "client/src/carrier.h"
#include "client/src/state.h"

namespace batchd::internal {

// What all batches of a session have in common.
struct Run {
  std::vector<ColumnSpec> columns;
  RunState state;
};

struct BatchParts {
  static Batch Make(const wire::Record& record, Slab slab, std::shared_ptr<const Run> run);
};

}  // namespace batchd::internal
