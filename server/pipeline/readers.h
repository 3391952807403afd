// SPDX-License-Identifier: Apache-2.0
//
// Readers are a few threads that may wait for a device: they take the rows whose bytes are not in
// memory, read them, and put them back into the WorkQueue. The bytes that wait for decoding are
// bounded by a budget; a reader waits until there is room.
//
// What may pass (UNAVAILABLE) is tried again, with a growing pause, before the row fails: the bytes
// of a batch never depend on luck.

#pragma once

#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "server/base/sync.h"
#include "server/memory/budget.h"
#include "server/metrics/metrics.h"
#include "server/pipeline/work_queue.h"

namespace batchd {

inline constexpr int kReadAttemptsMax = 5;

// A budget that waits; who comes first is served first. Thread-safe.
class WaitingBudget : public ByteGate {
 public:
  explicit WaitingBudget(Budget* budget) : budget_(budget) {}
  void Acquire(int64_t size_bytes) override;
  void Release(int64_t size_bytes) override;

 private:
  Budget* const budget_;
  Mutex mu_;
  CondVar released_;
  uint64_t next_turn_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t now_served_ ABSL_GUARDED_BY(mu_) = 0;
};

// Thread-safe. Destroying it joins the threads; rows that are still queued stay undone.
class Readers {
 public:
  Readers(int thread_count, Budget* encoded_budget, WorkQueue* queue, Metrics* metrics);
  ~Readers();

  // Reads the sample `task.ordinal` and gives the row back to the queue.
  void Submit(RowTask task);

 private:
  void Run();
  bool Pop(RowTask* task);
  absl::Status ReadWithRetries(RowTask* task, SampleLocation* location);
  bool PauseOrStopped(int attempt);

  WorkQueue* const queue_;
  Metrics* const metrics_;
  WaitingBudget gate_;
  Mutex mu_;
  CondVar work_;
  CondVar stopping_;  // for pauses; one that waited on work_ would swallow a wake-up meant for an
                      // idle reader
  std::deque<RowTask> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace batchd
