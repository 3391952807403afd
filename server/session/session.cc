// SPDX-License-Identifier: Apache-2.0
#include "server/session/session.h"

#include <algorithm>
#include <utility>

#include "server/base/check.h"
#include "server/base/log.h"

namespace batchd {
namespace {

// Once a batch, not once a row: a counter is an atomic that scrapes read.
void CountRows(const Batch& batch, const Metrics::Job& job) {
  const auto& rows = batch.row_status();
  const auto add = [&](prometheus::Counter* counter, wire::RowStatus status) {
    const auto count = std::count(rows.begin(), rows.end(), status);
    if (count > 0) Add(counter, static_cast<double>(count));
  };
  add(job.samples_ok, wire::RowStatus::kOk);
  add(job.samples_skipped, wire::RowStatus::kSkipped);
  add(job.samples_substituted, wire::RowStatus::kSubstituted);
}

}  // namespace

Session::Session(SessionId id, OpenRequest request, std::unique_ptr<SessionParts> parts,
                 SessionOutput* output, const SessionContext& context, std::function<void()> ended)
    : id_(id),
      request_(std::move(request)),
      parts_(std::move(parts)),
      output_(output),
      context_(context),
      ended_(std::move(ended)),
      state_(parts_->plan.sampler.get(), parts_->state_options) {
  context_.queue->AddLane(&lane_);
}

Session::~Session() {
  BATCHD_CHECK(state_.filling() == 0);
  context_.queue->RemoveLane(&lane_);
  Add(context_.metrics->slabs_free, -gauge_free_);
  Add(context_.metrics->slabs_filling, -gauge_filling_);
  Add(context_.metrics->slabs_ready, -gauge_ready_);
  Add(context_.metrics->slabs_leased, -gauge_leased_);
  // Unmapping takes milliseconds, which the loop does not have.
  auto segments = std::make_shared<std::vector<std::unique_ptr<Segment>>>(std::move(segments_));
  context_.control->Post([segments] { segments->clear(); });
}

void Session::Start() {
  parts_->info.session_id = id_;
  log::Info("session opened",
            {{"session_id", id_},
             {"job", request_.job},
             {"rank", request_.rank},
             {"world_size", request_.world_size},
             {"transport", request_.transport == TransportKind::kShm ? "shm" : "grpc"},
             {"source", parts_->info.source_name},
             {"samples", parts_->info.num_samples},
             {"global_batch_size", request_.global_batch_size},
             {"epoch", request_.start.epoch},
             {"step", request_.start.step},
             {"client", request_.client_version}});
  output_->OnOpened(parts_->info);
  if (closed()) return;
  AddSegment(std::move(parts_->segment));
  Pump();
}

void Session::AddSegment(std::unique_ptr<Segment> segment) {
  const int index = static_cast<int>(segments_.size());
  const int first = static_cast<int>(slots_.size());
  segment_first_slot_.push_back(first);
  for (int i = 0; i < segment->slot_count(); ++i) {
    const int slot = first + i;
    // The callback comes from whichever thread ends the batch's last row.
    slots_.push_back(
        {index, i,
         std::make_unique<Batch>(&parts_->plan, &lane_, segment->slab(i), [this, slot](Batch*) {
           context_.loop->Post([this, slot] { OnBatchDone(slot); });
         })});
  }
  state_.AddSlots(segment->slot_count());
  segments_.push_back(std::move(segment));
  output_->OnSegment(index, *segments_.back());
}

void Session::Pump() {
  if (closed() || pumping_) return;
  pumping_ = true;
  Announce();
  if (!closed()) Plan();
  if (!closed()) GrowIfNeeded();
  pumping_ = false;
  UpdateGauges();
}

void Session::Announce() {
  while (!closed()) {
    const std::optional<SessionState::Announcement> next = state_.NextAnnouncement();
    if (!next.has_value()) return;
    if (next->slot < 0) {
      AnnounceFailure(*next);
      continue;
    }
    const Slot& slot = slots_[next->slot];
    CountRows(*slot.batch, *parts_->plan.job);
    output_->OnReady({.ref = {slot.segment, slot.slot, next->sequence},
                      .generation = next->generation,
                      .address = next->address,
                      .rows = next->rows,
                      .valid_rows = next->valid_rows,
                      .last_in_epoch = next->last_in_epoch,
                      .slab = slot.batch->slab(),
                      .size_bytes = parts_->plan.layout.used_size_bytes()});
  }
}

void Session::AnnounceFailure(const SessionState::Announcement& announcement) {
  BatchFailure failure{.generation = announcement.generation,
                       .address = announcement.address,
                       .status = announcement.status,
                       .ordinal = announcement.ordinal,
                       .sample_name = "",
                       .next = announcement.next};
  if (failure.ordinal >= 0) {
    failure.sample_name = dataset().NameOf(failure.ordinal);
    failure.status = Annotate(failure.status, failure.sample_name);
  }
  log::Warn("batch failed", {{"session_id", id_},
                             {"epoch", failure.address.epoch},
                             {"step", failure.address.step},
                             {"error", std::string(failure.status.message())}});
  output_->OnFailure(failure);
}

void Session::Plan() {
  const Sampler& sampler = *parts_->plan.sampler;
  for (;;) {
    const int64_t epoch = state_.planning_epoch();
    if (!sampler.IsPrepared(epoch)) {
      if (preparing_epoch_) return;
      preparing_epoch_ = true;
      context_.control->Post([this, epoch] {
        parts_->plan.sampler->PrepareEpoch(epoch);
        context_.loop->Post([this] {
          preparing_epoch_ = false;
          Pump();
          EndIfIdle();
        });
      });
      return;
    }
    const std::optional<SessionState::Planned> planned = state_.PlanNext();
    if (!planned.has_value()) break;
    Batch* batch = slots_[planned->slot].batch.get();
    batch->Begin(planned->address);
    if (!batch->rows().empty()) context_.queue->AddBatch(batch);
  }
  context_.queue->SetBatchesAhead(&lane_, state_.ahead());
}

void Session::OnBatchDone(int index) {
  Batch* batch = slots_[index].batch.get();
  BuiltBatch built{.rows = static_cast<int64_t>(batch->rows().size()),
                   .valid_rows = batch->valid_rows(),
                   .row_status = &batch->row_status(),
                   .status = absl::OkStatus(),
                   .failed_ordinal = -1};
  if (const std::optional<RowFailure> failure = batch->failure(); failure.has_value()) {
    built.status = failure->status;
    built.failed_ordinal = failure->ordinal;
  }
  state_.OnBuilt(index, built);
  Pump();
  EndIfIdle();
}

int Session::SlotIndex(const SlotRef& ref) const {
  if (ref.segment < 0 || ref.segment >= static_cast<int>(segments_.size())) return -1;
  if (ref.slot < 0 || ref.slot >= segments_[ref.segment]->slot_count()) return -1;
  return segment_first_slot_[ref.segment] + ref.slot;
}

void Session::Take(const SlotRef& ref, Duration waited, bool was_ready) {
  if (closed()) return;
  const absl::Status status = state_.OnTake(SlotIndex(ref), ref.sequence);
  if (!status.ok()) return Fail(status);
  ++batches_taken_;
  if (was_ready) ++batches_taken_ready_;
  const Metrics::Job& job = *parts_->plan.job;
  Add(job.requests);
  if (was_ready) Add(job.requests_ready);
  Add(request_.transport == TransportKind::kShm ? job.batches_shm : job.batches_grpc);
  Observe(job.client_wait, ToSeconds(waited));
  Pump();
}

void Session::Release(const SlotRef& ref) {
  if (closed()) return;
  const absl::Status status = state_.OnRelease(SlotIndex(ref), ref.sequence);
  if (!status.ok()) return Fail(status);
  told_exhausted_ = false;
  Pump();
}

void Session::Seek(uint32_t generation, const Position& position) {
  if (closed()) return;
  stale_.clear();
  const absl::Status status = state_.OnSeek(generation, position, &stale_);
  if (!status.ok()) return Fail(status);
  for (const int slot : stale_) slots_[slot].batch->Cancel();
  told_exhausted_ = false;  // who begins anew waits anew, and has to hear why
  Pump();
}

// More slots than before, at most doubling: a trainer that keeps many batches gets there in few
// segments, and so with few file descriptors.
void Session::GrowIfNeeded() {
  if (growing_ || told_exhausted_ || !state_.NeedsSlots()) return;
  growing_ = true;
  const int64_t slab_size = parts_->plan.layout.slab_size_bytes();
  int count = state_.slot_count();
  context_.control->Post([this, count, slab_size]() mutable {
    absl::StatusOr<std::unique_ptr<Segment>> segment = absl::UnknownError("");
    do {
      segment = Segment::Create(count, slab_size, context_.slab_budget);
      count /= 2;
    } while (!segment.ok() && count > 0);
    auto shared = std::make_shared<absl::StatusOr<std::unique_ptr<Segment>>>(std::move(segment));
    context_.loop->Post([this, shared] { OnGrown(std::move(*shared)); });
  });
}

void Session::OnGrown(absl::StatusOr<std::unique_ptr<Segment>> segment) {
  growing_ = false;
  if (closed()) {
    EndIfIdle();
    return;
  }
  if (segment.ok()) {
    AddSegment(std::move(segment).value());
    Pump();
    return;
  }
  if (!state_.NeedsSlots()) {
    Pump();
    return;
  }
  told_exhausted_ = true;
  ExhaustedInfo info{.held_slots = state_.leased(),
                     .slab_size_bytes = parts_->plan.layout.slab_size_bytes(),
                     .budget_bytes = context_.slab_budget->limit_bytes(),
                     .used_bytes = context_.slab_budget->used_bytes(),
                     .message = ""};
  info.message = fmt::format(
      "the trainer holds all {} batches of slab_size_bytes={} and there is no memory for more: {}; "
      "drop arrays or call release() earlier, copy() what must stay, or start the daemon with a "
      "larger --memory",
      info.held_slots, info.slab_size_bytes, std::string(segment.status().message()));
  output_->OnExhausted(info);
}

void Session::Fail(const absl::Status& status) {
  log::Warn("session failed", {{"session_id", id_}, {"error", std::string(status.message())}});
  SessionOutput* output = output_;
  Close();
  output->OnError(status);
}

void Session::Drain(int64_t deadline_milliseconds) {
  if (closed()) return;
  state_.Drain();
  output_->OnDraining(deadline_milliseconds);
}

void Session::Close() {
  if (closed()) return;
  output_ = nullptr;
  log::Info("session closed", {{"session_id", id_},
                               {"batches_taken", batches_taken_},
                               {"batches_ready_when_asked", batches_taken_ready_}});
  for (Slot& slot : slots_) slot.batch->Cancel();
  // Not from inside a call of this object: the caller may still be in Pump or Start.
  context_.loop->Post([this] { EndIfIdle(); });
}

void Session::EndIfIdle() {
  if (told_ended_ || !closed() || state_.filling() > 0 || growing_ || preparing_epoch_ ||
      pumping_) {
    return;
  }
  told_ended_ = true;
  ended_();
}

void Session::UpdateGauges() {
  const auto update = [](prometheus::Gauge* gauge, int* last, int now) {
    if (*last == now) return;
    Add(gauge, now - *last);
    *last = now;
  };
  update(context_.metrics->slabs_free, &gauge_free_, state_.free());
  update(context_.metrics->slabs_filling, &gauge_filling_, state_.filling());
  update(context_.metrics->slabs_ready, &gauge_ready_, state_.built() + state_.ready());
  update(context_.metrics->slabs_leased, &gauge_leased_, state_.leased());
}

SessionStatusInfo Session::Status() const {
  return {.session_id = id_,
          .job = request_.job,
          .rank = static_cast<int32_t>(request_.rank),
          .world_size = static_cast<int32_t>(request_.world_size),
          .transport = request_.transport,
          .next = state_.next(),
          .filling_slots = state_.filling(),
          .ready_slots = state_.built() + state_.ready(),
          .leased_slots = state_.leased(),
          .batches_taken = batches_taken_,
          .ready_share = batches_taken_ > 0 ? static_cast<double>(batches_taken_ready_) /
                                                  static_cast<double>(batches_taken_)
                                            : 0.0,
          .source_name = parts_->info.source_name};
}

}  // namespace batchd
