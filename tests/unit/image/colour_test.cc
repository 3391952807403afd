// SPDX-License-Identifier: Apache-2.0
//
// The colour operations against a second writing of their rules: whole pictures, one pixel at a
// time, with the C++ library's mathematics.

#include "server/image/colour.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/support/each_target.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

struct Rgb {
  int r, g, b;
};

int GreyOf(const uint8_t* p) { return (19595 * p[0] + 38470 * p[1] + 7471 * p[2] + 32768) / 65536; }

uint8_t Blended(int low, int value, double factor) {
  const float v = float(low) + float(factor) * float(value - low);
  return static_cast<uint8_t>(std::clamp(v, 0.0f, 255.0f));
}

// What each pixel, by its place, is blended with.
using Low = std::function<Rgb(int y, int x)>;
TestPicture BlendedWith(const TestPicture& in, double factor, const Low& low) {
  TestPicture out = in;
  for (int y = 0; y < in.size.height; ++y) {
    for (int x = 0; x < in.size.width; ++x) {
      const Rgb from = low(y, x);
      uint8_t* const p = out.at(y, x);
      p[0] = Blended(from.r, p[0], factor);
      p[1] = Blended(from.g, p[1], factor);
      p[2] = Blended(from.b, p[2], factor);
    }
  }
  return out;
}

TestPicture Brightness(const TestPicture& in, double factor) {
  return BlendedWith(in, factor, [](int, int) { return Rgb{0, 0, 0}; });
}

TestPicture Contrast(const TestPicture& in, double factor) {
  double sum = 0;
  for (int y = 0; y < in.size.height; ++y) {
    for (int x = 0; x < in.size.width; ++x) sum += GreyOf(in.at(y, x));
  }
  const int mean = int(sum / (in.size.height * in.size.width) + 0.5);
  return BlendedWith(in, factor, [&](int, int) { return Rgb{mean, mean, mean}; });
}

TestPicture Saturation(const TestPicture& in, double factor) {
  return BlendedWith(in, factor, [&](int y, int x) {
    const int grey = GreyOf(in.at(y, x));
    return Rgb{grey, grey, grey};
  });
}

TestPicture Sharpness(const TestPicture& in, double factor) {
  return BlendedWith(in, factor, [&](int y, int x) {
    const uint8_t* const p = in.at(y, x);
    if (y == 0 || x == 0 || y == in.size.height - 1 || x == in.size.width - 1) {
      return Rgb{p[0], p[1], p[2]};
    }
    int mean[3];
    for (int c = 0; c < 3; ++c) {
      int sum = 4 * p[c];
      for (int j = -1; j <= 1; ++j) {
        for (int i = -1; i <= 1; ++i) sum += in.at(y + j, x + i)[c];
      }
      mean[c] = int(std::floor(sum / 13.0 + 0.5));
    }
    return Rgb{mean[0], mean[1], mean[2]};
  });
}

// As transform_rules.py has it, with its types.
Rgb HueTurned(const uint8_t* p, int steps) {
  const float r = p[0], g = p[1], b = p[2];
  const float high = std::max({r, g, b}), range = high - std::min({r, g, b});
  int h8 = 0, s8 = 0;
  if (range != 0) {
    const float rc = (high - r) / range, gc = (high - g) / range, bc = (high - b) / range;
    float h;
    if (r == high) {
      h = bc - gc;
    } else if (g == high) {
      h = float(2.0 + rc - bc);
    } else {
      h = float(4.0 + gc - rc);
    }
    h = float(std::fmod(h / 6.0 + 1.0, 1.0));
    h8 = std::clamp(int(h * 255.0), 0, 255);
    s8 = std::clamp(int(range / high * 255.0), 0, 255);
  }
  h8 = (h8 + steps + 256) % 256;
  const int v = int(high);
  if (s8 == 0) return {v, v, v};
  const float fh = float(h8 * 6.0 / 255.0), fs = float(s8 / 255.0);
  const int sixth = int(std::floor(fh));
  const float f = fh - float(sixth);
  const auto half_up = [](double x) { return int(std::floor(double(float(x)) + 0.5)); };
  const int least = half_up(v * (1.0 - fs));
  const int falling = half_up(v * (1.0 - double(fs * f)));
  const int rising = half_up(v * (1.0 - fs * (1.0 - f)));
  const Rgb all[6] = {{v, rising, least},  {falling, v, least}, {least, v, rising},
                      {least, falling, v}, {rising, least, v},  {v, least, falling}};
  return all[sixth % 6];
}

