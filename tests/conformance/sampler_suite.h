// SPDX-License-Identifier: Apache-2.0
//
// What every sampler does, whatever its order is. A sampler's test instantiates SamplerSuite with a
// function that makes one.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "server/sampling/sampler.h"
#include "tests/support/status_matchers.h"

namespace batchd {

struct SamplerCase {
  std::string name;
  // Fills in what makes the sampler what it is; the suite chooses the rest.
  std::function<absl::StatusOr<std::shared_ptr<const Sampler>>(SamplerOptions)> make;
};

class SamplerSuite : public testing::TestWithParam<SamplerCase> {
 protected:
  using Rows = std::vector<SampleRow>;

  std::shared_ptr<const Sampler> Make(int64_t n, int64_t g, LastBatch policy, uint64_t seed = 7) {
    auto sampler = GetParam().make(
        {.num_samples = n, .seed = seed, .global_batch_size = g, .last_batch = policy});
    EXPECT_OK(sampler);
    return *std::move(sampler);
  }
  static Rows RowsOf(const Sampler& sampler, int64_t epoch, int64_t step, int32_t rank = 0,
                     int32_t world = 1) {
    Rows rows(3);  // what was in it does not matter
    sampler.Rows({epoch, step, rank, world}, &rows);
    return rows;
  }
  // A step's rows over all ranks.
  static Rows StepOf(const Sampler& sampler, int64_t epoch, int64_t step, int32_t world) {
    Rows all;
    for (int32_t rank = 0; rank < world; ++rank) {
      const Rows rows = RowsOf(sampler, epoch, step, rank, world);
      EXPECT_LE(static_cast<int64_t>(rows.size()), sampler.rows_max(rank, world));
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  static Rows Sorted(Rows rows) {
    std::sort(rows.begin(), rows.end(), [](const SampleRow& a, const SampleRow& b) {
      return std::tie(a.ordinal, a.occurrence) < std::tie(b.ordinal, b.occurrence);
    });
    return rows;
  }
};

TEST_P(SamplerSuite, EverySampleComesOncePerEpochWhateverTheWorlds) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const int64_t n = 1 + random() % 200;
    const int64_t g = 1 + random() % 40;
    const LastBatch policy = random() % 2 == 0 ? LastBatch::kPad : LastBatch::kPartial;
    const auto sampler = Make(n, g, policy, random());
    const int64_t epoch = random() % 5;
    std::vector<int> seen(static_cast<size_t>(n));
    int64_t rows_count = 0;
    for (int64_t step = 0; step < sampler->steps(epoch); ++step) {
      const int32_t world = 1 + static_cast<int32_t>(random() % 9);  // another one at every step
      for (const SampleRow& row : StepOf(*sampler, epoch, step, world)) {
        ASSERT_GE(row.ordinal, 0);
        ASSERT_LT(row.ordinal, n);
        ++rows_count;
        if (!row.is_pad) ++seen[static_cast<size_t>(row.ordinal)];
      }
    }
    ASSERT_THAT(seen, testing::Each(1)) << "n=" << n << " g=" << g;
    ASSERT_EQ(rows_count, policy == LastBatch::kPad ? sampler->steps(epoch) * g : n);
  }
}

TEST_P(SamplerSuite, DropLeavesOutLessThanABatchAndRepeatsNothing) {
  for (int64_t n = 8; n < 40; ++n) {
    const auto sampler = Make(n, 8, LastBatch::kDrop);
    ASSERT_EQ(sampler->steps(0), n / 8);
    std::vector<int> seen(static_cast<size_t>(n));
    for (int64_t step = 0; step < n / 8; ++step) {
      const Rows rows = StepOf(*sampler, 0, step, 3);
      ASSERT_EQ(rows.size(), 8u);
      for (const SampleRow& row : rows) ++seen[static_cast<size_t>(row.ordinal)];
    }
    ASSERT_THAT(seen, testing::Each(testing::Le(1)));
  }
}

TEST_P(SamplerSuite, AStepHoldsTheSameRowsInEveryWorld) {
  for (const LastBatch policy : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kPartial}) {
    const auto sampler = Make(103, 12, policy);
    for (int64_t step = 0; step < sampler->steps(2); ++step) {
      const Rows alone = Sorted(RowsOf(*sampler, 2, step));
      for (const int32_t world : {2, 3, 5, 8, 12, 20}) {
        EXPECT_EQ(Sorted(StepOf(*sampler, 2, step, world)), alone) << step << " of " << world;
      }
    }
  }
}

