// SPDX-License-Identifier: Apache-2.0

#include "server/image/scratch.h"

#include <gtest/gtest.h>

#include <cstring>

namespace batchd {
namespace {

TEST(Scratch, GivesAlignedMemoryThatMayBeWritten) {
  Scratch scratch;
  for (const size_t size : {0, 1, 63, 64, 65, 100000}) {
    uint8_t* const data = scratch.Get(ScratchArea::kRows, size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    std::memset(data, 1, size);
  }
}

TEST(Scratch, ASmallerRequestTakesTheSameMemoryAgain) {
  Scratch scratch;
  uint8_t* const data = scratch.Get(ScratchArea::kPictureA, 5000);
  const size_t held = scratch.held_bytes();
  EXPECT_EQ(scratch.Get(ScratchArea::kPictureA, 5000), data);
  EXPECT_EQ(scratch.Get(ScratchArea::kPictureA, 10), data);
  EXPECT_EQ(scratch.held_bytes(), held);
}

TEST(Scratch, AreasDoNotOverlap) {
  Scratch scratch;
  uint8_t* const a = scratch.Get(ScratchArea::kPictureA, 100);
  uint8_t* const b = scratch.Get(ScratchArea::kPictureB, 100);
  std::memset(a, 1, 100);
  std::memset(b, 2, 100);
  EXPECT_EQ(a[99], 1);
}

TEST(Scratch, ReleaseLargeFreesOnlyWhatIsAboveTheLimit) {
  Scratch scratch;
  uint8_t* const kept = scratch.Get(ScratchArea::kPictureA, kScratchKeepBytes);
  scratch.Get(ScratchArea::kPictureB, kScratchKeepBytes + 1);
  scratch.ReleaseLarge();
  EXPECT_EQ(scratch.held_bytes(), kScratchKeepBytes);
  EXPECT_EQ(scratch.Get(ScratchArea::kPictureA, 1), kept);
}

TEST(Scratch, ReleaseLargeOfOneAreaLeavesTheOthers) {
  Scratch scratch;
  scratch.Get(ScratchArea::kDecoder, kScratchKeepBytes + 1);
  scratch.Get(ScratchArea::kPictureA, kScratchKeepBytes + 1);
  const size_t both = scratch.held_bytes();
  scratch.ReleaseLarge(ScratchArea::kDecoder);
  EXPECT_EQ(scratch.held_bytes(), both / 2);
}

}  // namespace
}  // namespace batchd
