// SPDX-License-Identifier: Apache-2.0
#include "server/memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

TEST(SegmentTest, CannotBeResizedByWhoeverHoldsItsDescriptor) {
  Budget budget("slabs", 1 << 20);
  const auto segment = Segment::Create(2, 4096, &budget);
  ASSERT_OK(segment);

  EXPECT_NE(ftruncate((*segment)->fd(), 0), 0);
  EXPECT_NE(ftruncate((*segment)->fd(), 1 << 20), 0);

  EXPECT_EQ((*segment)->slab(1) - (*segment)->slab(0), 4096);
  EXPECT_EQ((*segment)->slab(1)[4095], 0);
}

TEST(SegmentTest, AnotherMappingSeesTheSameBytes) {
  Budget budget("slabs", 1 << 20);
  const auto segment = Segment::Create(1, 4096, &budget);
  ASSERT_OK(segment);
  void* other = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (*segment)->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);

  (*segment)->slab(0)[17] = 42;

  EXPECT_EQ(static_cast<uint8_t*>(other)[17], 42);
  munmap(other, 4096);
}

TEST(SegmentTest, GivesItsBytesBackToTheBudget) {
  Budget budget("slabs", 8192);
  {
    const auto segment = Segment::Create(2, 4096, &budget);
    ASSERT_OK(segment);
    EXPECT_EQ(budget.used_bytes(), 8192);
    EXPECT_THAT(Segment::Create(1, 4096, &budget),
                FailsWith(absl::StatusCode::kResourceExhausted, "8192 of 8192 are in use"));
  }
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(SegmentTest, MemoryThatTheKernelRefusesIsAnErrorAndLeavesNothing) {
  Budget budget("slabs", 1 << 20);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, RLIM_INFINITY};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  setrlimit(RLIMIT_FSIZE, &small);

  const auto segment = Segment::Create(2, 4096, &budget);

  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(segment, FailsWith(absl::StatusCode::kResourceExhausted, "fallocate"));
  EXPECT_EQ(budget.used_bytes(), 0);
}

}  // namespace
}  // namespace batchd
