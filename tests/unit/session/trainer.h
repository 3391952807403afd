// SPDX-License-Identifier: Apache-2.0
//
// The client's side of a session for tests of the real manager: writes down what it hears, takes
// and releases batches, and can do something of its own at any call.

#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/base/sync.h"
#include "server/session/manager.h"

namespace batchd {

// The bytes of batches by (epoch, step).
using Contents = std::map<std::pair<int64_t, int64_t>, std::string>;

// Its fields belong to the loop thread, but for those that Await reads under its lock.
class Trainer : public SessionOutput {
 public:
  enum class Way {
    kConsume,  // takes and releases at once, inside OnReady
    kHold,     // takes at once and keeps
    kLeave,    // leaves it ready
  };

  explicit Trainer(SessionManager* manager, Way way = Way::kConsume)
      : manager_(manager), way_(way) {}

  SessionId Open(OpenRequest request) { return id = manager_->Open(std::move(request), this); }
  void Close() { manager_->Close(id); }
  void Take(const ReadyBatch& batch) { manager_->Take(id, batch.ref, Duration(0), true); }
  void Release(const ReadyBatch& batch) { manager_->Release(id, batch.ref); }
  void Seek(const Position& position) { manager_->Seek(id, ++generation, position); }

  // Any thread: waits until what has been heard fulfils `condition`, which is called under the
  // lock. False after 30 s.
  bool Await(const std::function<bool()>& condition) {
    const auto deadline = Clock::Real()->Now() + std::chrono::seconds(30);
    MutexLock lock(&mu_);
    while (!condition()) {
      if (!changed_.WaitUntil(&mu_, deadline)) return condition();
    }
    return true;
  }

  void OnOpened(const OpenedInfo& info) override {
    Note([&] { opened = info; });
    Said("opened");
  }
  void OnSegment(int index, const Segment& segment) override {
    Note([&] {
      ++segments;
      slots += segment.slot_count();
      EXPECT_EQ(index + 1, segments);
    });
    Said("segment");
  }
  void OnReady(const ReadyBatch& batch) override {
    Note([&] {
      ++ready_count;
      if (batch.generation == generation) {
        contents[{batch.address.epoch, batch.address.step}].assign(
            reinterpret_cast<const char*>(batch.slab), static_cast<size_t>(batch.size_bytes));
        order.push_back(batch.address);
        valid_rows += batch.valid_rows;
        rows += batch.rows;
      }
    });
    if (way_ != Way::kLeave) Take(batch);
    if (way_ == Way::kConsume) Release(batch);
    if (way_ != Way::kConsume) held.push_back(batch);
    Said("ready");
  }
  void OnFailure(const BatchFailure& failure) override {
    Note([&] { failures.push_back(failure); });
    Said("failure");
  }
  void OnExhausted(const ExhaustedInfo& info) override {
    Note([&] { exhausted.push_back(info); });
    Said("exhausted");
  }
  void OnDraining(int64_t) override {
    Note([&] { ++draining_count; });
    Said("draining");
  }
  void OnError(const absl::Status& status) override {
    Note([&] { error = status; });
    Said("error");
  }

  // Called on the loop at the end of each call, with its name.
  std::function<void(const std::string&)> hook;

  SessionId id = 0;
  uint32_t generation = 0;
  std::deque<ReadyBatch> held;

  // Written under the lock.
  std::optional<OpenedInfo> opened;
  int segments = 0, slots = 0, ready_count = 0, draining_count = 0;
  int64_t rows = 0, valid_rows = 0;
  Contents contents;
  std::vector<Address> order;
  std::vector<BatchFailure> failures;
  std::vector<ExhaustedInfo> exhausted;
  absl::Status error;

 private:
  template <typename Fn>
  void Note(Fn fn) {
    MutexLock lock(&mu_);
    fn();
    changed_.NotifyAll();
  }
  void Said(const std::string& what) {
    if (hook) hook(what);
  }

  SessionManager* const manager_;
  const Way way_;
  Mutex mu_;
  CondVar changed_;
};

}  // namespace batchd
