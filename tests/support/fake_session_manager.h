// SPDX-License-Identifier: Apache-2.0
//
// A SessionManager that makes no batches: it writes down what a door asks of it, and the test plays
// the session's part through output().

#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "server/base/sync.h"
#include "server/session/manager.h"

namespace batchd {

// Its calls come on the loop; those under "For the test" are thread-safe but where said otherwise.
class FakeSessionManager : public SessionManager {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  // ---- For the test

  // Whether `event` has been written down `count` times, waiting for it. Events: "open 1",
  // "take 1 0/2#7 waited=5 ready=1", "release 1 0/2#7", "seek 1 generation=3 at 0/4", "close 1".
  bool WaitFor(const std::string& event, int count = 1) {
    const auto deadline = Clock::Real()->Now() + kPatience;
    MutexLock lock(&mu_);
    while (std::count(events_.begin(), events_.end(), event) < count) {
      if (!changed_.WaitUntil(&mu_, deadline)) return false;
    }
    return true;
  }
  std::vector<std::string> events() {
    MutexLock lock(&mu_);
    return events_;
  }
  OpenRequest last_request() {
    MutexLock lock(&mu_);
    return last_request_;
  }
  // Set before the door starts: what happens inside Open, on the loop.
  std::function<void(SessionId, SessionOutput*)> on_open;
  std::function<void(SessionId, const SlotRef&)> on_take;
  absl::StatusOr<OpenedInfo> describe_answer = OpenedInfo{};
  std::vector<std::string> names = {"a.jpg", "b.jpg"};
  // On the loop only; null if the session is closed.
  SessionOutput* output(SessionId id) { return outputs_.contains(id) ? outputs_[id] : nullptr; }

  // ---- SessionManager

  SessionId Open(OpenRequest request, SessionOutput* output) override {
    const SessionId id = next_id_++;
    outputs_[id] = output;
    {
      MutexLock lock(&mu_);
      last_request_ = std::move(request);
    }
    Note(fmt::format("open {}", id));
    if (on_open != nullptr) on_open(id, output);
    return id;
  }
  void Describe(OpenRequest request,
                std::function<void(absl::StatusOr<OpenedInfo>)> done) override {
    {
      MutexLock lock(&mu_);
      last_request_ = std::move(request);
    }
    done(describe_answer);
  }
  void Take(SessionId id, const SlotRef& ref, Duration waited, bool was_ready) override {
    Note(fmt::format("take {} {} waited={} ready={}", id, Name(ref), waited.count(),
                     was_ready ? 1 : 0));
    if (on_take != nullptr) on_take(id, ref);
  }
  void Release(SessionId id, const SlotRef& ref) override {
    Note(fmt::format("release {} {}", id, Name(ref)));
  }
  void Seek(SessionId id, uint32_t generation, const Position& position) override {
    Note(fmt::format("seek {} generation={} at {}/{}", id, generation, position.epoch,
                     position.step));
  }
  absl::StatusOr<std::vector<std::string>> SampleNames(
      SessionId, const std::vector<int64_t>& ordinals) override {
    std::vector<std::string> found;
    for (const int64_t ordinal : ordinals) {
      if (ordinal < 0 || ordinal >= static_cast<int64_t>(names.size())) {
        return FieldErr("query.sample_names.ordinals", "{} is not in [0, {})", ordinal,
                        names.size());
      }
      found.push_back(names[static_cast<size_t>(ordinal)]);
    }
    return found;
  }
  absl::StatusOr<std::vector<std::string>> ClassNames(SessionId, int64_t first,
                                                      size_t /*bytes_max*/) override {
    return std::vector<std::string>(names.begin() + first, names.end());
  }
  void Close(SessionId id) override {
    outputs_.erase(id);
    Note(fmt::format("close {}", id));
  }
  void Drain(Duration, std::function<void()> drained) override { drained(); }
  bool draining() const override { return false; }
  std::vector<SessionStatusInfo> Sessions() const override {
    std::vector<SessionStatusInfo> all;
    for (const auto& [id, output] : outputs_) {
      all.emplace_back().session_id = id;
    }
    return all;
  }
  int session_count() const override { return static_cast<int>(outputs_.size()); }
  const Budget& slab_budget() const override { return budget_; }
  void SetSessionCountListener(std::function<void(int)>) override {}

 private:
  static std::string Name(const SlotRef& ref) {
    return fmt::format("{}/{}#{}", ref.segment, ref.slot, ref.sequence);
  }
  void Note(std::string event) {
    MutexLock lock(&mu_);
    events_.push_back(std::move(event));
    changed_.NotifyAll();
  }

  std::map<SessionId, SessionOutput*> outputs_;  // loop only
  SessionId next_id_ = 1;                        // loop only
  Budget budget_{"slabs", int64_t{1} << 30};
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mu_);
  OpenRequest last_request_ ABSL_GUARDED_BY(mu_);
};

}  // namespace batchd
