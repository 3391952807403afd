// SPDX-License-Identifier: Apache-2.0
//
// A budget is a hard limit on one kind of memory, in bytes. What does not fit is refused or waits;
// it is never exceeded. The sum of the budgets is checked against the cgroup when the daemon
// starts.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace batchd {

// Thread-safe.
class Budget {
 public:
  // `name` for messages: "slabs". `watch` is told every change of what is in use, by the thread
  // that makes it.
  Budget(std::string name, int64_t limit_bytes, std::function<void(int64_t)> watch = nullptr)
      : name_(std::move(name)), limit_bytes_(limit_bytes), watch_(std::move(watch)) {}

  // Takes `size_bytes`, or nothing. Errors: RESOURCE_EXHAUSTED with the size, what is in use and
  // the limit; the caller adds the way out.
  absl::Status Take(int64_t size_bytes);
  bool TryTake(int64_t size_bytes);
  void Give(int64_t size_bytes);

  int64_t limit_bytes() const { return limit_bytes_; }
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  const std::string name_;
  const int64_t limit_bytes_;
  const std::function<void(int64_t)> watch_;
  std::atomic<int64_t> used_bytes_{0};
};

}  // namespace batchd
