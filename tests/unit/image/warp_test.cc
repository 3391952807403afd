// SPDX-License-Identifier: Apache-2.0

#include "server/image/warp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "server/image/fixed_math.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

constexpr std::array<uint8_t, 3> kFill = {9, 99, 199};
constexpr Filter kFilters[] = {Filter::kNearest, Filter::kBilinear, Filter::kBicubic};

TestPicture Warped(const TestPicture& in, const WarpMatrix& matrix, Filter filter, ImageSize size) {
  TestPicture out(size);
  Warp(in.view(), matrix, filter, kFill, out.view());
  return out;
}

TestPicture Rotated(const TestPicture& in, double degrees, Filter filter, bool expand) {
  const Rotation rotation = RotationOf(in.size, degrees, std::nullopt, expand);
  return Warped(in, rotation.matrix, filter, rotation.size);
}

TestPicture QuarterTurned(const TestPicture& in) {  // counter-clockwise
  TestPicture out({in.size.width, in.size.height});
  for (int y = 0; y < out.size.height; ++y) {
    for (int x = 0; x < out.size.width; ++x) {
      std::copy_n(in.at(x, in.size.width - 1 - y), 3, out.at(y, x));
    }
  }
  return out;
}

TEST(Warp, QuarterTurnsWithExpandLoseNothing) {
  Draws draws({.seed = 1});
  for (const ImageSize size : {ImageSize{5, 8}, {8, 5}, {7, 7}, {1, 4}, {6, 6}, {1, 1}}) {
    const TestPicture in = NoisePicture(size, &draws);
    TestPicture turned = in;
    for (int quarters = 0; quarters <= 8; ++quarters, turned = QuarterTurned(turned)) {
      for (const Filter filter : kFilters) {
        EXPECT_EQ(Rotated(in, 90.0 * quarters, filter, true), turned) << quarters;
        EXPECT_EQ(Rotated(in, 90.0 * (quarters - 8), filter, true), turned) << quarters;
      }
    }
  }
}

TEST(Warp, IdentityAndWholeTranslations) {
  Draws draws({.seed = 2});
  const TestPicture in = NoisePicture({7, 9}, &draws);
  for (const Filter filter : kFilters) {
    EXPECT_EQ(Warped(in, AffineMatrix(in.size, {}, std::nullopt), filter, in.size), in);
    const WarpMatrix moved =
        AffineMatrix(in.size, {.translate_x = 2, .translate_y = -3}, std::nullopt);
    const TestPicture out = Warped(in, moved, filter, in.size);
    for (int y = 0; y < 7; ++y) {
      for (int x = 0; x < 9; ++x) {
        const bool inside = x >= 2 && y + 3 < 7;
        const uint8_t* const want = inside ? in.at(y + 3, x - 2) : kFill.data();
        EXPECT_TRUE(std::equal(want, want + 3, out.at(y, x))) << y << ' ' << x;
      }
    }
  }
}

// The rule of each filter, one value at a time.
uint8_t BilinearAt(const TestPicture& in, double x, double y, int c) {
  const auto at = [&](int j, int i) {
    return double(
        in.at(std::clamp(j, 0, in.size.height - 1), std::clamp(i, 0, in.size.width - 1))[c]);
  };
  const int i = int(std::floor(x - 0.5)), j = int(std::floor(y - 0.5));
  const double tx = x - 0.5 - i, ty = y - 0.5 - j;
  const double top = at(j, i) + (at(j, i + 1) - at(j, i)) * tx;
  const double low = at(j + 1, i) + (at(j + 1, i + 1) - at(j + 1, i)) * tx;
  return uint8_t(top + (low - top) * ty);
}

uint8_t BicubicAt(const TestPicture& in, double x, double y, int c) {
  const auto weight = [](double d) {  // a = -1
    d = std::abs(d);
    if (d < 1) return (d - 2) * d * d + 1;
    return d < 2 ? ((-d + 5) * d - 8) * d + 4 : 0.0;
  };
  const int i0 = int(std::floor(x - 0.5)), j0 = int(std::floor(y - 0.5));
  double sum = 0;
  for (int j = j0 - 1; j <= j0 + 2; ++j) {
    for (int i = i0 - 1; i <= i0 + 2; ++i) {
      const int value =
          in.at(std::clamp(j, 0, in.size.height - 1), std::clamp(i, 0, in.size.width - 1))[c];
      sum += value * weight(x - 0.5 - i) * weight(y - 0.5 - j);
    }
  }
  return uint8_t(std::clamp(sum + 1e-9, 0.0, 255.0));
}

WarpMatrix RandomMatrix(ImageSize size, Draws* draws) {
  if (draws->NextBelow(2) == 0) {
    return RotationOf(size, draws->NextUniform(-400, 400), std::nullopt, false).matrix;
  }
  return AffineMatrix(size,
                      {.degrees = draws->NextUniform(-180, 180),
                       .translate_x = draws->NextUniform(-9, 9),
                       .translate_y = draws->NextUniform(-9, 9),
                       .scale = draws->NextUniform(0.3, 3),
                       .shear_x_degrees = draws->NextUniform(-50, 50),
                       .shear_y_degrees = draws->NextUniform(-50, 50)},
                      WarpPoint{draws->NextUniform(0, 20), draws->NextUniform(0, 20)});
}