TestPicture Hue(const TestPicture& in, double turn) {
  // A blend with factor 0 gives what it blends with.
  return BlendedWith(in, 0, [&](int y, int x) { return HueTurned(in.at(y, x), int(turn * 255)); });
}

// Noise, or what photographs have more of: few levels, near-grey, flat.
TestPicture RandomPicture(Draws* draws) {
  const auto upto = [&](uint32_t n) { return 1 + int(draws->NextBelow(n)); };
  TestPicture picture = NoisePicture({upto(40), upto(150)}, draws);
  const int kind = int(draws->NextBelow(3));
  const int base = int(draws->NextBelow(230)), spread = upto(25);
  for (uint8_t& v : picture.pixels) {
    if (kind == 1) v = uint8_t(base + v % spread);
    if (kind == 2) v = uint8_t(v / 100 * 100 + 55);
  }
  return picture;
}

using Rule = TestPicture (*)(const TestPicture&, double);
using Kernel = void (*)(const Picture&, double);

void ExpectEqual(Kernel kernel, Rule rule, double least, double most) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Draws draws({.seed = seed, .op_id = 5});
    TestPicture picture = RandomPicture(&draws);
    const double factor = seed % 10 == 0 ? std::round(draws.NextUniform(least, most))
                                         : draws.NextUniform(least, most);
    const TestPicture want = rule(picture, factor);
    kernel(picture.view(), factor);
    ASSERT_EQ(picture, want) << "seed " << seed << ", factor " << factor;
  }
}

TEST(Colour, BlendsEqualTheirRulesOnEachTarget) {
  ForEachTarget([] {
    ExpectEqual(AdjustBrightness, Brightness, 0, 3);
    ExpectEqual(AdjustContrast, Contrast, 0, 3);
    ExpectEqual(AdjustSaturation, Saturation, 0, 3);
    ExpectEqual(AdjustBrightness, Brightness, 0, 1e10);
    const Kernel sharpness = [](const Picture& picture, double factor) {
      std::vector<uint8_t> scratch(SharpnessScratchBytes(picture.width));
      AdjustSharpness(picture, factor, scratch.data());
    };
    ExpectEqual(sharpness, Sharpness, 0, 3);
  });
}

TEST(Colour, HueEqualsItsRuleOnEachTarget) {
  ForEachTarget([] { ExpectEqual(AdjustHue, Hue, -0.5, 0.5); });
}

// All that can happen on the way to HSV: every colour, with a turn that differs from row to row.
TEST(Colour, HueEqualsItsRuleForEveryColour) {
  TestPicture picture({256, 256});
  for (int red = 0; red < 256; ++red) {
    for (int green = 0; green < 256; ++green) {
      for (int blue = 0; blue < 256; ++blue) {
        uint8_t* const p = picture.at(green, blue);
        p[0] = uint8_t(red), p[1] = uint8_t(green), p[2] = uint8_t(blue);
      }
    }
    const double turn = (red % 255 - 127) / 255.0;
    const TestPicture want = Hue(picture, turn);
    AdjustHue(picture.view(), turn);
    ASSERT_EQ(picture, want) << "red " << red;
  }
}

// Rows that lie apart: what is between them stays.
TEST(Colour, LeavesAloneWhatIsBehindARow) {
  Draws draws({.seed = 3});
  const TestPicture before = NoisePicture({9, 30}, &draws);
  TestPicture picture = before;
  const Picture part = {picture.at(2, 3), 5, 17, int64_t{30} * 3};
  std::vector<uint8_t> scratch(SharpnessScratchBytes(17));
  AdjustBrightness(part, 0.3);
  AdjustContrast(part, 0.3);
  AdjustSaturation(part, 0.3);
  AdjustHue(part, 0.3);
  AdjustSharpness(part, 0.3, scratch.data());
  Autocontrast(part);
  Equalize(part);
  Posterize(part, 3);
  Solarize(part, 99);
  Invert(part);
  for (int y = 0; y < 9; ++y) {
    for (int x = 0; x < 30; ++x) {
      if (y >= 2 && y < 7 && x >= 3 && x < 20) continue;
      ASSERT_TRUE(std::equal(picture.at(y, x), picture.at(y, x) + 3, before.at(y, x)));
    }
  }
}

