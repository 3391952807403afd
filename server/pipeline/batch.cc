// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/batch.h"

#include <utility>

#include "server/base/check.h"

namespace batchd {

Batch::Batch(const BatchPlan* plan, Lane* lane, uint8_t* slab, std::function<void(Batch*)> done)
    : plan_(plan), lane_(lane), slab_(slab), done_(std::move(done)) {}

void Batch::Begin(const Address& address) {
  address_ = address;
  plan_->sampler->Rows(address, &rows_);
  BATCHD_CHECK(static_cast<int64_t>(rows_.size()) <= plan_->layout.rows_max());
  row_status_.assign(rows_.size(), wire::RowStatus::kOk);
  cancelled_.store(false, std::memory_order_relaxed);
  valid_rows_.store(0, std::memory_order_relaxed);
  {
    MutexLock lock(&mu_);
    failure_.reset();
  }
  remaining_.store(static_cast<int64_t>(rows_.size()), std::memory_order_release);
  if (rows_.empty()) Seal();
}

void Batch::FinishRow(int64_t row, int64_t sample_id, wire::RowStatus status) {
  // A row that only fills up is never valid, and a bad sample in it has been counted before.
  if (rows_[row].is_pad) status = wire::RowStatus::kPad;
  plan_->layout.sample_ids(slab_)[row] = sample_id;
  plan_->layout.row_status(slab_)[row] = static_cast<uint8_t>(status);
  row_status_[row] = status;
  if (status == wire::RowStatus::kOk || status == wire::RowStatus::kSubstituted) {
    valid_rows_.fetch_add(1, std::memory_order_relaxed);
  }
  EndRow();
}

void Batch::FailRow(int64_t row, int64_t ordinal, absl::Status status) {
  {
    MutexLock lock(&mu_);
    // The lowest row's fault, not the first to happen: what is reported must not depend on luck.
    if (!failure_.has_value() || row < failure_->row) {
      failure_ = RowFailure{row, ordinal, std::move(status)};
    }
  }
  EndRow();
}

void Batch::DropRow() { EndRow(); }

void Batch::EndRow() {
  // acq_rel: the last row's thread sees what all others have written.
  if (remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1) Seal();
}

void Batch::Seal() {
  if (!cancelled()) {
    plan_->layout.WriteHeader(slab_, static_cast<int64_t>(rows_.size()), valid_rows(),
                              address_.epoch, address_.step, address_.rank, address_.world_size);
  }
  done_(this);
}

std::optional<RowFailure> Batch::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace batchd
