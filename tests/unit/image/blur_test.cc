// SPDX-License-Identifier: Apache-2.0

#include "server/image/blur.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/each_target.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

TestPicture Blurred(TestPicture picture, const GaussianKernel& kernel) {
  const size_t size = BlurScratchBytes(picture.size, kernel);
  std::vector<uint8_t> memory(size + 63, 0x7F);  // 0x7F7F7F7F is a large float
  uint8_t* const scratch =
      memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  GaussianBlur(picture.view(), kernel, scratch);
  return picture;
}

int MirroredIndex(int i, int size) {
  while (size > 1 && (i < 0 || i >= size)) i = i < 0 ? -i : 2 * (size - 1) - i;
  return size == 1 ? 0 : i;
}

std::vector<double> Weights(int size, double sigma) {
  std::vector<double> weights;
  double sum = 0;
  for (int k = 0; k < size; ++k) {
    const double d = k - size / 2;
    weights.push_back(std::exp(-d * d / (2 * sigma * sigma)));
    sum += weights.back();
  }
  for (double& w : weights) w /= sum;
  return weights;
}

// The definition, in double and two dimensions.
double BlurredAt(const TestPicture& in, const GaussianKernel& kernel, int y, int x, int c) {
  const auto across = Weights(kernel.size_x, kernel.sigma_x);
  const auto down = Weights(kernel.size_y, kernel.sigma_y);
  double sum = 0;
  for (int j = 0; j < kernel.size_y; ++j) {
    for (int i = 0; i < kernel.size_x; ++i) {
      const int row = MirroredIndex(y + j - kernel.size_y / 2, in.size.height);
      const int column = MirroredIndex(x + i - kernel.size_x / 2, in.size.width);
      sum += across[size_t(i)] * down[size_t(j)] * in.at(row, column)[c];
    }
  }
  return sum;
}

GaussianKernel RandomKernel(Draws* draws) {
  const auto side = [&] { return 1 + 2 * int(draws->NextBelow(6)); };
  return {side(), side(), draws->NextUniform(0.1, 4), draws->NextUniform(0.1, 4)};
}

TEST(Blur, IsTheDefinitionRoundedOnEachTarget) {
  ForEachTarget([] {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      Draws draws({.seed = seed, .op_id = 11});
      const auto upto = [&](uint32_t n) { return 1 + int(draws.NextBelow(n)); };
      const TestPicture in = NoisePicture({upto(20), upto(40)}, &draws);
      const GaussianKernel kernel = RandomKernel(&draws);
      const TestPicture out = Blurred(in, kernel);
      for (int y = 0; y < in.size.height; ++y) {
        for (int x = 0; x < in.size.width; ++x) {
          for (int c = 0; c < 3; ++c) {
            ASSERT_NEAR(out.at(y, x)[c], BlurredAt(in, kernel, y, x, c), 0.5 + 1e-4)
                << "seed " << seed << ' ' << y << ' ' << x;
          }
        }
      }
    }
  });
}

// Also where it could go either way: the bytes do not depend on the machine.
TEST(Blur, EveryTargetGivesTheSameBytes) {
  Draws draws({.seed = 1});
  const TestPicture in = NoisePicture({120, 133}, &draws);
  const GaussianKernel kernel = {23, 9, 1.7, 0.8};
  const TestPicture first = Blurred(in, kernel);
  ForEachTarget([&] { ASSERT_EQ(Blurred(in, kernel), first); });
  uint32_t sum = 0;
  for (const uint8_t v : first.pixels) sum = sum * 31 + v;
  EXPECT_EQ(sum, 496624424u);
}

TEST(Blur, FlatPicturesAndKernelsOfOnePixelChangeNothing) {
  Draws draws({.seed = 2});
  const TestPicture in = NoisePicture({6, 31}, &draws);
  EXPECT_EQ(Blurred(in, {1, 1, 3, 3}), in);
  EXPECT_EQ(Blurred(in, {23, 23, 1e-3, 1e-3}), in);
  for (const int level : {0, 1, 127, 255}) {
    TestPicture flat({9, 14});
    std::fill(flat.pixels.begin(), flat.pixels.end(), uint8_t(level));
    EXPECT_EQ(Blurred(flat, {255, 255, 40, 40}), flat) << level;
  }
}

TEST(Blur, LeavesAloneWhatIsBehindARow) {
  Draws draws({.seed = 3});
  const TestPicture before = NoisePicture({9, 30}, &draws);
  TestPicture picture = before;
  const GaussianKernel kernel = {5, 5, 2, 2};
  std::vector<uint8_t> memory(BlurScratchBytes({5, 17}, kernel) + 63);
  uint8_t* const scratch =
      memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  GaussianBlur({picture.at(2, 3), 5, 17, int64_t{30} * 3}, kernel, scratch);
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 30; ++x) {
      if (y >= 2 && y < 7 && x >= 3 && x < 20) continue;
      ASSERT_TRUE(std::equal(picture.at(y, x), picture.at(y, x) + 3, before.at(y, x)));
    }
  }
}

}  // namespace
}  // namespace batchd
