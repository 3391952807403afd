// SPDX-License-Identifier: Apache-2.0
//
// What the HTTP door answers: /metrics, /livez, /readyz and a page for people. It knows the daemon
// only by what the event loop writes into it, so that a stuck loop cannot stop a probe.

#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/base/clock.h"
#include "server/base/sync.h"
#include "server/metrics/http_server.h"
#include "server/metrics/metrics.h"
#include "server/session/manager.h"

namespace batchd {

// A loop that has not run for so long is stuck, not busy: it never blocks.
inline constexpr Duration kLoopStuckAfter = std::chrono::seconds(10);

// Thread-safe.
class Probes {
 public:
  // Both outlive the probes.
  Probes(const Metrics* metrics, Clock* clock);

  // The loop is alive; called on it once a second.
  void Beat();
  void SetReady(bool ready);
  // What the page shows; called on the loop.
  void SetSessions(std::vector<SessionStatusInfo> sessions);

  // The handlers keep using this object.
  std::map<std::string, std::function<HttpReply()>> Routes();

 private:
  HttpReply Live() const;
  HttpReply Ready() const;
  HttpReply Page() const;

  const Metrics* const metrics_;
  Clock* const clock_;
  const TimePoint start_;
  std::atomic<TimePoint::rep> last_beat_;
  std::atomic<bool> ready_{false};
  mutable Mutex mu_;
  std::vector<SessionStatusInfo> sessions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace batchd
