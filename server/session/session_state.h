// SPDX-License-Identifier: Apache-2.0
//
// The state of one session: its slots, leases and position. A pure state machine: events come in,
// the owner asks what to do next, and nothing here reads a clock, touches memory of a slab or knows
// a thread. A slot goes
//
//   free -> filling -> built -> ready -> leased -> free
//
// Planning takes a free slot for the next address. Batches are built in any order and announced in
// the order of their addresses; announcing makes them ready, TAKE leased, RELEASE free. There is no
// other back-pressure: no free slot, or `prefetch` batches ahead, no work.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/sampling/sampler.h"
#include "server/session/output.h"

namespace batchd {

struct SessionStateOptions {
  int32_t rank = 0;
  int32_t world_size = 1;
  int64_t num_samples = 1;
  Position start;
  int prefetch = 4;
  int64_t max_bad_count = -1;   // -1: no bound
  double max_bad_share = -1.0;  // -1: no bound
  bool single = false;          // one batch, and no more
};

// What has become of a batch in the making.
struct BuiltBatch {
  int64_t rows = 0;
  int64_t valid_rows = 0;
  // In row order, for the bounds on bad samples; borrowed for the call.
  const std::vector<wire::RowStatus>* row_status = nullptr;
  // Not OK: the batch could not be made. The fault, its sample's ordinal (-1: none) .
  absl::Status status;
  int64_t failed_ordinal = -1;
};

// Thread-compatible: the event loop owns it.
class SessionState {
 public:
  // `sampler` outlives the state. Requires a valid start (see CheckPosition).
  SessionState(const Sampler* sampler, const SessionStateOptions& options);

  // OK if `position` names a step or the end of an epoch. Errors: INVALID_ARGUMENT with the limits.
  static absl::Status CheckPosition(const Sampler& sampler, const Position& position);

  // New slots, all free. Slots are numbered through all segments.
  void AddSlots(int count);
  int slot_count() const { return static_cast<int>(slots_.size()); }

  // The next batch to make, and the slot to make it in; the slot is filling from then on. Nothing
  // if there is none to make now.
  struct Planned {
    int slot;
    Address address;
    bool operator==(const Planned&) const = default;
  };
  std::optional<Planned> PlanNext();
  // The epoch that PlanNext would plan in.
  int64_t planning_epoch() const { return cursor_.epoch; }

  // A batch in the making has ended (also one of an older generation).
  void OnBuilt(int slot, const BuiltBatch& built);

  // The next thing to tell the client, in the order of addresses: a batch that is now ready, or a
  // failure, after which the session makes nothing until a Seek.
  struct Announcement {
    int slot = -1;  // -1: a failure
    uint64_t sequence = 0;
    uint32_t generation = 0;
    Address address;
    int64_t rows = 0;
    int64_t valid_rows = 0;
    bool last_in_epoch = false;
    // Of a failure:
    absl::Status status;
    int64_t ordinal = -1;
    Position next;
  };
  std::optional<Announcement> NextAnnouncement();

  // Client events. Errors: FAILED_PRECONDITION if slot and sequence do not fit, INVALID_ARGUMENT
  // for a generation that does not grow or a position that does not exist. The state is unchanged
  // then.
  absl::Status OnTake(int slot, uint64_t sequence);
  absl::Status OnRelease(int slot, uint64_t sequence);
  // Batches in the making become pointless; `stale` gets their slots, to be cancelled.
  absl::Status OnSeek(uint32_t generation, const Position& position, std::vector<int>* stale);

  // Plans nothing more.
  void Drain() { draining_ = true; }

  // The trainer holds so many slots that nothing can be made: it needs more of them.
  bool NeedsSlots() const;

  // Where the next announcement will be.
  Position next() const { return announce_; }
  int filling() const { return filling_; }
  int built() const { return built_; }
  int ready() const { return ready_; }
  int leased() const { return leased_; }
  int free() const { return slot_count() - filling_ - built_ - ready_ - leased_; }
  // Batches made and not taken: the urgency of the session is the lack of them.
  int ahead() const { return built_ + ready_; }

 private:
  enum class SlotStage { kFree, kFilling, kBuilt, kReady, kLeased };
  struct Slot {
    SlotStage stage = SlotStage::kFree;
    uint32_t generation = 0;
    uint64_t sequence = 0;  // of its last announcement
    Address address;
    int64_t rows = 0;
    int64_t valid_rows = 0;
    int bad_rows = 0;
    int leading_bad_rows = 0;   // before its first good row
    int longest_bad_rows = 0;   // one after the other
    int trailing_bad_rows = 0;  // after its last good row
    absl::Status status;
    int64_t failed_ordinal = -1;
  };

  void Free(Slot* slot);
  void Halt();
  Position After(const Position& position) const;
  absl::Status CheckBadRows(const Slot& slot);
  Announcement Fail(const Slot& slot, absl::Status status);

  const Sampler* const sampler_;
  const SessionStateOptions options_;
  std::vector<Slot> slots_;
  std::deque<int> in_order_;  // slots of this generation, filling or built, by address
  Position cursor_;           // the next to plan
  Position announce_;         // the next to announce
  uint32_t generation_ = 0;
  uint64_t last_sequence_ = 0;
  int64_t planned_ = 0;
  bool halted_ = false;
  bool draining_ = false;
  int filling_ = 0, built_ = 0, ready_ = 0, leased_ = 0;
  int ready_now_ = 0;  // ready slots of this generation
  int64_t bad_in_epoch_ = 0;
  int64_t bad_in_a_row_ = 0;
};

}  // namespace batchd
