// SPDX-License-Identifier: Apache-2.0
#include "server/session/manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "proto/shm/slab.h"
#include "tests/support/loop_thread.h"
#include "tests/support/picture_folder.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/session/trainer.h"

namespace batchd {
namespace {

using Way = Trainer::Way;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

class ManagerTest : public testing::Test {
 protected:
  static constexpr int kPictures = 23;

  ManagerTest() {
    options_.cpu_threads = 2;
    options_.reader_threads = 2;
    options_.slab_budget_bytes = int64_t{64} << 20;
    options_.encoded_budget_bytes = int64_t{1} << 20;
    options_.scratch_budget_bytes = int64_t{64} << 20;
    options_.nice = 0;
  }
  ~ManagerTest() override { Stop(); }

  void Start() {
    loop_.Run([&] {
      manager_ = SessionManager::Create(options_, loop_.loop(), &metrics_);
      manager_->SetSessionCountListener([this](int count) {
        MutexLock lock(&mu_);
        count_ = count;
        count_changed_.NotifyAll();
      });
    });
  }
  // Closes what is open, waits for the end of all sessions and of the manager, and expects that
  // nothing is left.
  void Stop() {
    if (manager_ == nullptr) return;
    loop_.Run([&] {
      for (const auto& trainer : trainers_) {
        trainer->hook = nullptr;
        trainer->Close();
      }
    });
    ASSERT_TRUE(AwaitCount(0)) << "sessions do not end";
    // A look at a dataset runs behind the freeing of the last segments on the control thread.
    std::promise<void> looked;
    loop_.Run([&] { manager_->Describe({}, [&](const auto&) { looked.set_value(); }); });
    looked.get_future().wait();
    loop_.Run([&] {
      EXPECT_EQ(manager_->session_count(), 0);
      EXPECT_EQ(manager_->slab_budget().used_bytes(), 0);
      manager_.reset();
    });
    const std::string metrics = metrics_.Scrape();
    for (const char* state : {"free", "filling", "ready", "leased"}) {
      EXPECT_NE(metrics.find(fmt::format("batchd_slabs{{state=\"{}\"}} 0\n", state)),
                std::string::npos)
          << state;
    }
    EXPECT_NE(metrics.find("batchd_memory_bytes{kind=\"slabs\"} 0\n"), std::string::npos);
  }
  bool AwaitCount(int count) {
    const auto deadline = Clock::Real()->Now() + std::chrono::seconds(30);
    MutexLock lock(&mu_);
    while (count_ != count) {
      if (!count_changed_.WaitUntil(&mu_, deadline)) return count_ == count;
    }
    return true;
  }

  Trainer* Add(Way way = Way::kConsume) {
    trainers_.push_back(std::make_unique<Trainer>(manager_.get(), way));
    return trainers_.back().get();
  }
  Trainer* Open(const OpenRequest& request, Way way = Way::kConsume) {
    Trainer* trainer = nullptr;
    loop_.Run([&] {
      trainer = Add(way);
      trainer->Open(request);
    });
    return trainer;
  }
  // The batches from the start of epoch 0 to the last of epoch `epochs` - 1, made by a manager of
  // its own.
  Contents Undisturbed(const OpenRequest& request, int64_t epochs, int cpu_threads = 1) {
    options_.cpu_threads = cpu_threads;
    Start();
    Trainer* trainer = Open(request);
    EXPECT_TRUE(trainer->Await(
        [&] { return !trainer->order.empty() && trainer->order.back().epoch >= epochs; }));
    Stop();
    Contents contents = trainer->contents;
    std::erase_if(contents, [&](const auto& entry) { return entry.first.first >= epochs; });
    trainers_.clear();
    return contents;
  }
  static std::vector<wire::RowStatus> RowStatuses(const std::string& slab) {
    wire::SlabHeader header;
    std::memcpy(&header, slab.data(), sizeof(header));
    std::vector<wire::RowStatus> statuses(header.rows);
    std::memcpy(statuses.data(), slab.data() + header.row_status_offset, header.rows);
    return statuses;
  }

