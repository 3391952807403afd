// SPDX-License-Identifier: Apache-2.0

#include "server/image/blur.h"

#include <algorithm>

#include "server/base/check.h"
#include "server/image/fixed_math.h"

// Highway compiles this file once for each target, each in a namespace of its own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/image/blur.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace batchd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Each value is summed from the outermost pair of taps inwards, whatever the vectors' width, and
// with no fused multiply-add. Four vectors at a time, so that a sum need not wait for itself.

// out[i] = sum over k of taps[min(k, 2 * radius - k)] * in[i + 3 * k], for `count` values, a
// multiple of 64.
void BlurAcross(const float* in, const float* taps, int radius, int count, float* out) {
  const hn::CappedTag<float, 16> d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int i = 0; i < count; i += 4 * lanes) {
    const float* from = in + i;
    const float* until = from + 6 * radius;
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    const auto pair = [&](int at) HWY_ATTR {
      return hn::Add(hn::LoadU(d, from + at), hn::LoadU(d, until + at));
    };
    for (int k = 0; k < radius; ++k, from += 3, until -= 3) {
      const auto tap = hn::Set(d, taps[k]);
      s0 = hn::Add(s0, hn::Mul(tap, pair(0)));
      s1 = hn::Add(s1, hn::Mul(tap, pair(lanes)));
      s2 = hn::Add(s2, hn::Mul(tap, pair(2 * lanes)));
      s3 = hn::Add(s3, hn::Mul(tap, pair(3 * lanes)));
    }
    const auto tap = hn::Set(d, taps[radius]);
    const auto last = [&](int at) HWY_ATTR { return hn::Mul(tap, hn::LoadU(d, from + at)); };
    hn::StoreU(hn::Add(s0, last(0)), d, out + i);
    hn::StoreU(hn::Add(s1, last(lanes)), d, out + i + lanes);
    hn::StoreU(hn::Add(s2, last(2 * lanes)), d, out + i + 2 * lanes);
    hn::StoreU(hn::Add(s3, last(3 * lanes)), d, out + i + 3 * lanes);
  }
}

