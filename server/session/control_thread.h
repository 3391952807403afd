// SPDX-License-Identifier: Apache-2.0
//
// The control thread does what may take long and is not per sample: listing and indexing folders,
// O(N) orders, making and freeing segments. One thing after the other, in order.

#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "server/base/sync.h"

namespace batchd {

// Thread-safe. Destroying it runs what is queued, then joins.
class ControlThread {
 public:
  ControlThread();
  ~ControlThread();
  void Post(std::function<void()> fn);

 private:
  void Run();

  Mutex mu_;
  CondVar work_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace batchd