  PictureFolder folder_{kPictures};
  ManagerOptions options_;
  Metrics metrics_;
  LoopThread loop_;
  std::unique_ptr<SessionManager> manager_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
  Mutex mu_;
  CondVar count_changed_;
  int count_ = 0;
};

// ---- Content and order

TEST_F(ManagerTest, BatchesAreEqualForAnyNumberOfThreads) {
  OpenRequest request = folder_.Request(5);
  request.on_bad_sample = OnBadSample::kSubstitute;
  folder_.Spoil(4);

  const Contents one = Undisturbed(request, 3, 1);

  EXPECT_EQ(one.size(), 3u * 5u);
  EXPECT_EQ(Undisturbed(request, 3, 2), one);
  EXPECT_EQ(Undisturbed(request, 3, 8), one);
}

TEST_F(ManagerTest, BatchesComeInTheOrderOfTheirAddresses) {
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kFeistel, Shuffle::kTorch}) {
    OpenRequest request = folder_.Request(5);
    request.shuffle = shuffle;
    request.start = {2, 3};
    Start();

    Trainer* trainer = Open(request);

    ASSERT_TRUE(trainer->Await([&] { return trainer->order.size() >= 40; }));
    Stop();
    Position expected{2, 3};
    for (const Address& address : trainer->order) {
      ASSERT_EQ((Position{address.epoch, address.step}), expected);
      expected = expected.step == 4 ? Position{expected.epoch + 1, 0}
                                    : Position{expected.epoch, expected.step + 1};
    }
    trainers_.clear();
  }
}

TEST_F(ManagerTest, ARankWithoutRowsGetsEmptyBatches) {
  OpenRequest request = folder_.Request(2);
  request.world_size = 8;
  request.rank = 0;  // floor(0 * 2 / 8) to floor(1 * 2 / 8): nothing, in every step
  Start();

  Trainer* trainer = Open(request);

  EXPECT_TRUE(trainer->Await([&] { return trainer->order.size() >= 50; }));
  Stop();
  EXPECT_EQ(trainer->rows, 0);
}

TEST_F(ManagerTest, ASingleSessionMakesOneBatch) {
  OpenRequest request = folder_.Request(5);
  const Contents all = Undisturbed(request, 1);
  request.single = true;
  request.start = {0, 4};
  Start();

  Trainer* trainer = Open(request);
  ASSERT_TRUE(trainer->Await([&] { return trainer->ready_count == 1; }));
  // What is opened later and runs on shows that the first makes no more.
  Trainer* other = Open(folder_.Request(5));
  ASSERT_TRUE(other->Await([&] { return other->ready_count >= 20; }));

  loop_.Run([&] {
    EXPECT_EQ(trainer->ready_count, 1);
    EXPECT_EQ(trainer->slots, 1);
    EXPECT_EQ(trainer->contents.at({0, 4}), all.at({0, 4}));
  });
}

TEST_F(ManagerTest, ASeekThatComesBeforeTheSessionIsOpenIsNotLost) {
  Start();
  Trainer* trainer = nullptr;

  loop_.Run([&] {
    trainer = Add();
    trainer->Open(folder_.Request(5));
    trainer->Seek({3, 2});
  });

  ASSERT_TRUE(trainer->Await([&] { return trainer->order.size() >= 2; }));
  Stop();
  EXPECT_EQ(trainer->order[0], (Address{3, 2, 0, 1}));
}

// ---- Bad samples

