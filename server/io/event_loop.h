// SPDX-License-Identifier: Apache-2.0
//
// The event loop: one thread that owns the data sockets, timers, planning and in-order hand-off. It
// never decodes and never blocks. A thin wrapper of libuv.

#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/base/clock.h"

namespace batchd {

class EventLoop {
 public:
  // Errors: RESOURCE_EXHAUSTED if the kernel gives no descriptors.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  virtual ~EventLoop() = default;

  // Runs `fn` on the loop thread, after what was posted before. Thread-safe; may be called before
  // Run and after Stop (then it is dropped when the loop is destroyed, without running).
  virtual void Post(std::function<void()> fn) = 0;

  // Serves until Stop. The calling thread becomes the loop thread.
  virtual void Run() = 0;
  // Thread-safe.
  virtual void Stop() = 0;

  // Whether the caller is the loop thread (true also before Run).
  virtual bool IsLoopThread() const = 0;

  // Below: loop thread only. Destroying the handle ends the watch; that is safe inside its
  // callback.

  // Calls `fn` once after `delay`.
  class Timer {
   public:
    virtual ~Timer() = default;
  };
  virtual std::unique_ptr<Timer> After(Duration delay, std::function<void()> fn) = 0;

  // Calls `fn(readable, writable)` while the descriptor, which the caller keeps open, is ready.
  class Watch {
   public:
    virtual ~Watch() = default;
    virtual void SetWanted(bool readable, bool writable) = 0;
  };
  virtual std::unique_ptr<Watch> WatchFd(int fd, std::function<void(bool, bool)> fn) = 0;

  // Calls `fn` on the loop when the signal arrives.
  virtual std::unique_ptr<Watch> WatchSignal(int signal_number, std::function<void()> fn) = 0;
};

}  // namespace batchd
