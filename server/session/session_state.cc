// SPDX-License-Identifier: Apache-2.0
#include "server/session/session_state.h"

#include <algorithm>
#include <cmath>

#include "server/base/check.h"
#include "server/base/status.h"

namespace batchd {
namespace {

// A session whose last samples, this many or all there are, were all bad has nothing to offer.
constexpr int64_t kBadInARowMax = 1000;

bool IsBad(wire::RowStatus status) {
  return status == wire::RowStatus::kSkipped || status == wire::RowStatus::kSubstituted;
}

}  // namespace

SessionState::SessionState(const Sampler* sampler, const SessionStateOptions& options)
    : sampler_(sampler), options_(options) {
  BATCHD_CHECK(CheckPosition(*sampler, options.start).ok());
  cursor_ = announce_ = options.start;
  if (cursor_.step == sampler_->steps(cursor_.epoch)) {
    cursor_ = announce_ = Position{cursor_.epoch + 1, 0};
  }
}

absl::Status SessionState::CheckPosition(const Sampler& sampler, const Position& position) {
  // One epoch is kept free, so that the end of the last one is a position too.
  if (position.epoch < 0 || position.epoch >= kEpochMax) {
    return FieldErr("start.epoch", "{} is out of range; allowed is from 0 to {}", position.epoch,
                    kEpochMax - 1);
  }
  const int64_t steps = sampler.steps(position.epoch);
  if (position.step < 0 || position.step > steps) {
    return FieldErr("start.step", "{} is out of range; epoch {} has {} steps", position.step,
                    position.epoch, steps);
  }
  return absl::OkStatus();
}

void SessionState::AddSlots(int count) { slots_.resize(slots_.size() + count); }

std::optional<SessionState::Planned> SessionState::PlanNext() {
  if (halted_ || draining_ || (options_.single && planned_ == 1)) return std::nullopt;
  const int in_making = static_cast<int>(in_order_.size());
  if (in_making + ready_now_ >= options_.prefetch) return std::nullopt;
  if (cursor_.epoch >= kEpochMax) return std::nullopt;
  const auto free_slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.stage == SlotStage::kFree;
  });
  if (free_slot == slots_.end()) return std::nullopt;

  const int index = static_cast<int>(free_slot - slots_.begin());
  free_slot->stage = SlotStage::kFilling;
  free_slot->generation = generation_;
  free_slot->address = {cursor_.epoch, cursor_.step, options_.rank, options_.world_size};
  ++filling_;
  ++planned_;
  in_order_.push_back(index);
  cursor_ = After(cursor_);
  return Planned{index, free_slot->address};
}

void SessionState::OnBuilt(int index, const BuiltBatch& built) {
  Slot& slot = slots_[index];
  BATCHD_CHECK(slot.stage == SlotStage::kFilling);
  --filling_;
  slot.stage = SlotStage::kBuilt;
  ++built_;
  if (slot.generation != generation_ || halted_) {
    Free(&slot);
    return;
  }
  slot.rows = built.rows;
  slot.valid_rows = built.valid_rows;
  slot.status = built.status;
  slot.failed_ordinal = built.failed_ordinal;
  slot.bad_rows = slot.leading_bad_rows = slot.longest_bad_rows = slot.trailing_bad_rows = 0;
  if (built.row_status == nullptr || !built.status.ok()) return;
  bool seen_good = false;
  for (const wire::RowStatus status : *built.row_status) {
    if (IsBad(status)) {
      ++slot.bad_rows;
      ++slot.trailing_bad_rows;
      slot.longest_bad_rows = std::max(slot.longest_bad_rows, slot.trailing_bad_rows);
      if (!seen_good) ++slot.leading_bad_rows;
    } else {
      seen_good = true;
      slot.trailing_bad_rows = 0;
    }
  }
}

std::optional<SessionState::Announcement> SessionState::NextAnnouncement() {
  if (in_order_.empty()) return std::nullopt;
  const int index = in_order_.front();
  Slot& slot = slots_[index];
  if (slot.stage != SlotStage::kBuilt) return std::nullopt;
  absl::Status status = slot.status.ok() ? CheckBadRows(slot) : slot.status;
  if (!status.ok()) return Fail(slot, std::move(status));

  in_order_.pop_front();
  --built_;
  ++ready_;
  ++ready_now_;
  slot.stage = SlotStage::kReady;
  slot.sequence = ++last_sequence_;
  Announcement announcement;
  announcement.slot = index;
  announcement.sequence = slot.sequence;
  announcement.generation = slot.generation;
  announcement.address = slot.address;
  announcement.rows = slot.rows;
  announcement.valid_rows = slot.valid_rows;
  announcement.last_in_epoch = slot.address.step + 1 == sampler_->steps(slot.address.epoch);
  announce_ = After(announce_);
  return announcement;
}