TEST_F(ManagerTest, ABadSampleFailsItsBatchAndASeekGoesPastIt) {
  folder_.Spoil(6);  // ordinal 3
  OpenRequest request = folder_.Request(5);
  request.shuffle = Shuffle::kNone;
  Start();

  Trainer* trainer = Open(request);
  ASSERT_TRUE(trainer->Await([&] { return trainer->failures.size() == 1; }));
  loop_.Run([&] {
    const BatchFailure& failure = trainer->failures[0];
    EXPECT_EQ(trainer->ready_count, 0) << "batch 1 must not overtake batch 0";
    EXPECT_THAT(failure.status, FailsWith(absl::StatusCode::kDataLoss, "c0/006.ppm"));
    EXPECT_EQ(failure.ordinal, 3);
    EXPECT_EQ(failure.sample_name, "c0/006.ppm");
    EXPECT_EQ(failure.next, (Position{0, 1}));
    trainer->Seek(failure.next);
  });

  ASSERT_TRUE(trainer->Await([&] { return trainer->order.size() >= 4; }));
  Stop();
  EXPECT_EQ(trainer->order[0], (Address{0, 1, 0, 1}));
}

TEST_F(ManagerTest, SkippedAndSubstitutedRowsAreToldApart) {
  folder_.Spoil(6);
  OpenRequest request = folder_.Request(23);
  request.shuffle = Shuffle::kNone;
  request.on_bad_sample = OnBadSample::kSkip;
  const Contents skipped = Undisturbed(request, 1);
  request.on_bad_sample = OnBadSample::kSubstitute;
  const Contents substituted = Undisturbed(request, 1);

  std::vector<wire::RowStatus> expected(23, wire::RowStatus::kOk);
  expected[3] = wire::RowStatus::kSkipped;
  EXPECT_EQ(RowStatuses(skipped.at({0, 0})), expected);
  expected[3] = wire::RowStatus::kSubstituted;
  EXPECT_EQ(RowStatuses(substituted.at({0, 0})), expected);
}

TEST_F(ManagerTest, APadRowIsNeverValidAndIsNoSecondBadSample) {
  folder_.Spoil(0);  // ordinal 0: it is repeated in the last batch
  OpenRequest request = folder_.Request(20);
  request.shuffle = Shuffle::kNone;
  request.last_batch = LastBatch::kPad;
  request.max_bad_count = 1;
  for (const OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    request.on_bad_sample = policy;
    const Contents contents = Undisturbed(request, 2);

    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      const auto statuses = RowStatuses(contents.at({epoch, 1}));
      EXPECT_EQ(std::count(statuses.begin(), statuses.end(), wire::RowStatus::kOk), 3);
      EXPECT_EQ(std::count(statuses.begin(), statuses.end(), wire::RowStatus::kPad), 17);
    }
  }
}

TEST_F(ManagerTest, MoreBadSamplesThanAllowedEndTheEpoch) {
  for (const int i : {0, 2, 4}) folder_.Spoil(i);
  OpenRequest request = folder_.Request(4);
  request.shuffle = Shuffle::kNone;
  request.on_bad_sample = OnBadSample::kSkip;
  request.max_bad_count = 2;
  Start();

  Trainer* trainer = Open(request);

  ASSERT_TRUE(trainer->Await([&] { return trainer->failures.size() == 1; }));
  EXPECT_THAT(trainer->failures[0].status,
              FailsWith(absl::StatusCode::kResourceExhausted, "max_bad_samples"));
}

TEST_F(ManagerTest, ADatasetOfBadSamplesEndsWhateverThePolicyAndTheCut) {
  for (int i = 0; i < kPictures; ++i) folder_.Spoil(i);
  for (const OnBadSample policy : {OnBadSample::kSkip, OnBadSample::kSubstitute}) {
    // A rank of two whose last batch is empty: 23 = 11 * 2 + 1.
    OpenRequest request = folder_.Request(2);
    request.world_size = 2;
    request.rank = 1;
    request.on_bad_sample = policy;
    Start();

    Trainer* trainer = Open(request);

    ASSERT_TRUE(trainer->Await(
        [&] { return trainer->failures.size() == 1 || trainer->ready_count > 100; }));
    Stop();
    EXPECT_THAT(trainer->failures, testing::SizeIs(1)) << OnBadSampleName(policy);
    trainers_.clear();
  }
}

