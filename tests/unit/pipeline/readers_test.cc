// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/readers.h"

#include <atomic>
#include <future>
#include <map>
#include <random>

#include "tests/unit/pipeline/pipeline_rig.h"

namespace batchd {
namespace {

class ReadersTest : public testing::Test {
 protected:
  ~ReadersTest() override {
    pool_.reset();
    readers_.reset();
    EXPECT_EQ(encoded_.used_bytes(), 0);
  }
  ScriptedSource* source() { return rig_.dataset->source(); }

  void Start(int reader_threads = 2, int cpu_threads = 2) {
    readers_ = std::make_unique<Readers>(reader_threads, &encoded_, &rig_.queue, &rig_.metrics);
    pool_ = std::make_unique<CpuPool>(CpuPoolOptions{.thread_count = cpu_threads, .nice = 0},
                                      &rig_.queue, readers_.get(), &rig_.metrics);
  }
  // Makes step `step`.
  void Begin(int64_t step) {
    batch_->Begin({0, step, 0, 1});
    rig_.queue.AddBatch(batch_.get());
  }
  void Make(int64_t step) {
    Begin(step);
    done_.get_future().wait();
    done_ = {};
  }
  // What step 0 is when nothing has to be read by a reader.
  std::string Undisturbed() {
    source()->is_cold = false;
    Make(0);
    source()->is_cold = true;
    return rig_.Content(*batch_);
  }