TEST(Colour, FactorOneChangesNothing) {
  Draws draws({.seed = 4});
  const TestPicture before = NoisePicture({11, 70}, &draws);
  TestPicture picture = before;
  std::vector<uint8_t> scratch(SharpnessScratchBytes(70));
  AdjustBrightness(picture.view(), 1);
  AdjustContrast(picture.view(), 1);
  AdjustSaturation(picture.view(), 1);
  AdjustSharpness(picture.view(), 1, scratch.data());
  EXPECT_EQ(picture, before);
}

TestPicture Row(const std::vector<int>& reds) {
  TestPicture picture({1, int(reds.size())});
  for (size_t x = 0; x < reds.size(); ++x) picture.at(0, int(x))[0] = uint8_t(reds[x]);
  return picture;
}

std::vector<int> Reds(const TestPicture& picture) {
  std::vector<int> reds;
  for (int x = 0; x < picture.size.width; ++x) reds.push_back(picture.at(0, x)[0]);
  return reds;
}

TEST(Colour, PointOperations) {
  const std::vector<int> levels = {0, 1, 127, 128, 129, 254, 255};
  TestPicture picture = Row(levels);
  Invert(picture.view());
  EXPECT_EQ(Reds(picture), (std::vector<int>{255, 254, 128, 127, 126, 1, 0}));
  picture = Row(levels);
  Solarize(picture.view(), 128);
  EXPECT_EQ(Reds(picture), (std::vector<int>{0, 1, 127, 127, 126, 1, 0}));
  picture = Row(levels);
  Solarize(picture.view(), 128.5);
  EXPECT_EQ(Reds(picture), (std::vector<int>{0, 1, 127, 128, 126, 1, 0}));
  picture = Row(levels);
  Posterize(picture.view(), 1);
  EXPECT_EQ(Reds(picture), (std::vector<int>{0, 0, 0, 128, 128, 128, 128}));
  picture = Row(levels);
  Posterize(picture.view(), 0);
  EXPECT_EQ(Reds(picture), (std::vector<int>(7, 0)));
  picture = Row(levels);
  Posterize(picture.view(), 8);
  EXPECT_EQ(Reds(picture), levels);
}

TEST(Colour, AutocontrastStretchesEachChannel) {
  TestPicture picture = Row({50, 51, 100, 150});
  Autocontrast(picture.view());
  EXPECT_EQ(Reds(picture), (std::vector<int>{0, 2, 127, 255}));  // 2.55, 127.5
  EXPECT_EQ(picture.at(0, 0)[1], 0);                             // one level: as it is
}

TEST(Colour, EqualizeMakesTheHistogramFlat) {
  // 1020 pixels of which 510 have the last level: a step of 2.
  std::vector<int> levels(1020, 200);
  for (int i = 0; i < 510; ++i) levels[size_t(i)] = i / 5;
  TestPicture picture = Row(levels);
  Equalize(picture.view());
  EXPECT_EQ(Reds(picture)[0], 0);   // (1 + 0) / 2
  EXPECT_EQ(Reds(picture)[5], 3);   // (1 + 5) / 2
  EXPECT_EQ(Reds(picture)[10], 5);  // (1 + 10) / 2
  EXPECT_EQ(Reds(picture)[600], 255);
  picture = Row({9, 7, 7});  // too few pixels: as they are
  Equalize(picture.view());
  EXPECT_EQ(Reds(picture), (std::vector<int>{9, 7, 7}));
}

TEST(Colour, GreyIsOneLevelInThreeChannels) {
  TestPicture picture({1, 3});
  const uint8_t colours[3][3] = {{255, 0, 0}, {10, 20, 30}, {173, 0, 191}};  // the last is a half
  for (int x = 0; x < 3; ++x) std::copy_n(colours[x], 3, picture.at(0, x));
  Grayscale(picture.view());
  const int greys[3] = {76, 18, 74};
  for (int x = 0; x < 3; ++x) {
    for (int c = 0; c < 3; ++c) EXPECT_EQ(picture.at(0, x)[c], greys[x]);
  }
}

}  // namespace
}  // namespace batchd
