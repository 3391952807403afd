// SPDX-License-Identifier: Apache-2.0
#include "server/session/manager.h"

#include <atomic>
#include <map>
#include <utility>

#include "server/base/check.h"
#include "server/base/log.h"
#include "server/pipeline/cpu_pool.h"
#include "server/session/control_thread.h"
#include "server/session/opener.h"
#include "server/session/session.h"

namespace batchd {
namespace {

constexpr size_t kSampleNamesMax = 4096;

absl::Status Draining() {
  return absl::UnavailableError("the daemon is draining; connect again when the next one is up");
}

std::function<void(int64_t)> Into(prometheus::Gauge* gauge) {
  return [gauge](int64_t change) { Add(gauge, static_cast<double>(change)); };
}

// A session, or one that is being opened (`session` is null then; a close in the meantime leaves
// `output` null).
struct Entry {
  SessionOutput* output = nullptr;
  std::unique_ptr<Session> session;
  // What a client that does not wait for Opened has asked for since.
  std::optional<std::pair<uint32_t, Position>> seek;
};

class Manager : public SessionManager {
 public:
  Manager(const ManagerOptions& options, EventLoop* loop, Metrics* metrics)
      : options_(options),
        loop_(loop),
        metrics_(metrics),
        slab_budget_("slabs", options.slab_budget_bytes, Into(metrics->memory_slabs_used)),
        encoded_budget_("encoded bytes in flight", options.encoded_budget_bytes,
                        Into(metrics->memory_encoded_used)),
        scratch_budget_("decode scratch", options.scratch_budget_bytes,
                        Into(metrics->memory_scratch_used)),
        scratch_gate_(&scratch_budget_),
        opener_(options_, &slab_budget_, metrics),
        readers_(options.reader_threads, &encoded_budget_, &queue_, metrics),
        pool_({options.cpu_threads, options.nice, &scratch_gate_, options.isolation}, &queue_,
              &readers_, metrics) {
    Set(metrics_->cpu_threads, options.cpu_threads);
    Set(metrics_->memory_slabs_budget, static_cast<double>(options.slab_budget_bytes));
    Set(metrics_->memory_encoded_budget, static_cast<double>(options.encoded_budget_bytes));
    Set(metrics_->memory_scratch_budget, static_cast<double>(options.scratch_budget_bytes));
  }

  // The loop must still be there to end the batches in the making: the owner closes all sessions
  // and runs the loop until session_count() is 0 before it destroys the manager.
  ~Manager() override { BATCHD_CHECK(entries_.empty()); }

  SessionId Open(OpenRequest request, SessionOutput* output) override;
  void Describe(OpenRequest request, std::function<void(absl::StatusOr<OpenedInfo>)> done) override;
  void Take(SessionId id, const SlotRef& ref, Duration waited, bool was_ready) override {
    if (Session* session = Find(id)) session->Take(ref, waited, was_ready);
    CheckDrained();
  }
  void Release(SessionId id, const SlotRef& ref) override {
    if (Session* session = Find(id)) session->Release(ref);
    CheckDrained();
  }
  void Seek(SessionId id, uint32_t generation, const Position& position) override;
  absl::StatusOr<std::vector<std::string>> SampleNames(
      SessionId id, const std::vector<int64_t>& ordinals) override;
  absl::StatusOr<std::vector<std::string>> ClassNames(SessionId id, int64_t first,
                                                      size_t bytes_max) override;
  void Close(SessionId id) override;
  void Drain(Duration timeout, std::function<void()> drained) override;
  bool draining() const override { return draining_; }
  std::vector<SessionStatusInfo> Sessions() const override;
  int session_count() const override { return static_cast<int>(entries_.size()); }
  const Budget& slab_budget() const override { return slab_budget_; }
  void SetSessionCountListener(std::function<void(int)> fn) override { listener_ = std::move(fn); }

 private:
  Session* Find(SessionId id) const {
    const auto it = entries_.find(id);
    return it == entries_.end() ? nullptr : it->second.session.get();
  }
  void OnOpened(SessionId id, OpenRequest request,
                absl::StatusOr<std::unique_ptr<SessionParts>> parts);
  void Erase(SessionId id);
  void CountChanged();
  void CheckDrained();