// ---- Memory

TEST_F(ManagerTest, ATrainerThatHoldsEverythingGetsMoreUntilTheBudgetEnds) {
  Start();
  Trainer* trainer = Open(folder_.Request(5), Way::kHold);

  ASSERT_TRUE(trainer->Await([&] { return trainer->exhausted.size() == 1; }));

  loop_.Run([&] {
    const ExhaustedInfo& info = trainer->exhausted[0];
    EXPECT_GT(trainer->segments, 2);
    EXPECT_EQ(info.held_slots, trainer->slots);
    EXPECT_EQ(info.used_bytes, trainer->slots * info.slab_size_bytes);
    EXPECT_LT(info.budget_bytes - info.used_bytes, info.slab_size_bytes);
  });
}

TEST_F(ManagerTest, ExhaustionIsSaidAgainAfterAReleaseAndAfterASeek) {
  Start();
  Trainer* trainer = Open(folder_.Request(5), Way::kHold);
  ASSERT_TRUE(trainer->Await([&] { return trainer->exhausted.size() == 1; }));

  loop_.Run([&] {
    trainer->Release(trainer->held.front());
    trainer->held.pop_front();
  });
  ASSERT_TRUE(trainer->Await([&] { return trainer->exhausted.size() == 2; }));
  loop_.Run([&] { trainer->Seek({7, 0}); });

  EXPECT_TRUE(trainer->Await([&] { return trainer->exhausted.size() == 3; }))
      << "a trainer that begins another epoch with all slots held waits for nothing";
}

TEST_F(ManagerTest, OpenIsRefusedWithTheNumberNeeded) {
  options_.slab_budget_bytes = 3 * 8192;  // prefetch 2 means 4 slots
  Start();

  Trainer* trainer = Open(folder_.Request(5));

  ASSERT_TRUE(trainer->Await([&] { return !trainer->error.ok(); }));
  EXPECT_THAT(trainer->error, FailsWith(absl::StatusCode::kResourceExhausted, "--memory"));
  EXPECT_TRUE(AwaitCount(0));
}

// ---- Refusals and protocol faults

TEST_F(ManagerTest, WhatDoesNotFitIsRefusedWithItsField) {
  Start();
  OpenRequest request = folder_.Request(5);
  request.rank = 1;
  Trainer* rank = Open(request);
  request = folder_.Request(5);
  request.start = {0, 6};
  Trainer* start = Open(request);
  request = folder_.Request(5);
  request.expected.dataset = "other";
  Trainer* other = Open(request);

  ASSERT_TRUE(rank->Await([&] { return !rank->error.ok(); }));
  ASSERT_TRUE(start->Await([&] { return !start->error.ok(); }));
  ASSERT_TRUE(other->Await([&] { return !other->error.ok(); }));
  EXPECT_EQ(FieldOf(rank->error), "rank");
  EXPECT_EQ(FieldOf(start->error), "start.step");
  EXPECT_THAT(other->error, FailsWith(absl::StatusCode::kFailedPrecondition, "other"));
}

TEST_F(ManagerTest, ARecordThatDoesNotFitEndsThatSessionAlone) {
  Start();
  Trainer* good = Open(folder_.Request(5));
  const std::vector<std::function<void(Trainer*)>> faults = {
      [](Trainer* t) { t->Take(t->held.front()); },  // taken before
      [](Trainer* t) {
        t->Release(t->held.front());
        t->Release(t->held.front());
      },
      [this](Trainer* t) {
        manager_->Release(t->id, {9, 0, 1});
      },
      [this](Trainer* t) {
        manager_->Release(t->id, {0, -1, 1});
      },
      [this](Trainer* t) {
        manager_->Seek(t->id, 0, {0, 0});
      },
      [](Trainer* t) {
        t->Seek({0, 99});
      },
  };
  for (const auto& fault : faults) {
    Trainer* bad = Open(folder_.Request(5), Way::kHold);
    ASSERT_TRUE(bad->Await([&] { return bad->ready_count >= 3; }));

    loop_.Run([&] { fault(bad); });

    EXPECT_FALSE(bad->error.ok());
  }
  const int before = [&] {
    int count = 0;
    loop_.Run([&] { count = good->ready_count; });
    return count;
  }();
  EXPECT_TRUE(good->Await([&] { return good->ready_count > before + 20; }));
}

