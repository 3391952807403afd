// SPDX-License-Identifier: Apache-2.0

#include "server/image/fixed_math.h"

#include <bit>
#include <cstdint>

#include "server/base/check.h"

namespace batchd {
namespace {

// pi/2 and ln 2 in two parts. The first has so few bits that its product with a small integer is
// exact; the second carries what it lacks.
constexpr double kHalfPiHigh = 0x1.921fb544p+0;
constexpr double kHalfPiLow = 0x1.0b4611a626331p-34;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kOneOverLn2 = 0x1.71547652b82fep+0;
constexpr double kSqrt2 = 0x1.6a09e667f3bcdp+0;

// Taylor series on |r| <= pi/4; the first term left out is below 1e-19.
double SinKernel(double r) {
  const double z = r * r;
  double p = 1.0 / 355687428096000.0;  // 17!
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r + r * (z * p);
}

double CosKernel(double r) {
  const double z = r * r;
  double p = -1.0 / 6402373705728000.0;  // 18!
  p = p * z + 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  // 1 - z/2 loses bits of z/2; (1 - w) - z/2 is exactly what was lost.
  const double half = 0.5 * z;
  const double w = 1.0 - half;
  return w + (((1.0 - w) - half) + z * z * p);
}

// sin(x + quarters * pi/2).
double SinOfQuarters(double x, int64_t quarters) {
  BATCHD_CHECK(x >= -32.0 && x <= 32.0);
  const auto n = static_cast<int64_t>(x * kTwoOverPi + (x < 0 ? -0.5 : 0.5));
  const auto k = static_cast<double>(n);
  const double r = (x - k * kHalfPiHigh) - k * kHalfPiLow;
  switch ((n + quarters) & 3) {
    case 0:
      return SinKernel(r);
    case 1:
      return CosKernel(r);
    case 2:
      return -SinKernel(r);
    default:
      return -CosKernel(r);
  }
}

}  // namespace

double FixedSin(double x) { return SinOfQuarters(x, 0); }
double FixedCos(double x) { return SinOfQuarters(x, 1); }

double FixedExp(double x) {
  BATCHD_CHECK(x >= -700.0 && x <= 700.0);
  const auto n = static_cast<int64_t>(x * kOneOverLn2 + (x < 0 ? -0.5 : 0.5));
  const auto k = static_cast<double>(n);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  // Taylor series on |r| <= 0.35.
  double p = 1.0 / 87178291200.0;  // 14!
  p = p * r + 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const auto power_of_two = std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
  return (1.0 + (r + r * r * p)) * power_of_two;
}

double FixedLog(double x) {
  BATCHD_CHECK(x >= 0x1p-1022 && x <= 0x1.fffffffffffffp+1023);
  constexpr uint64_t kMantissaMask = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  auto m = std::bit_cast<double>((bits & kMantissaMask) | uint64_t{1023} << 52);
  if (m > kSqrt2) {  // keeps m within [0.707, 1.414]
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| <= 0.172.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = 1.0 / 23.0;
  for (int odd = 21; odd >= 3; odd -= 2) p = p * z + 1.0 / odd;
  // 2s = f - s*f, and f has no rounding error: the leading term is exact.
  const auto k = static_cast<double>(exponent);
  const double tail = s * (2.0 * z * p - f);
  return k * kLn2High + (f + (tail + k * kLn2Low));
}

int RoundHalfEven(double x) {
  BATCHD_CHECK(x > -2147483647.0 && x < 2147483647.0);
  auto whole = static_cast<int64_t>(x);  // towards zero
  if (static_cast<double>(whole) > x) --whole;
  const double rest = x - static_cast<double>(whole);
  if (rest > 0.5 || (rest == 0.5 && (whole & 1) != 0)) ++whole;
  return static_cast<int>(whole);
}

}  // namespace batchd