// The same down the 2 * radius + 1 rows at `rows`, rounded to 8 bits.
void BlurDown(const float* const* rows, const float* taps, int radius, int count, uint8_t* out) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int lanes = static_cast<int>(hn::Lanes(d));
  // Adding 1.5 * 2^23 rounds to an integer, halves to even, and leaves it in the low bits.
  constexpr float kRounder = 12582912.0f;
  const auto rounder = hn::Set(d, kRounder);
  for (int i = 0; i < count; i += 4 * lanes) {
    auto s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (int k = 0; k < radius; ++k) {
      const float* const above = rows[k] + i;
      const float* const below = rows[2 * radius - k] + i;
      const auto tap = hn::Set(d, taps[k]);
      const auto pair = [&](int at) HWY_ATTR {
        return hn::Mul(tap, hn::Add(hn::LoadU(d, above + at), hn::LoadU(d, below + at)));
      };
      s0 = hn::Add(s0, pair(0));
      s1 = hn::Add(s1, pair(lanes));
      s2 = hn::Add(s2, pair(2 * lanes));
      s3 = hn::Add(s3, pair(3 * lanes));
    }
    const auto tap = hn::Set(d, taps[radius]);
    const auto store = [&](hn::Vec<decltype(d)> sum, int at) HWY_ATTR {
      sum = hn::Add(sum, hn::Mul(tap, hn::LoadU(d, rows[radius] + i + at)));
      const auto bits = hn::BitCast(d32, hn::Add(sum, rounder));
      const auto whole = hn::Sub(bits, hn::BitCast(d32, rounder));
      hn::StoreU(hn::DemoteTo(d8, whole), d8, out + i + at);
    };
    store(s0, 0);
    store(s1, lanes);
    store(s2, 2 * lanes);
    store(s3, 3 * lanes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace batchd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace batchd {
namespace {

HWY_EXPORT(BlurAcross);
HWY_EXPORT(BlurDown);

constexpr int kStep = 64;  // values that the loops above take at once, at most

size_t RoundedUp(int64_t values) {
  return static_cast<size_t>((values + kStep - 1) / kStep * kStep);
}

// Row or column `i` of a picture of `size` that is mirrored at its borders.
int Mirrored(int i, int size) {
  if (size == 1) return 0;
  const int period = 2 * (size - 1);
  i %= period;
  if (i < 0) i += period;
  return i < size ? i : period - i;
}

// The taps from the outermost to the middle one; the others are the same.
struct HalfTaps {
  float values[kBlurSizeMax / 2 + 1];
};

HalfTaps TapsOf(int size, double sigma) {
  BATCHD_CHECK(size >= 1 && size <= kBlurSizeMax && size % 2 == 1 && sigma >= 1e-3);
  const int radius = size / 2;
  double weights[kBlurSizeMax / 2 + 1];
  double sum = 0;
  for (int k = 0; k <= radius; ++k) {
    const double place = (radius - k) / sigma;
    const double exponent = -0.5 * (place * place);
    weights[k] = exponent < -700.0 ? 0.0 : FixedExp(exponent);
    sum += k < radius ? 2 * weights[k] : weights[k];
  }
  HalfTaps taps;
  for (int k = 0; k <= radius; ++k) taps.values[k] = static_cast<float>(weights[k] / sum);
  return taps;
}

struct Layout {
  size_t padded_values = 0;  // a row with its mirrored ends
  size_t row_values = 0;
  int row_count = 0;  // rows that are kept
};

Layout LayoutOf(ImageSize size, const GaussianKernel& kernel) {
  return {.padded_values = RoundedUp(int64_t{3} * (size.width + kernel.size_x) + kStep),
          .row_values = RoundedUp(int64_t{3} * size.width),
          .row_count = std::min(size.height, kernel.size_y)};
}

void PadRow(const uint8_t* rgb, int width, int radius, float* out) {
  for (int i = 0; i < 3 * width; ++i) out[3 * radius + i] = rgb[i];
  const auto mirror = [&](int x) {
    const uint8_t* const from = rgb + 3 * Mirrored(x, width);
    for (int c = 0; c < 3; ++c) out[3 * (radius + x) + c] = from[c];
  };
  for (int x = 1; x <= radius; ++x) {
    mirror(-x);
    mirror(width - 1 + x);
  }
}

}  // namespace

size_t BlurScratchBytes(ImageSize size, const GaussianKernel& kernel) {
  const Layout layout = LayoutOf(size, kernel);
  return sizeof(float) *
             (layout.padded_values + layout.row_values * static_cast<size_t>(layout.row_count)) +
         layout.row_values;
}

void GaussianBlur(const Picture& picture, const GaussianKernel& kernel, uint8_t* scratch) {
  const HalfTaps across = TapsOf(kernel.size_x, kernel.sigma_x);
  const HalfTaps down = TapsOf(kernel.size_y, kernel.sigma_y);
  const int radius_x = kernel.size_x / 2, radius_y = kernel.size_y / 2;
  const Layout layout = LayoutOf({picture.height, picture.width}, kernel);
  auto* const padded = reinterpret_cast<float*>(scratch);
  float* const kept = padded + layout.padded_values;
  auto* const out = reinterpret_cast<uint8_t*>(kept + layout.row_values * size_t(layout.row_count));
  const int count = static_cast<int>(layout.row_values);
  const auto kept_row = [&](int y) {
    return kept + size_t(y % layout.row_count) * layout.row_values;
  };
  std::fill(padded, padded + layout.padded_values, 0.0f);  // what is behind the row is read, too

  int rows_in = 0;
  const float* rows[kBlurSizeMax];
  for (int y = 0; y < picture.height; ++y) {
    // Rows that are still to come are not yet written over.
    for (; rows_in < std::min(picture.height, y + radius_y + 1); ++rows_in) {
      PadRow(picture.data + rows_in * picture.stride_bytes, picture.width, radius_x, padded);
      HWY_DYNAMIC_DISPATCH(BlurAcross)
      (padded, across.values, radius_x, count, kept_row(rows_in));
    }
    for (int k = 0; k < kernel.size_y; ++k) {
      rows[k] = kept_row(Mirrored(y - radius_y + k, picture.height));
    }
    HWY_DYNAMIC_DISPATCH(BlurDown)(rows, down.values, radius_y, count, out);
    std::copy(out, out + 3 * picture.width, picture.data + y * picture.stride_bytes);
  }
}

}  // namespace batchd

#endif  // HWY_ONCE
