// SPDX-License-Identifier: Apache-2.0
//
// The only place where time is read. Code that waits or measures takes a Clock, so that its tests
// move time by hand and never sleep.

#pragma once

#include <chrono>
#include <cstdint>

namespace batchd {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::nanoseconds;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() = 0;

  // The machine's monotonic clock; lives for ever.
  static Clock* Real();
};

// Nanoseconds since 1970 of the clock that files are stamped with. Only for comparing with such
// stamps.
int64_t FileTimeNs();

// CPU time of the calling thread.
Duration ThreadCpuTime();

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace batchd
