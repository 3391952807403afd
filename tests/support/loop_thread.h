// SPDX-License-Identifier: Apache-2.0
//
// An event loop on a thread of its own, and a way for a test to run something there and wait for
// it.

#pragma once

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "server/io/event_loop.h"

namespace batchd {

class LoopThread {
 public:
  LoopThread() : loop_(EventLoop::Create().value()), thread_([this] { loop_->Run(); }) {}
  ~LoopThread() {
    loop_->Stop();
    thread_.join();
  }

  EventLoop* loop() { return loop_.get(); }

  // Returns when `fn` has run on the loop.
  void Run(std::function<void()> fn) {
    std::promise<void> done;
    loop_->Post([&] {
      fn();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  std::unique_ptr<EventLoop> loop_;
  std::thread thread_;
};

}  // namespace batchd
