// SPDX-License-Identifier: Apache-2.0
#include "server/base/clock.h"

#include <ctime>

namespace batchd {
namespace {

class RealClock : public Clock {
 public:
  TimePoint Now() override { return std::chrono::steady_clock::now(); }
};

}  // namespace

Clock* Clock::Real() {
  static RealClock clock;
  return &clock;
}

int64_t FileTimeNs() {
  timespec ts{};
  clock_gettime(CLOCK_REALTIME, &ts);
  return ts.tv_sec * int64_t{1'000'000'000} + ts.tv_nsec;
}

Duration ThreadCpuTime() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return std::chrono::seconds(ts.tv_sec) + Duration(ts.tv_nsec);
}

}  // namespace batchd
