// SPDX-License-Identifier: Apache-2.0
//
// The way from gRPC's threads to the SessionManager: onto the event loop, and shut for good when
// the door goes.

#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "server/base/sync.h"
#include "server/io/event_loop.h"
#include "server/session/manager.h"

namespace batchd {

// Thread-safe. Held by the door and by all that it has posted; `loop` outlives the door's calls and
// `manager` outlives Shut().
class ManagerGate : public std::enable_shared_from_this<ManagerGate> {
 public:
  ManagerGate(EventLoop* loop, SessionManager* manager) : loop_(loop), manager_(manager) {}

  // Runs `fn` on the loop, after what was posted before; not at all once the gate is shut.
  void Post(std::function<void(SessionManager*)> fn) {
    loop_->Post([self = shared_from_this(), fn = std::move(fn)] {
      {
        MutexLock lock(&self->mu_);
        if (self->is_shut_) return;
        ++self->in_use_count_;
      }
      fn(self->manager_);
      self->Leave();
    });
  }

  // What Shut() waits for: a call of gRPC that is not over, a session that is not closed. Enter a
  // session inside `fn` only.
  void Enter() {
    MutexLock lock(&mu_);
    ++in_use_count_;
  }
  void Leave() {
    MutexLock lock(&mu_);
    if (--in_use_count_ == 0) idle_.NotifyAll();
  }

  // Waits until all have left; nothing reaches the manager afterwards. Not on the loop thread.
  void Shut() {
    MutexLock lock(&mu_);
    while (in_use_count_ > 0) idle_.Wait(&mu_);
    is_shut_ = true;
  }

 private:
  EventLoop* const loop_;
  SessionManager* const manager_;
  Mutex mu_;
  CondVar idle_;
  int in_use_count_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_shut_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace batchd
