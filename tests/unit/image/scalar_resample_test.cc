// SPDX-License-Identifier: Apache-2.0

#include "tests/support/scalar_resample.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/image/filter_weights.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

constexpr Filter kAllFilters[] = {Filter::kNearest, Filter::kBox,     Filter::kBilinear,
                                  Filter::kHamming, Filter::kBicubic, Filter::kLanczos};

TestPicture ResizeOf(const TestPicture& in, ImageSize size, Filter filter) {
  Scratch scratch;
  TestPicture out(size);
  Resample(in.view(), size, filter, {0, 0, size.height, size.width}, out.view(), &scratch);
  return out;
}

TEST(Resample, AWindowEqualsThatPartOfTheWhole) {
  Scratch scratch;
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    Draws draws({.seed = seed});
    const auto upto = [&](int n) { return 1 + static_cast<int>(draws.NextBelow(uint32_t(n))); };
    const TestPicture in = NoisePicture({upto(40), upto(40)}, &draws);
    const ImageSize size = {upto(50), upto(50)};
    const Filter filter = kAllFilters[seed % 6];
    const int height = upto(size.height), width = upto(size.width);
    const Box window = {upto(size.height - height + 1) - 1, upto(size.width - width + 1) - 1,
                        height, width};
    const TestPicture whole = ResizeOf(in, size, filter);
    TestPicture got({height, width});
    Resample(in.view(), size, filter, window, got.view(), &scratch);
    for (int y = 0; y < height; ++y) {
      ASSERT_TRUE(
          std::equal(got.at(y, 0), got.at(y, 0) + width * 3, whole.at(window.top + y, window.left)))
          << "seed " << seed;
    }
  }
}

TEST(Resample, AFlatPictureStaysFlatUnderEveryFilter) {
  TestPicture in({37, 23});
  std::fill(in.pixels.begin(), in.pixels.end(), 200);
  for (const Filter filter : kAllFilters) {
    for (const ImageSize size : {ImageSize{1, 1}, {5, 90}, {80, 3}, {74, 46}}) {
      const TestPicture out = ResizeOf(in, size, filter);
      EXPECT_TRUE(std::all_of(out.pixels.begin(), out.pixels.end(), [](uint8_t v) {
        return v == 200;
      })) << FilterName(filter);
    }
  }
}

TEST(Resample, BoxByTwoIsTheRoundedMeanOfFour) {
  TestPicture in({2, 2});
  in.pixels = {10, 0, 255, 20, 0, 255, 30, 0, 255, 41, 1, 254};
  EXPECT_EQ(ResizeOf(in, {1, 1}, Filter::kBox).pixels, (std::vector<uint8_t>{26, 1, 255}));
}

// The order of passes changes at "shrinks by more than twice what the width loses".
TEST(Resample, TheVerticalPassComesFirstOnlyPastTheEdge) {
  Draws draws({.seed = 5});
  const TestPicture in = NoisePicture({90, 110}, &draws);
  for (const int height : {70, 69}) {
    const ImageSize size = {height, 100};
    const bool vertical_first = height == 69;
    const TestPicture between = ResizeOf(
        in, vertical_first ? ImageSize{height, 110} : ImageSize{90, 100}, Filter::kBicubic);
    EXPECT_EQ(ResizeOf(between, size, Filter::kBicubic), ResizeOf(in, size, Filter::kBicubic));
    const TestPicture other = ResizeOf(
        in, vertical_first ? ImageSize{90, 100} : ImageSize{height, 110}, Filter::kBicubic);
    EXPECT_NE(ResizeOf(other, size, Filter::kBicubic), ResizeOf(in, size, Filter::kBicubic));
  }
}

TEST(Resample, NearestAddsUpPositionsAsPillowDoes) {
  // 3 * (5/6) + 5/12 by multiplication is 2.91666, as by addition; the pixels are those of Pillow.
  int32_t got[6];
  NearestIndices(5, 6, 0, 6, got);
  EXPECT_EQ(std::vector<int32_t>(got, got + 6), (std::vector<int32_t>{0, 1, 2, 2, 3, 4}));
  int32_t tail[2];
  NearestIndices(5, 6, 4, 2, tail);
  EXPECT_EQ(tail[0], 3);
  EXPECT_EQ(tail[1], 4);
}

// Hashes made with Pillow 13.0.0 of the picture whose value i is (i * i * 7 + i * 13) mod 256.
TEST(Resample, EqualsPillow13) {
  struct Case {
    ImageSize in, out;
    uint64_t hash[6];
  };
  const Case kCases[] = {
      {{57, 83},
       {31, 40},
       {0x59335f614c07e271u, 0xd2010fd330416c7bu, 0xda6f2908e534022au, 0xb99bcd66ea9b7dd2u,
        0x344e39b33a03a4b9u, 0xee561440a3322287u}},
      {{57, 83},
       {20, 80},
       {0xeff7adec737e025bu, 0x7dcb790cb885db30u, 0xa99036fffd345da5u, 0x2594b946f643fbb4u,
        0x6c992264f31a9eedu, 0x1d87017ebfd49504u}},
      {{9, 7},
       {33, 29},
       {0x885fad7827365b2fu, 0x885fad7827365b2fu, 0x0f99c669dec73e3fu, 0x860eb888995f8041u,
        0x55be93de925b4070u, 0xa3a6548a6115cf7fu}},
      {{200, 3},
       {11, 64},
       {0xf0fc289ea4702e4du, 0x67452c5b52f0d52du, 0x3bc82820c39b34dbu, 0x8a0db41c9f7751ffu,
        0x3776b0545b01373eu, 0xa6e4d06d5b168430u}},
      {{64, 64},
       {64, 17},
       {0x578f55a7d1fb4383u, 0x4299861dce7ccec3u, 0x044d1c98efac8a23u, 0xc5aa18c59d0f7643u,
        0xd51526bf31fb3603u, 0x27d03996504fc5a3u}},
      {{64, 64},
       {7, 64},
       {0x91d81f1146aa8043u, 0x1e1af13c35905ae1u, 0xf6eba36043b7e87cu, 0x67dedcb7f8314d99u,
        0x00c150f6f4a462efu, 0x2623e70503063096u}},
      {{1, 1},
       {5, 5},
       {0xf5ab83569f290a93u, 0xf5ab83569f290a93u, 0xf5ab83569f290a93u, 0xf5ab83569f290a93u,
        0xf5ab83569f290a93u, 0xf5ab83569f290a93u}},
      {{31, 97},
       {1, 1},
       {0x661ea34f15258af9u, 0xc1ad2f518c7b71cau, 0xc1ad2f518c7b71cau, 0xc1ad2f518c7b71cau,
        0xc1ad2f518c7b71cau, 0xc1ad2f518c7b71cau}},
  };
  for (const Case& c : kCases) {
    TestPicture in(c.in);
    for (size_t i = 0; i < in.pixels.size(); ++i) in.pixels[i] = uint8_t(i * i * 7 + i * 13);
    for (int f = 0; f < 6; ++f) {
      const TestPicture out = ResizeOf(in, c.out, kAllFilters[f]);
      uint64_t hash = 1469598103934665603u;  // FNV-1a
      for (const uint8_t v : out.pixels) hash = (hash ^ v) * 1099511628211u;
      EXPECT_EQ(hash, c.hash[f]) << FilterName(kAllFilters[f]) << " " << c.in.height << "x"
                                 << c.in.width << " to " << c.out.height << "x" << c.out.width;
    }
  }
}

}  // namespace
}  // namespace batchd
