// SPDX-License-Identifier: Apache-2.0

#include "server/image/fixed_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "server/base/philox.h"

namespace batchd {
namespace {

// In units of the last place of `want`.
double UlpsApart(double got, long double want) {
  const double rounded = static_cast<double>(want);
  const double ulp = std::nextafter(std::abs(rounded), INFINITY) - std::abs(rounded);
  return static_cast<double>(std::abs(got - want) / ulp);
}

TEST(FixedMath, SineAndCosineAreWithinTwoUnitsOfTheTrueValue) {
  Draws draws({.seed = 1});
  for (int i = 0; i < 60000; ++i) {
    const double x = draws.NextUniform(-32, 32);
    // Beside a zero, what counts is the error against 1.
    EXPECT_LT(std::abs(FixedSin(x) - std::sin(static_cast<long double>(x))), 0x1p-52) << x;
    EXPECT_LT(std::abs(FixedCos(x) - std::cos(static_cast<long double>(x))), 0x1p-52) << x;
  }
  for (int i = 0; i < 5000; ++i) {
    const double x = draws.NextUniform(-1.5, 1.5);
    EXPECT_LT(UlpsApart(FixedSin(x), std::sin(static_cast<long double>(x))), 2) << x;
    EXPECT_LT(UlpsApart(FixedCos(x), std::cos(static_cast<long double>(x))), 2) << x;
  }
  EXPECT_EQ(FixedSin(0.0), 0.0);
  EXPECT_EQ(FixedCos(0.0), 1.0);
}

TEST(FixedMath, ExponentialIsWithinTwoUnitsOfTheTrueValue) {
  Draws draws({.seed = 2});
  for (int i = 0; i < 30000; ++i) {
    const double x = i % 2 ? draws.NextUniform(-7, 7) : draws.NextUniform(-700, 700);
    EXPECT_LT(UlpsApart(FixedExp(x), std::exp(static_cast<long double>(x))), 2) << x;
  }
  EXPECT_EQ(FixedExp(0.0), 1.0);
}

TEST(FixedMath, LogarithmIsWithinTwoUnitsOfTheTrueValue) {
  Draws draws({.seed = 3});
  for (int i = 0; i < 30000; ++i) {
    const double x =
        i % 3 ? draws.NextUniform(1e-3, 4) : std::ldexp(1 + draws.NextUniform(), i % 900);
    EXPECT_LT(UlpsApart(FixedLog(x), std::log(static_cast<long double>(x))), 2) << x;
  }
  EXPECT_EQ(FixedLog(1.0), 0.0);
}

// long double has 64 bits: where it is clearly nearer to one double, that one must come.
TEST(FixedMath, NearestFunctionsGiveTheNearestDouble) {
  if (std::numeric_limits<long double>::digits < 64)
    GTEST_SKIP() << "no wider type to compare with";
  const auto expect_nearest = [](double got, long double want) {
    EXPECT_LT(UlpsApart(got, want), 0.501) << static_cast<double>(want);
  };
  Draws draws({.seed = 4});
  for (int i = 0; i < 30000; ++i) {
    const double x = i % 2 ? draws.NextUniform(-7, 7) : draws.NextUniform(-1000, 1000);
    const auto wide = static_cast<long double>(x);
    expect_nearest(NearestSin(x), std::sin(wide));
    expect_nearest(NearestCos(x), std::cos(wide));
    expect_nearest(NearestTan(x), std::tan(wide));
    expect_nearest(NearestArctan(x), std::atan(wide));
  }
  EXPECT_EQ(NearestSin(0), 0.0);
  EXPECT_EQ(NearestCos(0), 1.0);
  EXPECT_EQ(NearestArctan(0), 0.0);
  EXPECT_EQ(NearestArctan(1), 0x1.921fb54442d18p-1);
}

TEST(FixedMath, RoundsTo15DecimalsAsPython) {
  EXPECT_EQ(RoundTo15Decimals(0.1), 0.1);
  EXPECT_EQ(RoundTo15Decimals(1.0), 1.0);
  EXPECT_EQ(RoundTo15Decimals(-1.0), -1.0);
  EXPECT_EQ(RoundTo15Decimals(6.123233995736766e-17), 0.0);  // what cos(pi/2) gives
  EXPECT_EQ(RoundTo15Decimals(-1.8369701987210297e-16), 0.0);
  EXPECT_EQ(RoundTo15Decimals(0.8660254037844387), 0.866025403784439);
  EXPECT_EQ(RoundTo15Decimals(-0.49999999999999994), -0.5);
  EXPECT_EQ(RoundTo15Decimals(0.7071067811865476), 0.707106781186548);
  EXPECT_EQ(RoundTo15Decimals(5e-16), 1e-15);  // the double is a little above the half
}

// The bits are the contract: whatever changes them changes everybody's crops.
TEST(FixedMath, HasTheSameBitsEverywhere) {
  EXPECT_EQ(FixedLog(0.75), -0x1.269621134db92p-2);
  EXPECT_EQ(FixedLog(1.3333333333333333), 0x1.269621134db91p-2);
  EXPECT_EQ(FixedExp(0.1), 0x1.1aec7b35a00d4p+0);
  EXPECT_EQ(FixedSin(1.0), 0x1.aed548f090ceep-1);
  EXPECT_EQ(FixedCos(1.0), 0x1.14a280fb5068cp-1);
}

TEST(FixedMath, RoundsHalvesToTheEvenInteger) {
  EXPECT_EQ(RoundHalfEven(0.5), 0);
  EXPECT_EQ(RoundHalfEven(1.5), 2);
  EXPECT_EQ(RoundHalfEven(2.5), 2);
  EXPECT_EQ(RoundHalfEven(-0.5), 0);
  EXPECT_EQ(RoundHalfEven(-1.5), -2);
  EXPECT_EQ(RoundHalfEven(2.4999999), 2);
  EXPECT_EQ(RoundHalfEven(-2.6), -3);
  EXPECT_EQ(RoundHalfEven(1e9 + 0.75), 1000000001);
}

}  // namespace
}  // namespace batchd
