// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/cpu_pool.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <span>
#include <utility>

#include "server/base/log.h"

namespace batchd {
namespace {

void RunBelowTheTrainer(int nice) {
  const auto thread_id = static_cast<id_t>(syscall(SYS_gettid));
  const sched_param no_priority{};
  if (setpriority(PRIO_PROCESS, thread_id, nice) != 0 ||
      sched_setscheduler(0, SCHED_BATCH, &no_priority) != 0) {
    log::Warn("cannot lower the priority of a cpu thread", {{"error", ErrnoText("sched", errno)}});
  }
}

}  // namespace

CpuPool::CpuPool(const CpuPoolOptions& options, WorkQueue* queue, Readers* readers,
                 Metrics* metrics)
    : options_(options), queue_(queue), readers_(readers), metrics_(metrics) {
  for (int i = 0; i < options_.thread_count; ++i) threads_.emplace_back([this] { Run(); });
}

CpuPool::~CpuPool() {
  queue_->Stop();
  for (std::thread& thread : threads_) thread.join();
}

void CpuPool::Run() {
  if (options_.nice != 0) RunBelowTheTrainer(options_.nice);
  RowMaker maker(options_.scratch_gate, readers_, metrics_, options_.isolation);
  RowTask task;
  while (queue_->Pop(&task)) maker.Make(std::move(task));
}

RowMaker::RowMaker(ByteGate* scratch_gate, Readers* readers, Metrics* metrics,
                   DecodeIsolation* isolation)
    : readers_(readers), metrics_(metrics), worker_(isolation) {
  worker_.scratch_gate = scratch_gate;
}

void RowMaker::Make(RowTask task) {
  Batch* batch = task.batch;
  for (;;) {
    if (batch->cancelled()) {
      batch->DropRow();
      return;
    }
    absl::Status status;
    switch (Try(&task, &status)) {
      case Outcome::kHandedOver:
        return;
      case Outcome::kMade: {
        Add(metrics_->samples_decoded);
        batch->FinishRow(
            task.row, task.ordinal,
            task.substitute >= 0 ? wire::RowStatus::kSubstituted : wire::RowStatus::kOk);
        return;
      }
      case Outcome::kFailed:
        if (NextSubstitute(&task, status)) continue;
        EndBadRow(&task, status);
        return;
    }
  }
}

RowMaker::Outcome RowMaker::Try(RowTask* task, absl::Status* status) {
  Bytes bytes;
  if (task->batch->plan().pipeline->needs_bytes()) {
    absl::StatusOr<bool> in_memory = GetBytes(task, &bytes);
    if (!in_memory.ok()) {
      *status = in_memory.status();
      return Outcome::kFailed;
    }
    if (!*in_memory) {
      readers_->Submit(std::move(*task));
      return Outcome::kHandedOver;
    }
  }
  *status = MakeColumns(*task, bytes);
  task->fetched.reset();
  return status->ok() ? Outcome::kMade : Outcome::kFailed;
}

absl::StatusOr<bool> RowMaker::GetBytes(RowTask* task, Bytes* bytes) {
  if (task->fetched != nullptr) {
    if (!task->fetch_status.ok()) {
      task->fetched.reset();
      return task->fetch_status;
    }
    *bytes = task->fetched->bytes();
    return true;
  }
  const PipelinePlan& pipeline = *task->batch->plan().pipeline;
  pipeline.dataset().Locate(task->ordinal, &worker_.location);
  const auto inline_max =
      static_cast<size_t>(std::min<int64_t>(kInlineReadBytesMax, pipeline.encoded_bytes_max()));
  absl::StatusOr<TryReadResult> result =
      pipeline.dataset().source()->TryRead(worker_.location, inline_max, &worker_.encoded);
  // A fault that may pass is the readers' to try again.
  if (!result.ok() && absl::IsUnavailable(result.status())) return false;
  if (!result.ok()) {
    Add(metrics_->source_requests_failed);
    return result.status();
  }
  if (*result == TryReadResult::kWouldWait) return false;
  *bytes = worker_.encoded.bytes();
  Add(metrics_->source_requests_ok);
  Add(metrics_->source_bytes, static_cast<double>(bytes->size()));
  return true;
}

absl::Status RowMaker::MakeColumns(const RowTask& task, Bytes bytes) {
  const BatchPlan& plan = task.batch->plan();
  const SampleRow& row = task.batch->rows()[task.row];
  const DrawKey key{.seed = plan.seed,
                    .ordinal = static_cast<uint64_t>(task.ordinal),
                    .occurrence = row.occurrence,
                    .epoch = static_cast<uint32_t>(task.batch->address().epoch)};
  worker_.decode_time = worker_.transform_time = Duration(0);
  worker_.damaged_count = 0;
  std::array<uint8_t*, PipelinePlan::kColumnsMax> rows;
  const int count = plan.pipeline->column_count();
  for (int i = 0; i < count; ++i) {
    rows[static_cast<size_t>(i)] = plan.layout.row(task.batch->slab(), i, task.row);
  }
  BATCHD_RETURN_IF_ERROR(plan.pipeline->MakeRows(
      bytes, key, &worker_, std::span(rows).first(static_cast<size_t>(count))));
  if (worker_.damaged_count > 0) Add(metrics_->samples_damaged);
  if (plan.pipeline->needs_bytes()) {
    Observe(metrics_->stage_duration[static_cast<int>(Stage::kDecode)],
            ToSeconds(worker_.decode_time));
    Observe(metrics_->stage_duration[static_cast<int>(Stage::kTransform)],
            ToSeconds(worker_.transform_time));
  }
  return absl::OkStatus();
}

bool RowMaker::NextSubstitute(RowTask* task, const absl::Status& status) {
  const BatchPlan& plan = task->batch->plan();
  const std::optional<SampleReason> reason = SampleReasonOf(status);
  if (!reason.has_value() || plan.on_bad_sample != OnBadSample::kSubstitute) return false;
  const SampleRow& row = task->batch->rows()[task->row];
  if (task->substitute < 0) {
    task->own_fault = status;
    Add(plan.job->sample_errors[static_cast<int>(*reason)]);
  }
  if (++task->substitute == kSubstituteChainMax) return false;
  task->ordinal = SubstituteOrdinal(plan.seed, task->batch->address().epoch, row.ordinal,
                                    task->substitute, plan.pipeline->dataset().num_samples());
  task->fetched.reset();
  return true;
}

void RowMaker::EndBadRow(RowTask* task, const absl::Status& status) {
  Batch* batch = task->batch;
  const BatchPlan& plan = batch->plan();
  const SampleRow& row = batch->rows()[task->row];
  const std::optional<SampleReason> reason = SampleReasonOf(status);
  if (task->substitute == kSubstituteChainMax) {
    batch->FailRow(task->row, row.ordinal,
                   Annotate(task->own_fault, fmt::format("no good sample among {} substitutes",
                                                         kSubstituteChainMax)));
    return;
  }
  if (reason.has_value()) Add(plan.job->sample_errors[static_cast<int>(*reason)]);
  if (!reason.has_value() || plan.on_bad_sample != OnBadSample::kSkip) {
    batch->FailRow(task->row, task->ordinal, status);
    return;
  }
  for (int i = 0; i < plan.pipeline->column_count(); ++i) {
    plan.pipeline->column(i).MakeSkippedRow(plan.layout.row(batch->slab(), i, task->row));
  }
  batch->FinishRow(task->row, row.ordinal, wire::RowStatus::kSkipped);
}

}  // namespace batchd
