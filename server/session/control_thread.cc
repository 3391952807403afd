// SPDX-License-Identifier: Apache-2.0
#include "server/session/control_thread.h"

#include <utility>

namespace batchd {

ControlThread::ControlThread() : thread_([this] { Run(); }) {}

ControlThread::~ControlThread() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    work_.NotifyOne();
  }
  thread_.join();
}

void ControlThread::Post(std::function<void()> fn) {
  MutexLock lock(&mu_);
  tasks_.push_back(std::move(fn));
  work_.NotifyOne();
}

void ControlThread::Run() {
  for (;;) {
    std::function<void()> task;
    {
      MutexLock lock(&mu_);
      while (tasks_.empty() && !stopped_) work_.Wait(&mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace batchd
