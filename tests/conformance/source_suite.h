// SPDX-License-Identifier: Apache-2.0
//
// What every source does. A source's test makes a SourceWorld, which puts objects where the source
// finds them, and instantiates SourceSuite with it.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/source/source.h"
#include "tests/support/status_matchers.h"

namespace batchd {

class SourceWorld {
 public:
  virtual ~SourceWorld() = default;
  // Makes or replaces an object; returns the path that a SampleLocation has for it.
  virtual std::string Put(const std::string& name, const std::string& bytes) = 0;
  // The path of an object that is not there.
  virtual std::string Missing() = 0;
  virtual Source* source() = 0;
};

using SourceWorldFactory = std::function<std::unique_ptr<SourceWorld>()>;

class SourceSuite : public testing::TestWithParam<SourceWorldFactory> {
 protected:
  static constexpr size_t kNoLimit = size_t{1} << 40;

  void SetUp() override {
    world_ = GetParam()();
    ASSERT_NE(world_, nullptr);
  }
  std::string Text() const {
    return {reinterpret_cast<const char*>(buffer_.bytes().data()), buffer_.bytes().size()};
  }
  absl::Status Read(const SampleLocation& location) {
    return world_->source()->Read(location, kNoLimit, &buffer_);
  }
  // Both ways to read must agree wherever TryRead does not defer.
  void ExpectBad(const SampleLocation& location, SampleReason reason) {
    EXPECT_THAT(Read(location), IsBadSample(reason));
    const auto tried = world_->source()->TryRead(location, kNoLimit, &buffer_);
    if (!tried.ok() || *tried != TryReadResult::kWouldWait) {
      EXPECT_THAT(tried, IsBadSample(reason));
    }
  }

  std::unique_ptr<SourceWorld> world_;
  ReadBuffer buffer_;
};

TEST_P(SourceSuite, ReadsWhatWasPut) {
  const std::string bytes("a\0b\nc\xFF", 6);
  ASSERT_OK(Read({world_->Put("x.jpg", bytes)}));
  EXPECT_EQ(Text(), bytes);
}

TEST_P(SourceSuite, TryReadGivesTheSameBytesOrDefers) {
  const SampleLocation location = {world_->Put("x.jpg", std::string(100'000, 'q'))};
  ASSERT_OK(Read(location));
  ReadBuffer tried;
  const auto result = world_->source()->TryRead(location, kNoLimit, &tried);
  ASSERT_OK(result);
  if (*result == TryReadResult::kRead) {
    EXPECT_TRUE(std::ranges::equal(tried.bytes(), buffer_.bytes()));
  }
}

TEST_P(SourceSuite, TryReadTakesNoMoreThanItIsAllowed) {
  const SampleLocation location = {world_->Put("x.jpg", std::string(1000, 'q'))};
  ASSERT_OK(Read(location));
  const auto result = world_->source()->TryRead(location, 999, &buffer_);
  ASSERT_OK(result);
  EXPECT_EQ(*result, TryReadResult::kWouldWait);
}

TEST_P(SourceSuite, ReadsAPart) {
  const std::string path = world_->Put("x.jpg", "0123456789");
  ASSERT_OK(Read({path, 3, 4}));
  EXPECT_EQ(Text(), "3456");
  ASSERT_OK(Read({path, 7, -1}));
  EXPECT_EQ(Text(), "789");
  ASSERT_OK(Read({path, 0, 10}));
  EXPECT_EQ(Text(), "0123456789");
}

TEST_P(SourceSuite, APartThatIsNotThereIsCorrupt) {
  const std::string path = world_->Put("x.jpg", "0123456789");
  ExpectBad({path, 3, 8}, SampleReason::kCorrupt);
  ExpectBad({path, 11, -1}, SampleReason::kCorrupt);
  ExpectBad({path, 11, 0}, SampleReason::kCorrupt);
}

TEST_P(SourceSuite, NoBytesAreEmpty) {
  ExpectBad({world_->Put("zero.jpg", "")}, SampleReason::kEmpty);
  ExpectBad({world_->Put("x.jpg", "0123"), 2, 0}, SampleReason::kEmpty);
  ExpectBad({world_->Put("x.jpg", "0123"), 4, -1}, SampleReason::kEmpty);
}

TEST_P(SourceSuite, WhatIsNotThereIsNotFound) {
  ExpectBad({world_->Missing()}, SampleReason::kNotFound);
}

TEST_P(SourceSuite, AboveTheLimitIsTooLarge) {
  const SampleLocation location = {world_->Put("x.jpg", "0123456789")};
  EXPECT_THAT(world_->source()->Read(location, 9, &buffer_), IsBadSample(SampleReason::kTooLarge));
  EXPECT_OK(world_->source()->Read(location, 10, &buffer_));
}

TEST_P(SourceSuite, AGoodReadFollowsABadOne) {
  const std::string path = world_->Put("x.jpg", "good");
  EXPECT_FALSE(Read({world_->Missing()}).ok());
  ASSERT_OK(Read({path}));
  EXPECT_EQ(Text(), "good");
}

TEST_P(SourceSuite, ManyThreadsReadAtOnce) {
  std::vector<SampleLocation> locations;
  for (char c = 'a'; c < 'i'; ++c) {
    locations.push_back({world_->Put(std::string(1, c), std::string(5000, c))});
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ReadBuffer buffer;
      for (size_t i = 0; i < 200; ++i) {
        const size_t which = (i * 3 + t) % locations.size();
        const bool ok = world_->source()->Read(locations[which], kNoLimit, &buffer).ok();
        const std::string want(5000, static_cast<char>('a' + which));
        if (!ok || !std::ranges::equal(buffer.bytes(), want)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace batchd