TEST(Warp, EqualsItsRulesAtRandom) {
  int64_t values = 0, bicubic_off = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draws draws({.seed = seed, .op_id = 9});
    const auto upto = [&](uint32_t n) { return 1 + int(draws.NextBelow(n)); };
    const TestPicture in = NoisePicture({upto(40), upto(40)}, &draws);
    const WarpMatrix m = RandomMatrix(in.size, &draws);
    const ImageSize size = {upto(40), upto(40)};
    const TestPicture nearest = Warped(in, m, Filter::kNearest, size);
    const TestPicture bilinear = Warped(in, m, Filter::kBilinear, size);
    const TestPicture bicubic = Warped(in, m, Filter::kBicubic, size);
    const auto fixed = [](double v) { return int64_t(std::floor(v * 65536 + 0.5)); };
    for (int y = 0; y < size.height; ++y) {
      for (int x = 0; x < size.width; ++x) {
        const int64_t fx = fixed(m.c + m.a * 0.5 + m.b * 0.5) + x * fixed(m.a) + y * fixed(m.b);
        const int64_t fy = fixed(m.f + m.d * 0.5 + m.e * 0.5) + x * fixed(m.d) + y * fixed(m.e);
        const bool near_inside =
            fx >= 0 && fy >= 0 && fx >> 16 < in.size.width && fy >> 16 < in.size.height;
        const double px = m.a * (x + 0.5) + m.b * (y + 0.5) + m.c;
        const double py = m.d * (x + 0.5) + m.e * (y + 0.5) + m.f;
        const bool inside = px >= 0 && py >= 0 && px < in.size.width && py < in.size.height;
        for (int c = 0; c < 3; ++c, ++values) {
          ASSERT_EQ(nearest.at(y, x)[c],
                    near_inside ? in.at(int(fy >> 16), int(fx >> 16))[c] : kFill[size_t(c)])
              << "seed " << seed;
          ASSERT_EQ(bilinear.at(y, x)[c], inside ? BilinearAt(in, px, py, c) : kFill[size_t(c)])
              << "seed " << seed;
          const int cubic = inside ? BicubicAt(in, px, py, c) : kFill[size_t(c)];
          ASSERT_LE(std::abs(bicubic.at(y, x)[c] - cubic), 1) << "seed " << seed;
          bicubic_off += bicubic.at(y, x)[c] != cubic;
        }
      }
    }
  }
  EXPECT_LE(bicubic_off, values / 100000);  // the weights' form rounds differently
}

// The numbers are Pillow's, from Image.rotate(expand=True).
TEST(Warp, ExpandGivesTheBoundingBox) {
  const auto size_of = [](ImageSize in, double degrees) {
    return RotationOf(in, degrees, std::nullopt, true).size;
  };
  EXPECT_EQ(size_of({48, 64}, 30), (ImageSize{74, 80}));
  EXPECT_EQ(size_of({48, 64}, 45), (ImageSize{80, 80}));
  EXPECT_EQ(size_of({48, 64}, -17.5), (ImageSize{66, 76}));
  EXPECT_EQ(size_of({48, 64}, 180), (ImageSize{48, 64}));
  EXPECT_EQ(size_of({48, 64}, 0), (ImageSize{48, 64}));
}

TEST(Warp, APlaceFarOutsideIsOutside) {
  Draws draws({.seed = 3});
  const TestPicture in = NoisePicture({4, 4}, &draws);
  TestPicture filled({4, 4});
  for (int i = 0; i < 16; ++i) std::copy_n(kFill.data(), 3, filled.at(i / 4, i % 4));
  for (const Filter filter : kFilters) {
    for (const double far : {1e5, -1e5, 1e300, -1e300}) {
      EXPECT_EQ(Warped(in, {1, 0, far, 0, 1, 0}, filter, {4, 4}), filled) << far;
      EXPECT_EQ(Warped(in, {1, 0.5, 0, 0.5, 1, far}, filter, {4, 4}), filled) << far;
    }
  }
}

// Places beyond 16.16 fixed point beside places inside: sums in double, as Pillow.
TEST(Warp, NearestHoldsBeyondFixedPoint) {
  Draws draws({.seed = 4});
  const TestPicture in = NoisePicture({4, 4}, &draws);
  const WarpMatrix m = {20000, 0.001, -19999, 0, 1, 0};
  const TestPicture out = Warped(in, m, Filter::kNearest, {4, 4});
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 4; ++x) {
      EXPECT_TRUE(std::equal(kFill.begin(), kFill.end(), out.at(y, x))) << y << ' ' << x;
    }
  }
  const WarpMatrix n = {20000, 0.001, -9998.5, 0, 1, 0};  // column 0 is at 1.5
  const TestPicture hit = Warped(in, n, Filter::kNearest, {4, 4});
  for (int y = 0; y < 4; ++y) {
    EXPECT_TRUE(std::equal(in.at(y, 1), in.at(y, 1) + 3, hit.at(y, 0)));
    EXPECT_TRUE(std::equal(kFill.begin(), kFill.end(), hit.at(y, 1)));
  }
}

}  // namespace
}  // namespace batchd