  const ManagerOptions options_;
  EventLoop* const loop_;
  Metrics* const metrics_;
  Budget slab_budget_;
  Budget encoded_budget_;
  Budget scratch_budget_;
  WaitingBudget scratch_gate_;
  WorkQueue queue_;
  Opener opener_;  // control thread only
  Readers readers_;
  CpuPool pool_;  // destroyed before readers_ and queue_: its threads use both
  std::map<SessionId, Entry> entries_;
  SessionId last_id_ = 0;
  bool draining_ = false;
  std::function<void()> drained_;
  std::unique_ptr<EventLoop::Timer> drain_timer_;
  std::function<void(int)> listener_;
  ControlThread control_;  // destroyed first: what it runs uses all of the above
};

SessionId Manager::Open(OpenRequest request, SessionOutput* output) {
  BATCHD_CHECK(loop_->IsLoopThread());
  const SessionId id = ++last_id_;
  entries_[id].output = output;
  CountChanged();
  auto shared = std::make_shared<OpenRequest>(std::move(request));
  absl::Status refused;
  if (draining_) {
    refused = Draining();
  } else if (session_count() > kSessionsMax) {
    refused = Err(absl::StatusCode::kResourceExhausted,
                  "{} sessions are open, the most there can be", kSessionsMax);
  }
  if (!refused.ok()) {
    // Later, as for every other refusal: the caller does not have the id yet.
    loop_->Post([this, id, shared, refused] { OnOpened(id, std::move(*shared), refused); });
    return id;
  }
  control_.Post([this, id, shared] {
    auto parts = std::make_shared<absl::StatusOr<std::unique_ptr<SessionParts>>>(
        opener_.Open(*shared, /*with_memory=*/true));
    loop_->Post([this, id, shared, parts] { OnOpened(id, std::move(*shared), std::move(*parts)); });
  });
  return id;
}

void Manager::OnOpened(SessionId id, OpenRequest request,
                       absl::StatusOr<std::unique_ptr<SessionParts>> parts) {
  Entry& entry = entries_.at(id);
  SessionOutput* output = std::exchange(entry.output, nullptr);
  if (output == nullptr) {  // closed while it was being opened
    Erase(id);
    return;
  }
  if (draining_) parts = Draining();
  if (!parts.ok()) {
    log::Warn("open refused", {{"session_id", id},
                               {"job", request.job},
                               {"error", std::string(parts.status().message())}});
    Erase(id);
    output->OnError(parts.status());
    return;
  }
  entry.session = std::make_unique<Session>(
      id, std::move(request), std::move(parts).value(), output,
      SessionContext{loop_, &control_, &queue_, &slab_budget_, metrics_},
      // Deferred: the session is in the middle of a call when it says that it has ended.
      [this, id] { loop_->Post([this, id] { Erase(id); }); });
  entry.session->Start();
  if (entry.seek.has_value()) entry.session->Seek(entry.seek->first, entry.seek->second);
}

void Manager::Seek(SessionId id, uint32_t generation, const Position& position) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  if (it->second.session != nullptr) {
    it->second.session->Seek(generation, position);
  } else {
    it->second.seek = {generation, position};
  }
}

void Manager::Describe(OpenRequest request, std::function<void(absl::StatusOr<OpenedInfo>)> done) {
  auto shared = std::make_shared<OpenRequest>(std::move(request));
  control_.Post([this, shared, done = std::move(done)] {
    absl::StatusOr<std::unique_ptr<SessionParts>> parts =
        opener_.Open(*shared, /*with_memory=*/false);
    auto info = std::make_shared<absl::StatusOr<OpenedInfo>>();
    if (parts.ok()) {
      *info = (*parts)->info;
    } else {
      *info = parts.status();  // never OK: a StatusOr made of that logs an error
    }
    loop_->Post([info, done] { done(*info); });
  });
}

absl::StatusOr<std::vector<std::string>> Manager::SampleNames(
    SessionId id, const std::vector<int64_t>& ordinals) {
  Session* session = Find(id);
  if (session == nullptr) return absl::NotFoundError("the session is not open");
  if (ordinals.size() > kSampleNamesMax) {
    return Err(absl::StatusCode::kInvalidArgument, "{} ordinals at once; ask for at most {}",
               ordinals.size(), kSampleNamesMax);
  }
  std::vector<std::string> names;
  for (const int64_t ordinal : ordinals) {
    if (ordinal < 0 || ordinal >= session->dataset().num_samples()) {
      return Err(absl::StatusCode::kInvalidArgument, "no sample {}; there are {}", ordinal,
                 session->dataset().num_samples());
    }
    names.push_back(session->dataset().NameOf(ordinal));
  }
  return names;
}

absl::StatusOr<std::vector<std::string>> Manager::ClassNames(SessionId id, int64_t first,
                                                             size_t bytes_max) {
  Session* session = Find(id);
  if (session == nullptr) return absl::NotFoundError("the session is not open");
  if (first < 0) return Err(absl::StatusCode::kInvalidArgument, "no class {}", first);
  std::vector<std::string> names;
  size_t bytes = 0;
  for (int64_t i = first; i < session->dataset().num_classes(); ++i) {
    std::string name = session->dataset().ClassName(i);
    bytes += name.size() + 8;
    if (bytes > bytes_max && !names.empty()) break;
    names.push_back(std::move(name));
  }
  return names;
}

void Manager::Close(SessionId id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  if (it->second.session != nullptr) {
    it->second.session->Close();
  } else {
    it->second.output = nullptr;
  }
  CheckDrained();
}

void Manager::Erase(SessionId id) {
  if (entries_.erase(id) > 0) CountChanged();
  CheckDrained();
}

void Manager::CountChanged() {
  Set(metrics_->sessions, session_count());
  if (listener_) listener_(session_count());
}

void Manager::Drain(Duration timeout, std::function<void()> drained) {
  draining_ = true;
  drained_ = std::move(drained);
  drain_timer_ = loop_->After(timeout, [this] {
    if (auto drained = std::exchange(drained_, nullptr)) drained();
  });
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  for (auto& [id, entry] : entries_) {
    if (entry.session != nullptr) entry.session->Drain(ms);
  }
  CheckDrained();
}

// What a trainer has taken stays valid without the daemon; what it has not taken yet may not.
void Manager::CheckDrained() {
  if (!draining_ || !drained_) return;
  for (const auto& [id, entry] : entries_) {
    if (entry.session == nullptr || (!entry.session->closed() && entry.session->has_ready())) {
      return;
    }
  }
  drain_timer_.reset();
  loop_->Post(std::exchange(drained_, nullptr));
}

std::vector<SessionStatusInfo> Manager::Sessions() const {
  std::vector<SessionStatusInfo> sessions;
  for (const auto& [id, entry] : entries_) {
    if (entry.session != nullptr && !entry.session->closed()) {
      sessions.push_back(entry.session->Status());
    }
  }
  return sessions;
}

}  // namespace

std::unique_ptr<SessionManager> SessionManager::Create(const ManagerOptions& options,
                                                       EventLoop* loop, Metrics* metrics) {
  return std::make_unique<Manager>(options, loop, metrics);
}

}  // namespace batchd
