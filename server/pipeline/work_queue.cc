// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/work_queue.h"

#include <algorithm>
#include <utility>

#include "server/base/check.h"

namespace batchd {

void WorkQueue::AddLane(Lane* lane) {
  MutexLock lock(&mu_);
  lanes_.push_back(lane);
}

void WorkQueue::RemoveLane(Lane* lane) {
  MutexLock lock(&mu_);
  BATCHD_CHECK(lane->batches.empty() && lane->fetched.empty());
  lanes_.erase(std::find(lanes_.begin(), lanes_.end(), lane));
}

void WorkQueue::AddBatch(Batch* batch) {
  BATCHD_CHECK(!batch->rows().empty());
  MutexLock lock(&mu_);
  batch->lane()->batches.push_back(batch);
  // A batch is many rows: whoever sleeps is needed. Nobody is woken per row.
  if (sleepers_ > 0) work_.NotifyAll();
}

void WorkQueue::AddFetched(RowTask task) {
  MutexLock lock(&mu_);
  Lane* lane = task.batch->lane();
  lane->fetched.push_back(std::move(task));
  if (sleepers_ > 0) work_.NotifyOne();
}

void WorkQueue::SetBatchesAhead(Lane* lane, int count) {
  MutexLock lock(&mu_);
  lane->batches_ahead = count;
}

Lane* WorkQueue::MostUrgent() {
  Lane* best = nullptr;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane* lane = lanes_[(turn_ + i) % lanes_.size()];
    if (lane->batches.empty() && lane->fetched.empty()) continue;
    if (best == nullptr || lane->batches_ahead < best->batches_ahead) best = lane;
  }
  ++turn_;
  return best;
}

bool WorkQueue::Pop(RowTask* task) {
  MutexLock lock(&mu_);
  Lane* lane;
  while ((lane = stopped_ ? nullptr : MostUrgent()) == nullptr) {
    if (stopped_) return false;
    ++sleepers_;
    work_.Wait(&mu_);
    --sleepers_;
  }
  if (!lane->fetched.empty()) {
    *task = std::move(lane->fetched.front());
    lane->fetched.pop_front();
    return true;
  }
  Batch* batch = lane->batches.front();
  *task = RowTask();
  task->batch = batch;
  task->row = lane->next_row++;
  task->ordinal = batch->rows()[task->row].ordinal;
  if (lane->next_row == static_cast<int64_t>(batch->rows().size())) {
    lane->batches.pop_front();
    lane->next_row = 0;
  }
  return true;
}

void WorkQueue::Stop() {
  MutexLock lock(&mu_);
  stopped_ = true;
  work_.NotifyAll();
}

}  // namespace batchd