TEST_P(SamplerSuite, AllRanksHaveTheSameSteps) {
  // 3 samples, 7 ranks, 2 rows each: some ranks get nothing, and know it.
  const auto sampler = Make(3, 14, LastBatch::kPartial);
  ASSERT_EQ(sampler->steps(0), 1);
  EXPECT_EQ(StepOf(*sampler, 0, 0, 7).size(), 3u);
}

TEST_P(SamplerSuite, RowsMaxIsReached) {
  for (const LastBatch policy : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kPartial}) {
    for (const int64_t g : {1, 5, 12, 29}) {
      const auto sampler = Make(30, g, policy);
      for (const int32_t world : {1, 2, 7, 13}) {
        for (int32_t rank = 0; rank < world; ++rank) {
          size_t most = 0;
          for (int64_t step = 0; step < sampler->steps(0); ++step) {
            most = std::max(most, RowsOf(*sampler, 0, step, rank, world).size());
          }
          EXPECT_EQ(static_cast<int64_t>(most), sampler->rows_max(rank, world));
        }
      }
    }
  }
}

TEST_P(SamplerSuite, OccurrenceCountsHowOftenASampleCameBefore) {
  const auto sampler = Make(5, 23, LastBatch::kPad);
  std::vector<uint16_t> next(5);
  for (const SampleRow& row : RowsOf(*sampler, 1, 0)) {
    EXPECT_EQ(row.occurrence, next[static_cast<size_t>(row.ordinal)]++);
    EXPECT_EQ(row.is_pad, row.occurrence > 0);
  }
}

TEST_P(SamplerSuite, RowsAreAPureFunctionOfTheAddress) {
  const auto a = Make(1000, 32, LastBatch::kPartial);
  const auto b = Make(1000, 32, LastBatch::kPartial);
  // One is asked in order, the other backwards and from epoch to epoch.
  for (int64_t step = a->steps(0) - 1; step >= 0; --step) {
    for (const int64_t epoch : {3, 0, 2, 1}) (void)RowsOf(*b, epoch, step, 1, 4);
  }
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    for (int64_t step = 0; step < a->steps(epoch); ++step) {
      ASSERT_EQ(RowsOf(*a, epoch, step, 1, 4), RowsOf(*b, epoch, step, 1, 4));
    }
  }
}

TEST_P(SamplerSuite, APreparedEpochIsKeptBesideTheOneBefore) {
  const auto sampler = Make(100, 10, LastBatch::kDrop);
  sampler->PrepareEpoch(4);
  EXPECT_TRUE(sampler->IsPrepared(4));
  sampler->PrepareEpoch(5);
  EXPECT_TRUE(sampler->IsPrepared(4));
  EXPECT_TRUE(sampler->IsPrepared(5));
}

TEST_P(SamplerSuite, ManyThreadsAskAtOnce) {
  const auto sampler = Make(500, 20, LastBatch::kPartial);
  std::vector<Rows> want;
  for (int64_t i = 0; i < 100; ++i) want.push_back(RowsOf(*sampler, i / 25, i % 25));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t k = 0; k < 300; ++k) {
        const int64_t i = (k * 7 + t * 31) % 100;
        if (RowsOf(*sampler, i / 25, i % 25) != want[static_cast<size_t>(i)]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace batchd