// ---- Closing and draining

TEST_F(ManagerTest, ASessionMayBeClosedInsideAnyCall) {
  folder_.Spoil(22);  // ordinal 11: the third batch of five
  for (const char* moment : {"now", "opened", "segment", "ready", "failure", "draining"}) {
    Start();
    loop_.Run([&] {
      for (int i = 0; i < 4; ++i) {
        Trainer* trainer = Add();
        trainer->hook = [=](const std::string& what) {
          if (what == moment) trainer->Close();
        };
        OpenRequest request = folder_.Request(5);
        request.shuffle = Shuffle::kNone;
        trainer->Open(request);
        if (std::string(moment) == "now") trainer->Close();
      }
    });
    if (std::string(moment) == "draining") {
      for (const auto& trainer : trainers_) {  // one that is not open yet would be refused
        ASSERT_TRUE(trainer->Await([&] { return trainer->ready_count > 0; }));
      }
      loop_.Run([&] { manager_->Drain(std::chrono::seconds(60), [] {}); });
    }
    EXPECT_TRUE(AwaitCount(0)) << moment;
    for (const auto& trainer : trainers_) EXPECT_OK(trainer->error);
    Stop();
    trainers_.clear();
  }
}

TEST_F(ManagerTest, ASessionMayBeClosedWhileItGrowsAndWhenItIsExhausted) {
  EventLoop* const loop = loop_.loop();
  for (const int slots : {4, 8, 16}) {
    Start();
    Trainer* trainer = nullptr;
    loop_.Run([&] {
      trainer = Add(Way::kHold);
      trainer->hook = [=](const std::string& what) {
        // With the last slot's batch held the session asks for more, right after this call.
        if (what == "ready" && static_cast<int>(trainer->held.size()) == slots) {
          loop->Post([=] { trainer->Close(); });
        }
      };
      trainer->Open(folder_.Request(5));
    });
    EXPECT_TRUE(AwaitCount(0));
    Stop();
    trainers_.clear();
  }
  Start();
  loop_.Run([&] {
    Trainer* trainer = Add(Way::kHold);
    trainer->hook = [=](const std::string& what) {
      if (what == "exhausted") trainer->Close();
    };
    trainer->Open(folder_.Request(5));
  });
  EXPECT_TRUE(AwaitCount(0));
}

TEST_F(ManagerTest, ASessionMayBeClosedWhileAnEpochIsPrepared) {
  OpenRequest request = folder_.Request(5);
  request.shuffle = Shuffle::kTorch;
  EventLoop* const loop = loop_.loop();
  for (int batch = 1; batch <= 8; ++batch) {
    Start();
    loop_.Run([&] {
      Trainer* trainer = Add();
      trainer->hook = [=](const std::string& what) {
        if (what == "ready" && trainer->ready_count == batch) {
          loop->Post([=] { trainer->Close(); });
        }
      };
      trainer->Open(request);
    });
    EXPECT_TRUE(AwaitCount(0));
    Stop();
    trainers_.clear();
  }
}

TEST_F(ManagerTest, TheLastSessionsEndIsTheLastThatHappens) {
  // Whoever hears that no session is left may destroy the manager at once.
  for (int round = 0; round < 30; ++round) {
    loop_.Run([&] {
      manager_ = SessionManager::Create(options_, loop_.loop(), &metrics_);
      manager_->SetSessionCountListener([this](int count) {
        if (count > 0) return;
        loop_.loop()->Post([this] {
          manager_.reset();
          MutexLock lock(&mu_);
          count_ = -1;
          count_changed_.NotifyAll();
        });
      });
      Trainer* trainer = Add(Way::kLeave);
      trainer->hook = [trainer](const std::string& what) {
        if (what == "segment") trainer->Close();
        if (what == "ready") trainer->Close();
      };
      trainer->Open(folder_.Request(5));
    });
    EXPECT_TRUE(AwaitCount(-1));
    MutexLock lock(&mu_);
    count_ = 0;
  }
  trainers_.clear();
}

