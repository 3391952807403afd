// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/readers.h"

#include <utility>

namespace batchd {

void WaitingBudget::Acquire(int64_t size_bytes) {
  MutexLock lock(&mu_);
  // In turn, or small requests that never cease would keep a large one waiting for ever. Whoever
  // holds bytes is waiting for a CPU thread only, so they come back.
  const uint64_t turn = next_turn_++;
  while (turn != now_served_ || !budget_->TryTake(size_bytes)) released_.Wait(&mu_);
  ++now_served_;
  released_.NotifyAll();
}

void WaitingBudget::Release(int64_t size_bytes) {
  MutexLock lock(&mu_);
  budget_->Give(size_bytes);
  released_.NotifyAll();
}

Readers::Readers(int thread_count, Budget* encoded_budget, WorkQueue* queue, Metrics* metrics)
    : queue_(queue), metrics_(metrics), gate_(encoded_budget) {
  for (int i = 0; i < thread_count; ++i) threads_.emplace_back([this] { Run(); });
}

Readers::~Readers() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    work_.NotifyAll();
    stopping_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void Readers::Submit(RowTask task) {
  MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  work_.NotifyOne();
}

bool Readers::Pop(RowTask* task) {
  MutexLock lock(&mu_);
  while (tasks_.empty() && !stopped_) work_.Wait(&mu_);
  if (stopped_) return false;
  *task = std::move(tasks_.front());
  tasks_.pop_front();
  return true;
}

void Readers::Run() {
  SampleLocation location;
  RowTask task;
  while (Pop(&task)) {
    if (task.batch->cancelled()) {
      task.batch->DropRow();
      continue;
    }
    task.fetched = std::make_unique<ReadBuffer>(&gate_);
    const TimePoint start = Clock::Real()->Now();
    task.fetch_status = ReadWithRetries(&task, &location);
    Observe(metrics_->stage_duration[static_cast<int>(Stage::kRead)],
            ToSeconds(Clock::Real()->Now() - start));
    queue_->AddFetched(std::move(task));
  }
}

absl::Status Readers::ReadWithRetries(RowTask* task, SampleLocation* location) {
  const PipelinePlan& pipeline = *task->batch->plan().pipeline;
  pipeline.dataset().Locate(task->ordinal, location);
  for (int attempt = 1;; ++attempt) {
    absl::Status status = pipeline.dataset().source()->Read(
        *location, static_cast<size_t>(pipeline.encoded_bytes_max()), task->fetched.get());
    if (status.ok()) {
      Add(metrics_->source_requests_ok);
      Add(metrics_->source_bytes, static_cast<double>(task->fetched->bytes().size()));
      return status;
    }
    Add(metrics_->source_requests_failed);
    const bool may_pass = absl::IsUnavailable(status);
    if (!may_pass || attempt == kReadAttemptsMax || task->batch->cancelled()) return status;
    Add(metrics_->source_retries);
    task->fetched->Free();  // others may read meanwhile
    if (PauseOrStopped(attempt)) return status;
  }
}

bool Readers::PauseOrStopped(int attempt) {
  const TimePoint deadline = Clock::Real()->Now() + std::chrono::milliseconds(10 << (2 * attempt));
  MutexLock lock(&mu_);
  while (!stopped_ && stopping_.WaitUntil(&mu_, deadline)) {
  }
  return stopped_;
}

}  // namespace batchd
