// SPDX-License-Identifier: Apache-2.0

#include "server/image/filter_weights.h"

#include <algorithm>

#include "server/base/check.h"
#include "server/image/fixed_math.h"

namespace batchd {
namespace {

constexpr double kPi = 0x1.921fb54442d18p+1;

double Box1(double x) { return x > -0.5 && x <= 0.5 ? 1.0 : 0.0; }

double Bilinear(double x) {
  if (x < 0.0) x = -x;
  return x < 1.0 ? 1.0 - x : 0.0;
}

double Sinc(double x) {
  if (x == 0.0) return 1.0;
  x = x * kPi;
  return FixedSin(x) / x;
}

double Hamming(double x) {
  if (x < 0.0) x = -x;
  if (x == 0.0) return 1.0;
  if (x >= 1.0) return 0.0;
  // Pillow's two constants are floats.
  constexpr double kBase = 0.54f;
  constexpr double kSwing = 0.46f;
  x = x * kPi;
  return FixedSin(x) / x * (kBase + kSwing * FixedCos(x));
}

double Bicubic(double x) {
  constexpr double kA = -0.5;
  if (x < 0.0) x = -x;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

double Lanczos(double x) { return x >= -3.0 && x < 3.0 ? Sinc(x) * Sinc(x / 3) : 0.0; }

struct Kernel {
  double reach;
  double (*at)(double);
};

Kernel KernelOf(Filter filter) {
  switch (filter) {
    case Filter::kBox:
      return {0.5, Box1};
    case Filter::kBilinear:
      return {1.0, Bilinear};
    case Filter::kHamming:
      return {1.0, Hamming};
    case Filter::kBicubic:
      return {2.0, Bicubic};
    case Filter::kLanczos:
      return {3.0, Lanczos};
    case Filter::kNearest:
      break;
  }
  BATCHD_CHECK(false);  // nearest has no weights
  return {};
}

// An axis with its scale; a filter widens when the axis shrinks, which is the antialiasing.
struct Scaled {
  Kernel kernel;
  double scale;
  double stretch;
  double reach;
  int stride;  // most taps of one output
};

Scaled ScaleOf(const FilterAxis& axis) {
  Scaled s = {};
  s.kernel = KernelOf(axis.filter);
  s.scale = (axis.in_extent > 0 ? axis.in_extent : axis.in_size) / axis.out_size;
  s.stretch = std::max(s.scale, 1.0);
  s.reach = s.kernel.reach * s.stretch;
  // 2 * reach + 1 pixels at most have their centre within reach; one more for the rounding.
  s.stride = std::min(static_cast<int>(2 * s.reach) + 3, axis.in_size);
  return s;
}

// Inputs [begin, end) of output `i`; neither ever falls from one output to the next.
struct Reached {
  double centre;
  int begin;
  int end;
};
Reached ReachedBy(const FilterAxis& axis, const Scaled& s, int i) {
  const double centre = axis.in_begin + (i + 0.5) * s.scale;
  return {centre, std::max(static_cast<int>(centre - s.reach + 0.5), 0),  // towards zero
          std::min(static_cast<int>(centre + s.reach + 0.5), axis.in_size)};
}

size_t RoundUpTo8(size_t size_bytes) { return (size_bytes + 7) & ~size_t{7}; }

int32_t ToFixed(double weight) {
  constexpr double kOne = int32_t{1} << kWeightBits;
  return static_cast<int32_t>(weight * kOne + (weight < 0 ? -0.5 : 0.5));
}

}  // namespace

int MostTaps(const FilterAxis& axis) { return ScaleOf(axis).stride; }

void FilterSpan(const FilterAxis& axis, int* begin, int* count) {
  const int last = axis.out_begin + axis.out_count - 1;
  if (axis.filter == Filter::kNearest) {
    int end = 0;
    NearestIndices(axis.in_size, axis.out_size, axis.out_begin, 1, begin);
    NearestIndices(axis.in_size, axis.out_size, last, 1, &end);
    *count = end + 1 - *begin;
    return;
  }
  const Scaled s = ScaleOf(axis);
  *begin = ReachedBy(axis, s, axis.out_begin).begin;
  *count = ReachedBy(axis, s, last).end - *begin;
}

size_t FilterTableBytes(const FilterAxis& axis) {
  const Scaled s = ScaleOf(axis);
  const auto count = static_cast<size_t>(axis.out_count);
  const auto stride = static_cast<size_t>(s.stride);
  return stride * sizeof(double) + RoundUpTo8(count * (2 + stride) * sizeof(int32_t));
}

FilterTaps MakeFilterTaps(const FilterAxis& axis, uint8_t* memory) {
  const Scaled s = ScaleOf(axis);
  auto* const exact = reinterpret_cast<double*>(memory);  // the weights of one output
  auto* const first = reinterpret_cast<int32_t*>(exact + s.stride);
  int32_t* const count = first + axis.out_count;
  int32_t* const weights = count + axis.out_count;
  for (int i = 0; i < axis.out_count; ++i) {
    const auto [centre, begin, end] = ReachedBy(axis, s, axis.out_begin + i);
    const int taps = end - begin;
    BATCHD_CHECK(taps >= 0 && taps <= s.stride);
    double total = 0.0;
    for (int k = 0; k < taps; ++k) {
      exact[k] = s.kernel.at((begin + k - centre + 0.5) * (1.0 / s.stretch));
      total += exact[k];
    }
    first[i] = begin;
    count[i] = taps;
    int32_t* const fixed = weights + int64_t{i} * s.stride;
    for (int k = 0; k < taps; ++k) {
      fixed[k] = ToFixed(total != 0.0 ? exact[k] / total : exact[k]);
    }
  }
  return {first, count, weights, s.stride};
}

void NearestIndices(int in_size, int out_size, int out_begin, int out_count, int32_t* indices) {
  // Added up, as Pillow does, and not multiplied: the two differ at exact halves. So the outputs
  // before the first one are walked through as well.
  const double scale = static_cast<double>(in_size) / out_size;
  double x = scale * 0.5;
  for (int i = 0; i < out_begin + out_count; ++i, x += scale) {
    if (i >= out_begin) indices[i - out_begin] = std::min(static_cast<int>(x), in_size - 1);
  }
}

}  // namespace batchd
