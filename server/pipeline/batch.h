// SPDX-License-Identifier: Apache-2.0
//
// A Batch is one batch in the making. Its rows have their places in the slab before anything is
// read, so they may be finished in any order and by any thread; the row that is finished last
// writes the header and seals the batch.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/base/sync.h"
#include "server/memory/slab_layout.h"
#include "server/metrics/metrics.h"
#include "server/pipeline/plan.h"
#include "server/sampling/sampler.h"

namespace batchd {

struct Lane;  // work_queue.h

// What all batches of a session have in common. Immutable: thread-safe.
struct BatchPlan {
  std::shared_ptr<const PipelinePlan> pipeline;
  std::shared_ptr<const Sampler> sampler;
  SlabLayout layout;
  uint64_t seed = 0;
  OnBadSample on_bad_sample = OnBadSample::kFail;
  std::shared_ptr<const Metrics::Job> job;
};

// Why a batch could not be made: the fault of its lowest row that has one.
struct RowFailure {
  int64_t row = 0;
  int64_t ordinal = 0;
  absl::Status status;
};

// Reused for one address after the other. Begin, rows() and the results belong to the event loop;
// in between, threads call FinishRow and friends, each for its own rows.
class Batch {
 public:
  // `done` is called once per Begin, by the thread that finishes the last row. `plan` and the
  // slab live until then.
  Batch(const BatchPlan* plan, Lane* lane, uint8_t* slab, std::function<void(Batch*)> done);

  // Starts on the batch at `address`; the caller then hands it to the WorkQueue. A batch of no rows
  // is finished by this call.
  void Begin(const Address& address);

  // Rows that are not finished yet are no longer worth making. Thread-safe.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

  const BatchPlan& plan() const { return *plan_; }
  Lane* lane() const { return lane_; }
  uint8_t* slab() const { return slab_; }
  const Address& address() const { return address_; }
  const std::vector<SampleRow>& rows() const { return rows_; }

  // Each row ends with exactly one of these. Thread-safe. A row that fills the batch up becomes
  // kPad, whatever `status`.
  void FinishRow(int64_t row, int64_t sample_id, wire::RowStatus status);
  void FailRow(int64_t row, int64_t ordinal, absl::Status status);
  void DropRow();  // cancelled

  // After `done`:
  int64_t valid_rows() const { return valid_rows_.load(std::memory_order_relaxed); }
  // Status of each row, in order; the daemon's own copy, since the trainer can write to the slab.
  const std::vector<wire::RowStatus>& row_status() const { return row_status_; }
  // Nothing if every row was made.
  std::optional<RowFailure> failure() const;

 private:
  void EndRow();
  void Seal();

  const BatchPlan* const plan_;
  Lane* const lane_;
  uint8_t* const slab_;
  const std::function<void(Batch*)> done_;

  Address address_;
  std::vector<SampleRow> rows_;
  std::vector<wire::RowStatus> row_status_;
  std::atomic<bool> cancelled_{false};
  std::atomic<int64_t> remaining_{0};
  std::atomic<int64_t> valid_rows_{0};
  mutable Mutex mu_;
  std::optional<RowFailure> failure_ ABSL_GUARDED_BY(mu_);
};

}  // namespace batchd
