// SPDX-License-Identifier: Apache-2.0
//
// The one ready queue: rows that can be made now, of all sessions, most urgent first. The most
// urgent session is the one with the fewest batches ready and not taken; within it, rows whose
// bytes have been fetched come first (they hold memory), then the oldest batch's rows in order.

#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "server/base/sync.h"
#include "server/pipeline/batch.h"
#include "server/source/source.h"

namespace batchd {

// One row to be made.
struct RowTask {
  Batch* batch = nullptr;
  int64_t row = 0;
  int64_t ordinal = 0;     // of the sample that is tried: the row's own, or a substitute
  int substitute = -1;     // its place in the chain; -1: the row's own sample
  absl::Status own_fault;  // why the row's own sample was not good
  // Set when a reader has been asked: the bytes, or why there are none.
  std::unique_ptr<ReadBuffer> fetched;
  absl::Status fetch_status;
};

// A session's place in the queue; its fields belong to the WorkQueue.
struct Lane {
  int batches_ahead = 0;
  std::deque<Batch*> batches;
  int64_t next_row = 0;  // of batches.front()
  std::deque<RowTask> fetched;
};

// Thread-safe.
class WorkQueue {
 public:
  // `lane` outlives its stay in the queue.
  void AddLane(Lane* lane);
  // Requires that none of the lane's rows is in the queue.
  void RemoveLane(Lane* lane);

  // All rows of a batch that has begun and has at least one.
  void AddBatch(Batch* batch);
  // A row whose bytes a reader has brought.
  void AddFetched(RowTask task);
  // How many of the lane's batches are ready and not taken.
  void SetBatchesAhead(Lane* lane, int count);

  // Waits for a row. False after Stop.
  bool Pop(RowTask* task);
  // Wakes all waiters; what is queued stays undone.
  void Stop();

 private:
  Lane* MostUrgent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  Mutex mu_;
  CondVar work_;
  std::vector<Lane*> lanes_ ABSL_GUARDED_BY(mu_);
  size_t turn_ ABSL_GUARDED_BY(mu_) = 0;  // lanes of equal urgency take turns
  int sleepers_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace batchd
