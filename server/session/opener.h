// SPDX-License-Identifier: Apache-2.0
//
// Opening a session: everything that is decided before its first batch. Requests are checked here
// and nowhere else, with the path of the field that is wrong.

#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/memory/budget.h"
#include "server/memory/segment.h"
#include "server/metrics/metrics.h"
#include "server/pipeline/batch.h"
#include "server/session/manager.h"
#include "server/session/session_state.h"

namespace batchd {

// What opening makes.
struct SessionParts {
  OpenedInfo info;
  BatchPlan plan;
  SessionStateOptions state_options;
  std::unique_ptr<Segment> segment;  // null after a mere look
};

// Control thread only. Datasets that are in use are shared by the sessions that use them.
class Opener {
 public:
  // All outlive the opener.
  Opener(const ManagerOptions& options, Budget* slab_budget, Metrics* metrics)
      : options_(options), slab_budget_(slab_budget), metrics_(metrics) {}

  // `with_memory`: also makes the first segment. Errors: see each check's message; field errors
  // carry the path in the request, FAILED_PRECONDITION names both values of a state that does not
  // fit, RESOURCE_EXHAUSTED the memory that is needed and what there is.
  absl::StatusOr<std::unique_ptr<SessionParts>> Open(const OpenRequest& request, bool with_memory);

 private:
  absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const OpenRequest& request);
  absl::Status CheckMemory(const OpenRequest& request, const PipelinePlan& pipeline,
                           const SlabLayout& layout, int slot_count) const;

  const ManagerOptions& options_;
  Budget* const slab_budget_;
  Metrics* const metrics_;
  std::map<std::string, std::weak_ptr<const Dataset>> datasets_;
  std::shared_ptr<const Dataset> last_dataset_;  // kept, so that a client that reopens finds it
};

}  // namespace batchd
