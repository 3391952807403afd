// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/probes.h"

#include "fmt/format.h"

namespace batchd {

Probes::Probes(const Metrics* metrics, Clock* clock)
    : metrics_(metrics),
      clock_(clock),
      start_(clock->Now()),
      last_beat_(start_.time_since_epoch().count()) {}

void Probes::Beat() { last_beat_.store(clock_->Now().time_since_epoch().count()); }

void Probes::SetReady(bool ready) { ready_.store(ready); }

void Probes::SetSessions(std::vector<SessionStatusInfo> sessions) {
  MutexLock lock(&mu_);
  sessions_ = std::move(sessions);
}

std::map<std::string, std::function<HttpReply()>> Probes::Routes() {
  return {{"/metrics",
           [this] {
             return HttpReply{200, "text/plain; version=0.0.4; charset=utf-8", metrics_->Scrape()};
           }},
          {"/livez", [this] { return Live(); }},
          {"/readyz", [this] { return Ready(); }},
          {"/", [this] { return Page(); }}};
}

HttpReply Probes::Live() const {
  const TimePoint beat{TimePoint::duration(last_beat_.load())};
  const Duration silent = clock_->Now() - beat;
  if (silent <= kLoopStuckAfter) return {.body = "ok\n"};
  return {.status = 503,
          .body = fmt::format("the event loop has not run for {:.0f} s\n", ToSeconds(silent))};
}

HttpReply Probes::Ready() const {
  if (ready_.load()) return {.body = "ok\n"};
  return {.status = 503, .body = "no new sessions: starting or draining\n"};
}

HttpReply Probes::Page() const {
  HttpReply reply;
  reply.body =
      fmt::format("batchd {}  up {:.0f} s  {}\n\n", BATCHD_VERSION,
                  ToSeconds(clock_->Now() - start_), ready_.load() ? "ready" : "not ready");
  MutexLock lock(&mu_);
  reply.body += fmt::format("{} sessions\n", sessions_.size());
  for (const SessionStatusInfo& s : sessions_) {
    reply.body += fmt::format(
        "  {}  job={}  rank {}/{}  {}  epoch {} step {}  ready {}  leased {}  taken {}  "
        "ready when asked {:.0f} %  {}\n",
        s.session_id, s.job, s.rank, s.world_size,
        s.transport == TransportKind::kShm ? "shm" : "grpc", s.next.epoch, s.next.step,
        s.ready_slots, s.leased_slots, s.batches_taken, 100 * s.ready_share, s.source_name);
  }
  reply.body += "\nalso: /metrics /livez /readyz\n";
  return reply;
}

}  // namespace batchd