SessionState::Announcement SessionState::Fail(const Slot& slot, absl::Status status) {
  Announcement announcement;
  announcement.generation = slot.generation;
  announcement.address = slot.address;
  announcement.status = std::move(status);
  announcement.ordinal = slot.failed_ordinal;
  announcement.next = After({slot.address.epoch, slot.address.step});
  Halt();
  return announcement;
}

absl::Status SessionState::CheckBadRows(const Slot& slot) {
  if (slot.address.step == 0) bad_in_epoch_ = 0;
  bad_in_epoch_ += slot.bad_rows;
  // The longest run that has an end or a part here, however the batches are cut.
  const int64_t longest =
      std::max<int64_t>(bad_in_a_row_ + slot.leading_bad_rows, slot.longest_bad_rows);
  const bool all_bad = slot.bad_rows == slot.rows;  // so is a batch without rows: the run goes on
  bad_in_a_row_ = all_bad ? bad_in_a_row_ + slot.rows : slot.trailing_bad_rows;
  const int64_t limit = std::min(options_.num_samples, kBadInARowMax);
  if (slot.bad_rows > 0 && longest >= limit) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "no usable sample: the last {} samples were all bad; see "
               "batchd_sample_errors_total for the reasons, on_bad_sample=\"fail\" names the first",
               longest);
  }
  int64_t bound = options_.max_bad_count;
  if (options_.max_bad_share >= 0) {
    bound = static_cast<int64_t>(
        std::floor(options_.max_bad_share * static_cast<double>(options_.num_samples) /
                   static_cast<double>(options_.world_size)));
  }
  if (bound >= 0 && bad_in_epoch_ > bound) {
    return Err(absl::StatusCode::kResourceExhausted,
               "{} bad samples in epoch {}, max_bad_samples allows {}; mend the data or raise it",
               bad_in_epoch_, slot.address.epoch, bound);
  }
  return absl::OkStatus();
}

absl::Status SessionState::OnTake(int index, uint64_t sequence) {
  if (index < 0 || index >= slot_count() || slots_[index].stage != SlotStage::kReady ||
      slots_[index].sequence != sequence) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "TAKE of slot {} sequence {}: that batch is not ready", index, sequence);
  }
  slots_[index].stage = SlotStage::kLeased;
  --ready_;
  ++leased_;
  if (slots_[index].generation == generation_) --ready_now_;
  return absl::OkStatus();
}

absl::Status SessionState::OnRelease(int index, uint64_t sequence) {
  if (index < 0 || index >= slot_count() || slots_[index].sequence != sequence ||
      (slots_[index].stage != SlotStage::kReady && slots_[index].stage != SlotStage::kLeased)) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "RELEASE of slot {} sequence {}: that batch is not held", index, sequence);
  }
  Free(&slots_[index]);
  return absl::OkStatus();
}

absl::Status SessionState::OnSeek(uint32_t generation, const Position& position,
                                  std::vector<int>* stale) {
  if (generation <= generation_) {
    return FieldErr("seek.generation", "{} is not above {}", generation, generation_);
  }
  BATCHD_RETURN_IF_ERROR(CheckPosition(*sampler_, position));
  Halt();
  for (int i = 0; i < slot_count(); ++i) {
    if (slots_[i].stage == SlotStage::kFilling) stale->push_back(i);
  }
  halted_ = false;
  generation_ = generation;
  ready_now_ = 0;
  bad_in_epoch_ = bad_in_a_row_ = 0;
  cursor_ = announce_ = position;
  if (position.step == sampler_->steps(position.epoch)) {
    cursor_ = announce_ = Position{position.epoch + 1, 0};
  }
  return absl::OkStatus();
}

// Gives up what is planned: built slots become free now, filling ones when they end.
void SessionState::Halt() {
  halted_ = true;
  for (const int index : in_order_) {
    if (slots_[index].stage == SlotStage::kBuilt) Free(&slots_[index]);
  }
  in_order_.clear();
}

void SessionState::Free(Slot* slot) {
  switch (slot->stage) {
    case SlotStage::kBuilt:
      --built_;
      break;
    case SlotStage::kReady:
      --ready_;
      if (slot->generation == generation_) --ready_now_;
      break;
    case SlotStage::kLeased:
      --leased_;
      break;
    case SlotStage::kFree:
    case SlotStage::kFilling:
      BATCHD_CHECK(false);
  }
  slot->stage = SlotStage::kFree;
  slot->status = absl::OkStatus();
}

bool SessionState::NeedsSlots() const {
  if (halted_ || draining_ || options_.single) return false;
  return free() == 0 && filling_ == 0 && built_ == 0 && ready_now_ == 0;
}

Position SessionState::After(const Position& position) const {
  if (position.step + 1 < sampler_->steps(position.epoch)) {
    return {position.epoch, position.step + 1};
  }
  return {position.epoch + 1, 0};
}

}  // namespace batchd