  PipelineRig rig_;
  Budget encoded_{"encoded", 1000};
  std::promise<void> done_;
  std::unique_ptr<Batch> batch_ = rig_.MakeBatch(0, [this](Batch*) { done_.set_value(); });
  std::unique_ptr<Readers> readers_;
  std::unique_ptr<CpuPool> pool_;
};

TEST_F(ReadersTest, WhatAReaderBringsIsWhatIsInMemory) {
  Start();
  const std::string expected = Undisturbed();

  Make(0);

  EXPECT_EQ(rig_.Content(*batch_), expected);
  EXPECT_FALSE(batch_->failure().has_value());
}

TEST_F(ReadersTest, APassingFailureDoesNotShow) {
  Start();
  const std::string expected = Undisturbed();
  Mutex mu;
  std::map<std::string, int> attempts;
  source()->before_read = [&](const std::string& name) {
    MutexLock lock(&mu);
    const bool fails = name == "1.ppm" || name == "4.ppm";
    return ++attempts[name] < 3 && fails ? absl::UnavailableError("later") : absl::OkStatus();
  };

  Make(0);

  EXPECT_EQ(rig_.Content(*batch_), expected);
  EXPECT_FALSE(batch_->failure().has_value());
  EXPECT_EQ(attempts["4.ppm"], 3);
}

TEST_F(ReadersTest, AFailureThatStaysFailsTheRowAsUnavailableUnderEveryPolicy) {
  std::atomic<int> attempts{0};
  source()->before_read = [&](const std::string& name) {
    if (name != "2.ppm") return absl::OkStatus();
    ++attempts;
    return absl::UnavailableError("gone");
  };
  rig_.plan.on_bad_sample = OnBadSample::kSubstitute;
  Start();

  Make(0);

  EXPECT_EQ(attempts, kReadAttemptsMax);
  ASSERT_TRUE(batch_->failure().has_value());
  EXPECT_EQ(batch_->failure()->ordinal, 2);
  EXPECT_TRUE(absl::IsUnavailable(batch_->failure()->status));
}

TEST_F(ReadersTest, AReaderThatPausesSwallowsNoWakeUp) {
  // 0.ppm fails until its last try, before which its reader pauses for seconds; meanwhile every
  // other row has to go through the second reader, one at a time.
  std::atomic<int> attempts{0};
  std::promise<void> pausing;
  source()->before_read = [&](const std::string& name) {
    if (name != "0.ppm") return absl::OkStatus();
    if (++attempts == kReadAttemptsMax) return absl::OkStatus();
    if (attempts == kReadAttemptsMax - 1) pausing.set_value();
    return absl::UnavailableError("later");
  };
  Budget budget("encoded", 1000);
  WorkQueue queue;
  Lane lane;
  queue.AddLane(&lane);
  Batch batch(&rig_.plan, &lane, rig_.segment->slab(1), [](Batch*) {});
  batch.Begin({0, 0, 0, 1});
  {
    Readers readers(2, &budget, &queue, &rig_.metrics);
    const auto submit = [&](int64_t row) {
      RowTask task;
      task.batch = &batch;
      task.row = row;
      task.ordinal = row;
      readers.Submit(std::move(task));
    };
    submit(0);
    pausing.get_future().wait();

    RowTask task;
    for (int round = 0; round < 40; ++round) {
      submit(1 + round % 5);
      ASSERT_TRUE(queue.Pop(&task));
      ASSERT_EQ(task.row, 1 + round % 5);
      task = RowTask();
    }

    EXPECT_EQ(attempts, kReadAttemptsMax - 1) << "a row waited for the pause of another";
    ASSERT_TRUE(queue.Pop(&task));
    EXPECT_EQ(task.row, 0);
    EXPECT_OK(task.fetch_status);
  }
}

TEST_F(ReadersTest, RowsWaitForTheBudgetAndNoneIsLost) {
  Start(/*reader_threads=*/6);
  const std::string expected = Undisturbed();
  const auto size = static_cast<int64_t>(rig_.dataset->at(0).bytes.size());
  ASSERT_LT(encoded_.limit_bytes(), 6 * size) << "the budget holds them all: nothing would wait";

  for (int round = 0; round < 100; ++round) {
    Make(0);
    ASSERT_EQ(rig_.Content(*batch_), expected);
  }
}

TEST_F(ReadersTest, ARowOfACancelledBatchIsDroppedOnceItsReadEnds) {
  std::promise<void> reading, go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  std::atomic<int> reads{0};
  source()->before_read = [&](const std::string&) {
    if (++reads == 1) {
      reading.set_value();
      may_go_on.wait();
    }
    return absl::UnavailableError("not tried again: nobody wants it");
  };
  Start(/*reader_threads=*/1);
  Begin(0);
  reading.get_future().wait();

  batch_->Cancel();
  go_on.set_value();
  done_.get_future().wait();

  EXPECT_EQ(reads, 1);
  EXPECT_FALSE(batch_->failure().has_value());
}

TEST_F(ReadersTest, ASlowReadHoldsUpNoOtherSession) {
  std::promise<void> go_on;
  std::shared_future<void> may_go_on = go_on.get_future().share();
  source()->before_read = [&](const std::string& name) {
    if (name == "0.ppm") may_go_on.wait();
    return absl::OkStatus();
  };
  Lane lane;
  rig_.queue.AddLane(&lane);
  std::promise<void> other_done;
  Batch other(&rig_.plan, &lane, rig_.segment->slab(1), [&](Batch*) { other_done.set_value(); });
  Start();
  Begin(0);

  other.Begin({0, 1, 0, 1});
  rig_.queue.AddBatch(&other);

  other_done.get_future().wait();
  go_on.set_value();
  done_.get_future().wait();
  rig_.queue.RemoveLane(&lane);
}

TEST(WaitingBudget, IsNeverExceededAndEveryoneGetsATurn) {
  Budget budget("bytes", 100);
  WaitingBudget gate(&budget);
  std::atomic<int64_t> held{0};
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int round = 0; round < 500; ++round) {
        const int64_t size = i == 0 ? 100 : 1 + random() % 60;
        gate.Acquire(size);
        EXPECT_LE(held.fetch_add(size) + size, 100);
        held.fetch_sub(size);
        gate.Release(size);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used_bytes(), 0);
}

}  // namespace
}  // namespace batchd
