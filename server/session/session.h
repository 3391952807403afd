// SPDX-License-Identifier: Apache-2.0
//
// One session at work: its state machine bound to memory, to the work queue and to its output. All
// of it lives on the event loop; only the batches in the making are touched by other threads.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "server/pipeline/work_queue.h"
#include "server/session/control_thread.h"
#include "server/session/opener.h"
#include "server/session/output.h"
#include "server/session/session_state.h"

namespace batchd {

// What all sessions of a daemon share. All outlive the sessions.
struct SessionContext {
  EventLoop* loop;
  ControlThread* control;
  WorkQueue* queue;
  Budget* slab_budget;
  Metrics* metrics;
};

class Session {
 public:
  // `ended` is called on the loop, once, when the session has been closed and its last batch in the
  // making is done; it may destroy the session.
  Session(SessionId id, OpenRequest request, std::unique_ptr<SessionParts> parts,
          SessionOutput* output, const SessionContext& context, std::function<void()> ended);
  ~Session();

  // Tells the output that it is open and starts to make batches.
  void Start();

  // Client events; after an error, which has gone to the output, the session is closed.
  void Take(const SlotRef& ref, Duration waited, bool was_ready);
  void Release(const SlotRef& ref);
  void Seek(uint32_t generation, const Position& position);

  void Drain(int64_t deadline_milliseconds);
  // The output is not called any more.
  void Close();

  bool closed() const { return output_ == nullptr; }
  // Whether the client has batches before it that it has not taken.
  bool has_ready() const { return state_.ready() > 0; }
  const Dataset& dataset() const { return parts_->plan.pipeline->dataset(); }
  SessionStatusInfo Status() const;

 private:
  struct Slot {
    int segment;
    int slot;  // in the segment
    std::unique_ptr<Batch> batch;
  };

  void AddSegment(std::unique_ptr<Segment> segment);
  // Does all that can be done now: announces, plans, asks for memory.
  void Pump();
  void Plan();
  void Announce();
  void AnnounceFailure(const SessionState::Announcement& announcement);
  void GrowIfNeeded();
  void OnGrown(absl::StatusOr<std::unique_ptr<Segment>> segment);
  void OnBatchDone(int slot);
  // The state's number of a slot; -1 if there is none.
  int SlotIndex(const SlotRef& ref) const;
  void Fail(const absl::Status& status);
  void UpdateGauges();
  void EndIfIdle();

  const SessionId id_;
  const OpenRequest request_;
  const std::unique_ptr<SessionParts> parts_;
  SessionOutput* output_;
  const SessionContext context_;
  const std::function<void()> ended_;
  SessionState state_;
  Lane lane_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<int> segment_first_slot_;
  std::vector<Slot> slots_;
  std::vector<int> stale_;
  bool preparing_epoch_ = false;
  bool growing_ = false;
  bool told_exhausted_ = false;
  bool pumping_ = false;
  bool told_ended_ = false;
  int64_t batches_taken_ = 0;
  int64_t batches_taken_ready_ = 0;
  int gauge_free_ = 0, gauge_filling_ = 0, gauge_ready_ = 0, gauge_leased_ = 0;
};

}  // namespace batchd
