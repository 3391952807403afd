// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "server/sampling/sampler.h"

namespace batchd {
namespace {

std::vector<int64_t> All(int64_t n, uint64_t seed, int64_t epoch) {
  const FeistelOrder order(n, seed, epoch);
  std::vector<int64_t> all(static_cast<size_t>(n));
  for (int64_t p = 0; p < n; ++p) all[static_cast<size_t>(p)] = order.At(p);
  return all;
}

struct Golden {
  int64_t n;
  uint64_t seed;
  int64_t epoch;
  int64_t first;
  std::vector<int64_t> ordinals;
};

// Frozen: a run that was begun with one build goes on with another. Computed from the description
// in feistel.cc by a second implementation.
const Golden kGolden[] = {
    {1, 0x0, 0, 0, {0}},
    {2, 0x0, 0, 0, {1, 0}},
    {3, 0x7, 1, 0, {1, 0, 2}},
    {10, 0x0, 0, 0, {1, 7, 2, 9, 5, 4, 3, 8, 6, 0}},
    {10, 0x0, 1, 0, {3, 7, 2, 1, 4, 0, 8, 6, 9, 5}},
    {10, 0x1, 0, 0, {1, 2, 6, 3, 7, 9, 8, 5, 0, 4}},
    {13, 0xdeadbeef01234567, 4294967295, 0, {5, 10, 12, 1, 6, 2, 7, 0, 4, 3, 9, 11, 8}},
    {1281167, 0x2a, 7, 0, {1075591, 1216236, 548858, 759753, 967031, 1102128, 1086579, 547618}},
    {1281167,
     0x2a,
     7,
     1281159,
     {1013502, 965268, 786276, 1054252, 735992, 1213652, 1182645, 1078206}},
    {1048576, 0x0, 0, 12345, {623630, 160940, 807574, 83339, 646126, 609758, 300804, 742643}},
    {4294967301, 0x1, 2, 4294967296, {2943120049, 1071504070, 2776876686, 2767683603, 2619525676}},
    {281474976710655,
     0xffffffffffffffff,
     3,
     140737488355328,
     {202248558990968, 166020593736162, 57363525251930, 47594555091414, 140849524885518,
      83499644061647, 207921839545257, 15906184796533}},
};

TEST(FeistelOrderTest, GivesTheGoldenOrders) {
  for (const Golden& golden : kGolden) {
    const FeistelOrder order(golden.n, golden.seed, golden.epoch);
    for (size_t i = 0; i < golden.ordinals.size(); ++i) {
      EXPECT_EQ(order.At(golden.first + static_cast<int64_t>(i)), golden.ordinals[i])
          << "n=" << golden.n << " position " << golden.first << " + " << i;
    }
  }
}

TEST(FeistelOrderTest, IsABijectionForEveryN) {
  for (int64_t n = 1; n <= 2000; ++n) {
    std::vector<int64_t> all = All(n, 3, n % 7);
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i) << "n=" << n;
  }
}

TEST(FeistelOrderTest, IsABijectionForLargeN) {
  for (const int64_t n : {int64_t{1'281'167}, int64_t{1} << 20, (int64_t{1} << 20) + 1}) {
    std::vector<bool> seen(static_cast<size_t>(n));
    const FeistelOrder order(n, 5, 1);
    for (int64_t p = 0; p < n; ++p) {
      const int64_t ordinal = order.At(p);
      ASSERT_TRUE(ordinal >= 0 && ordinal < n);
      ASSERT_FALSE(seen[static_cast<size_t>(ordinal)]);
      seen[static_cast<size_t>(ordinal)] = true;
    }
  }
}

TEST(FeistelOrderTest, GivesDistinctOrdinalsInRangeForHugeN) {
  for (const int64_t n : {(int64_t{1} << 32) - 1, (int64_t{1} << 40) + 7, int64_t{1} << 48}) {
    const FeistelOrder order(n, 5, 1);
    std::vector<int64_t> some;
    for (int64_t k = 0; k < 100'000; ++k) some.push_back(order.At(n / 100'000 * k));
    std::sort(some.begin(), some.end());
    EXPECT_EQ(std::adjacent_find(some.begin(), some.end()), some.end());
    EXPECT_GE(some.front(), 0);
    EXPECT_LT(some.back(), n);
    EXPECT_GT(some.back(), n - n / 1000);  // spread over all of it
  }
}

