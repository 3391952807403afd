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

// A number as the exact sum of two doubles, of which `high` is the sum rounded: some 100 bits.
struct Wide {
  double high = 0;
  double low = 0;
};

// |a| >= |b|, or a is 0.
Wide Normalized(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

Wide ExactSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// By halves of 26 bits, whose products are exact.
Wide ExactProduct(double a, double b) {
  constexpr double kSplit = 134217729.0;  // 2^27 + 1
  const double a_scaled = kSplit * a, b_scaled = kSplit * b;
  const double a_high = a_scaled - (a_scaled - a), b_high = b_scaled - (b_scaled - b);
  const double a_low = a - a_high, b_low = b - b_high;
  const double product = a * b;
  const double missing = ((a_high * b_high - product) + a_high * b_low + a_low * b_high);
  return {product, missing + a_low * b_low};
}

Wide operator-(Wide a) { return {-a.high, -a.low}; }

Wide operator+(Wide a, Wide b) {
  const Wide sum = ExactSum(a.high, b.high);
  return Normalized(sum.high, sum.low + (a.low + b.low));
}

Wide operator*(Wide a, Wide b) {
  const Wide product = ExactProduct(a.high, b.high);
  return Normalized(product.high, product.low + (a.high * b.low + a.low * b.high));
}

Wide operator/(Wide a, Wide b) {
  const double first = a.high / b.high;
  const Wide rest = a + -(Wide{first} * b);
  const double second = rest.high / b.high;
  const Wide last = rest + -(Wide{second} * b);
  return Normalized(first, second) + Wide{last.high / b.high};
}

// sin and cos of a Wide within [-0.8, 0.8]: Taylor series, to below 2^-100.
struct SinCos {
  Wide sin;
  Wide cos;
};
SinCos WideSinCosKernel(Wide r) {
  Wide term = {1.0};
  SinCos result = {{}, term};
  for (int n = 1; n <= 27; ++n) {  // the next one is below 0.8^28 / 28! = 2^-107
    term = term * r / Wide{static_cast<double>(n)};
    Wide& sum = n % 2 == 0 ? result.cos : result.sin;
    sum = sum + (n % 4 >= 2 ? -term : term);
  }
  return result;
}

SinCos WideSinCos(double x) {
  BATCHD_CHECK(x >= -1000.0 && x <= 1000.0);
  // pi/2 in three parts: the products of the first two and a small integer are exact.
  constexpr double kHalfPi1 = 0x1.921fb544p+0;
  constexpr double kHalfPi2 = 0x1.0b4611a6p-34;
  constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
  const auto n = static_cast<int64_t>(x * kTwoOverPi + (x < 0 ? -0.5 : 0.5));
  const auto k = static_cast<double>(n);
  const Wide r = ((Wide{x} + Wide{-k * kHalfPi1}) + Wide{-k * kHalfPi2}) + Wide{-k * kHalfPi3};
  const SinCos first = WideSinCosKernel(r);
  switch (n & 3) {
    case 0:
      return first;
    case 1:
      return {first.cos, -first.sin};
    case 2:
      return {-first.sin, -first.cos};
    default:
      return {-first.cos, first.sin};
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

double NearestSin(double x) { return WideSinCos(x).sin.high; }
double NearestCos(double x) { return WideSinCos(x).cos.high; }

double NearestTan(double x) {
  const SinCos of = WideSinCos(x);
  return (of.sin / of.cos).high;
}

double NearestArctan(double x) {
  BATCHD_CHECK(x >= -1e6 && x <= 1e6);
  // atan x = y + atan((x cos y - sin y) / (cos y + x sin y)) for any y. Newton's steps, of which
  // each doubles the bits, bring y close; what then is left is its own arctangent.
  double y = x > 1 ? 0x1.921fb54442d18p+0 - 1 / x : x < -1 ? -0x1.921fb54442d18p+0 - 1 / x : x;
  for (int i = 0; i < 4; ++i) {
    const double s = FixedSin(y), c = FixedCos(y);
    y += (x * c - s) / (c + x * s);
  }
  const SinCos of = WideSinCos(y);
  const Wide rest = (Wide{x} * of.cos + -of.sin) / (of.cos + Wide{x} * of.sin);
  return (Wide{y} + rest).high;
}

double RoundTo15Decimals(double x) {
  BATCHD_CHECK(x >= -1.0 && x <= 1.0);
  const double size = x < 0 ? -x : x;
  if (size < 1e-16) return 0.0;
  // size = mantissa / 2^shift; mantissa * 10^15 is exact in 128 bits.
  const auto bits = std::bit_cast<uint64_t>(size);
  const int shift = 1075 - static_cast<int>(bits >> 52);
  const uint64_t mantissa = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  __extension__ using Wide128 = unsigned __int128;
  const Wide128 scaled = Wide128{mantissa} * 1000000000000000u;
  const Wide128 unit = Wide128{1} << shift;
  auto whole = static_cast<uint64_t>(scaled >> shift);
  const Wide128 twice_rest = (scaled & (unit - 1)) * 2;
  if (twice_rest > unit || (twice_rest == unit && (whole & 1) != 0)) ++whole;
  const double rounded = static_cast<double>(whole) / 1e15;
  return x < 0 ? -rounded : rounded;
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
