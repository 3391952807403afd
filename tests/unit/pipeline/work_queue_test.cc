// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/work_queue.h"

#include <atomic>
#include <thread>

#include "tests/unit/pipeline/pipeline_rig.h"

namespace batchd {
namespace {

using ::testing::ElementsAre;

class WorkQueueTest : public testing::Test {
 protected:
  std::unique_ptr<Batch> Begun(int slot, int64_t step, Lane* lane = nullptr) {
    auto batch = std::make_unique<Batch>(&rig_.plan, lane == nullptr ? &rig_.lane : lane,
                                         rig_.segment->slab(slot), [this](Batch*) { ++done_; });
    batch->Begin({0, step, 0, 1});
    return batch;
  }
  RowTask PopOne() {
    RowTask task;
    EXPECT_TRUE(rig_.queue.Pop(&task));
    return task;
  }

  PipelineRig rig_{/*sample_count=*/12, /*batch_size=*/3, /*slots=*/4};
  std::atomic<int> done_{0};
};

TEST_F(WorkQueueTest, RowsComeInOrderTheOldestBatchFirst) {
  const auto first = Begun(0, 0), second = Begun(1, 1);
  rig_.queue.AddBatch(first.get());
  rig_.queue.AddBatch(second.get());

  std::vector<int64_t> ordinals;
  for (int i = 0; i < 6; ++i) ordinals.push_back(PopOne().ordinal);

  EXPECT_THAT(ordinals, ElementsAre(0, 1, 2, 3, 4, 5));
  rig_.queue.RemoveLane(&rig_.lane);
}

TEST_F(WorkQueueTest, RowsWhoseBytesAreThereComeFirst) {
  const auto batch = Begun(0, 0);
  rig_.queue.AddBatch(batch.get());
  RowTask cold = PopOne();
  cold.fetched = std::make_unique<ReadBuffer>();
  rig_.queue.AddFetched(std::move(cold));

  RowTask task = PopOne();

  EXPECT_EQ(task.row, 0);
  EXPECT_NE(task.fetched, nullptr);
  EXPECT_EQ(PopOne().row, 1);
}

TEST_F(WorkQueueTest, TheSessionWithTheFewestBatchesAheadComesFirst) {
  Lane starving;
  rig_.queue.AddLane(&starving);
  const auto rich = Begun(0, 0), poor = Begun(1, 1, &starving);
  rig_.queue.SetBatchesAhead(&rig_.lane, 2);
  rig_.queue.SetBatchesAhead(&starving, 1);
  rig_.queue.AddBatch(rich.get());
  rig_.queue.AddBatch(poor.get());

  for (int i = 0; i < 3; ++i) EXPECT_EQ(PopOne().batch, poor.get());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(PopOne().batch, rich.get());
  rig_.queue.RemoveLane(&starving);
}

TEST_F(WorkQueueTest, SessionsOfEqualUrgencyTakeTurns) {
  Lane other;
  rig_.queue.AddLane(&other);
  const auto one = Begun(0, 0), two = Begun(1, 1, &other);
  rig_.queue.AddBatch(one.get());
  rig_.queue.AddBatch(two.get());

  int of_one = 0;
  for (int i = 0; i < 4; ++i) of_one += PopOne().batch == one.get() ? 1 : 0;

  EXPECT_EQ(of_one, 2);
}

TEST_F(WorkQueueTest, StopWakesEveryWaiter) {
  std::vector<std::thread> threads;
  std::atomic<int> refused{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      RowTask task;
      if (!rig_.queue.Pop(&task)) ++refused;
    });
  }

  rig_.queue.Stop();

  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 4);
}

// Hangs if a wake-up gets lost.
TEST_F(WorkQueueTest, NoRowIsLeftWhileThreadsSleep) {
  std::vector<std::thread> threads;
  Mutex mu;
  CondVar changed;
  int finished = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      RowTask task;
      while (rig_.queue.Pop(&task)) {
        if (task.fetched == nullptr && task.row == 1) {  // as if a reader had brought it
          task.fetched = std::make_unique<ReadBuffer>();
          rig_.queue.AddFetched(std::move(task));
          continue;
        }
        task.batch->DropRow();
        MutexLock lock(&mu);
        ++finished;
        changed.NotifyAll();
      }
    });
  }

  std::vector<std::unique_ptr<Batch>> batches;
  for (int round = 0; round < 500; ++round) {
    batches.clear();
    for (int slot = 0; slot < 1 + round % 4; ++slot) {
      batches.push_back(Begun(slot, slot));
      rig_.queue.AddBatch(batches.back().get());
    }
    const int expected = static_cast<int>(batches.size()) * 3;
    MutexLock lock(&mu);
    while (finished < expected) changed.Wait(&mu);
    finished = 0;
  }

  rig_.queue.Stop();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace batchd