TEST_F(ManagerTest, DrainingEndsWhenNothingWaitsToBeTaken) {
  Start();
  Trainer* idle = Open(folder_.Request(5), Way::kLeave);
  Trainer* holder = Open(folder_.Request(5), Way::kHold);
  ASSERT_TRUE(idle->Await([&] { return idle->ready_count == 2; }));
  ASSERT_TRUE(holder->Await([&] { return holder->ready_count >= 4; }));
  std::promise<void> drained;
  bool has_drained = false;

  loop_.Run([&] {
    manager_->Drain(std::chrono::hours(1), [&] {
      has_drained = true;
      drained.set_value();
    });
  });
  loop_.Run([&] {
    EXPECT_EQ(idle->draining_count, 1);
    EXPECT_EQ(holder->draining_count, 1);
    EXPECT_FALSE(has_drained);
    for (const ReadyBatch& batch : idle->held) idle->Take(batch);
  });

  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

TEST_F(ManagerTest, DrainingTakesNoNewSessionNotEvenOneThatIsBeingOpened) {
  Start();
  std::promise<void> drained;
  Trainer* opening = nullptr;
  Trainer* late = nullptr;

  loop_.Run([&] {
    opening = Add(Way::kLeave);
    opening->Open(folder_.Request(5));
    manager_->Drain(std::chrono::hours(1), [&] { drained.set_value(); });
    late = Add();
    late->Open(folder_.Request(5));
  });

  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_TRUE(AwaitCount(0));
  EXPECT_TRUE(opening->Await([&] { return absl::IsUnavailable(opening->error); }));
  EXPECT_TRUE(late->Await([&] { return absl::IsUnavailable(late->error); }));
  std::promise<absl::Status> described;
  loop_.Run([&] {
    manager_->Describe(folder_.Request(5),
                       [&](const auto& info) { described.set_value(info.status()); });
  });
  EXPECT_OK(described.get_future().get());
}

TEST_F(ManagerTest, DrainingEndsAtItsDeadline) {
  Start();
  Trainer* idle = Open(folder_.Request(5), Way::kLeave);
  ASSERT_TRUE(idle->Await([&] { return idle->ready_count == 2; }));
  std::promise<void> drained;

  loop_.Run([&] { manager_->Drain(std::chrono::milliseconds(1), [&] { drained.set_value(); }); });

  EXPECT_EQ(drained.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

// ---- Many at once

// Trainers that do whatever they like, one thing per turn of the loop, and check every batch.
class Crowd {
 public:
  Crowd(SessionManager* manager, EventLoop* loop, const OpenRequest& request,
        const Contents* expected, uint32_t seed)
      : manager_(manager), loop_(loop), request_(request), expected_(expected), random_(seed) {}

  // On the loop. `done` is called when `actions` have been done.
  void Run(int actions, std::function<void()> done) {
    if (actions == 0) {
      done();
      return;
    }
    Act();
    loop_->Post([this, actions, done] { Run(actions - 1, done); });
  }
  // On the loop: everyone goes to the start and takes what comes.
  void Settle() {
    std::erase_if(trainers_, [](const auto& trainer) { return !trainer->error.ok(); });
    for (const auto& trainer : trainers_) {
      while (!trainer->held.empty()) ReleaseSome(trainer.get());
      trainer->hook = [t = trainer.get(), this](const std::string& what) {
        if (what == "ready" && t->held.back().generation == t->generation) Check(t->held.back());
        if (what == "ready") ReleaseSome(t);
      };
      if (trainer->opened.has_value()) trainer->Seek({0, 0});
    }
  }
  const std::vector<std::unique_ptr<Trainer>>& trainers() const { return trainers_; }

 private:
  uint32_t Below(uint32_t n) { return random_() % n; }

  void Act() {
    const uint32_t action = Below(20);
    if (trainers_.size() < 3 || (action == 0 && trainers_.size() < 12)) {
      trainers_.push_back(std::make_unique<Trainer>(manager_, Way::kHold));
      OpenRequest request = request_;
      request.start = {Below(3), Below(5)};
      request.prefetch = 1 + Below(4);
      trainers_.back()->hook = [t = trainers_.back().get(), this](const std::string& what) {
        if (what == "ready" && t->held.back().generation == t->generation) Check(t->held.back());
      };
      trainers_.back()->Open(request);
      return;
    }
    const size_t index = Below(static_cast<uint32_t>(trainers_.size()));
    Trainer* trainer = trainers_[index].get();
    if (!trainer->error.ok()) {
      EXPECT_THAT(trainer->error, FailsWith(kExhausted, "no memory for"));
      trainers_.erase(trainers_.begin() + static_cast<ptrdiff_t>(index));
    } else if (action == 1) {
      trainer->Close();  // and is gone: not one more call may come
      trainers_.erase(trainers_.begin() + static_cast<ptrdiff_t>(index));
    } else if (action < 6) {
      if (trainer->opened.has_value()) trainer->Seek({Below(3), Below(5)});
    } else if (!trainer->held.empty()) {
      ReleaseSome(trainer);
    }
  }
  void ReleaseSome(Trainer* trainer) {
    const ReadyBatch batch = trainer->held.front();
    trainer->held.pop_front();
    trainer->Release(batch);
  }
  void Check(const ReadyBatch& batch) {
    const auto found = expected_->find({batch.address.epoch, batch.address.step});
    if (found == expected_->end()) return;  // an epoch further on
    EXPECT_EQ(std::memcmp(batch.slab, found->second.data(), found->second.size()), 0);
  }

  SessionManager* const manager_;
  EventLoop* const loop_;
  const OpenRequest request_;
  const Contents* const expected_;
  std::mt19937 random_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

TEST_F(ManagerTest, ACrowdThatSeeksHoldsAndLeavesGetsTheRightBatchesAndLeavesNothing) {
  folder_.Spoil(9);
  OpenRequest request = folder_.Request(5);
  request.on_bad_sample = OnBadSample::kSubstitute;
  const Contents expected = Undisturbed(request, 4);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    request.shuffle = Shuffle::kFeistel;
    options_.cpu_threads = 1 + static_cast<int>(seed % 4);
    // With the small budget some are refused and some hear that there is no more.
    options_.slab_budget_bytes = int64_t{seed % 2 == 0 ? 2 : 64} << 20;
    Start();
    std::promise<void> acted;
    Crowd crowd(manager_.get(), loop_.loop(), request, &expected, seed);

    loop_.Run([&] { crowd.Run(2000, [&] { acted.set_value(); }); });
    acted.get_future().wait();
    std::vector<size_t> before;
    loop_.Run([&] {
      crowd.Settle();
      for (const auto& trainer : crowd.trainers()) before.push_back(trainer->order.size());
    });

    for (size_t i = 0; i < crowd.trainers().size(); ++i) {
      Trainer* trainer = crowd.trainers()[i].get();
      EXPECT_TRUE(trainer->Await([&] {
        return trainer->order.size() >= before[i] + 15 || !trainer->error.ok();
      })) << "seed "
          << seed << ", trainer " << i;
      EXPECT_THAT(trainer->error, testing::AnyOf(IsOk(), FailsWith(kExhausted, "no memory for")));
    }
    loop_.Run([&] {
      for (const auto& trainer : crowd.trainers()) trainer->Close();
    });
    Stop();
  }
}

}  // namespace
}  // namespace batchd