// How many standard deviations the chi-squared statistic of `counts`, all with the same
// expectation, lies above its mean for that many degrees of freedom.
double ChiSquaredZ(const std::vector<int64_t>& counts, double freedom) {
  const double expected =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) /
      static_cast<double>(counts.size());
  double chi = 0;
  for (const int64_t count : counts) {
    const double d = static_cast<double>(count) - expected;
    chi += d * d / expected;
  }
  return (chi - freedom) / std::sqrt(2 * freedom);
}

TEST(FeistelOrderTest, EverySampleIsAsLikelyAtEveryPosition) {
  for (const int64_t n : {2, 3, 4, 5, 8, 13, 40}) {
    std::vector<int64_t> counts(static_cast<size_t>(n * n));
    for (int64_t trial = 0; trial < 20'000; ++trial) {
      const std::vector<int64_t> all = All(n, 17, trial);
      for (int64_t p = 0; p < n; ++p) {
        ++counts[static_cast<size_t>(p * n + all[static_cast<size_t>(p)])];
      }
    }
    const double m = static_cast<double>(n - 1);
    EXPECT_LT(std::abs(ChiSquaredZ(counts, m * m)), 5) << "n=" << n;
  }
}

TEST(FeistelOrderTest, EveryPairIsAsLikelyAtTheFirstTwoPositions) {
  for (const int64_t n : {3, 5, 13, 40}) {
    std::vector<int64_t> counts(static_cast<size_t>(n * n));
    for (int64_t trial = 0; trial < 100'000; ++trial) {
      const FeistelOrder order(n, static_cast<uint64_t>(trial), 3);
      ++counts[static_cast<size_t>(order.At(0) * n + order.At(1))];
    }
    std::vector<int64_t> pairs;  // of distinct samples: the others cannot be
    for (int64_t i = 0; i < n * n; ++i) {
      if (i / n != i % n) pairs.push_back(counts[static_cast<size_t>(i)]);
    }
    EXPECT_LT(ChiSquaredZ(pairs, static_cast<double>(n * (n - 1) - 1)), 5) << "n=" << n;
  }
}

TEST(FeistelOrderTest, EpochsAndSeedsAreNotAlike) {
  constexpr int64_t kN = 10'000;
  const std::vector<int64_t> base = All(kN, 0, 0);
  const auto equal_places = [&](uint64_t seed, int64_t epoch) {
    const std::vector<int64_t> other = All(kN, seed, epoch);
    int64_t count = 0;
    for (size_t i = 0; i < other.size(); ++i) count += other[i] == base[i];
    return count;
  };
  // One place is expected to be equal by chance; ten are one time in ten million.
  for (uint64_t k = 1; k < 40; ++k) {
    EXPECT_LT(equal_places(k, 0), 10);
    EXPECT_LT(equal_places(0, static_cast<int64_t>(k)), 10);
    EXPECT_LT(equal_places(k << 32, 0), 10);
  }
  EXPECT_NE(All(kN, 1, 0), All(kN, 0, 1));  // torch adds seed and epoch, and has these equal
}

TEST(FeistelOrderTest, NeighboursDoNotStayTogether) {
  const std::vector<int64_t> all = All(100'000, 1, 1);
  double sum = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    sum += std::abs(static_cast<double>(all[i] - all[i - 1]));
  }
  // A third of n for a random order; its standard deviation over n pairs is about 0.24 n / sqrt(n).
  EXPECT_NEAR(sum / 99'999 / 100'000, 1.0 / 3, 0.004);
}

}  // namespace
}  // namespace batchd
