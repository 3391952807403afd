// SPDX-License-Identifier: Apache-2.0
//
// The loops are plain: between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE the compiler makes
// vector code of them for the target at hand. Pixels are taken apart into planes of a block first,
// since compilers are bad at that.

#include "server/image/colour_rows.h"

#include <algorithm>

// Highway compiles this file once for each target, each in a namespace of its own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/image/colour_rows.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace batchd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kBlock = 64;

struct Block {
  alignas(64) uint8_t red[kBlock];
  alignas(64) uint8_t green[kBlock];
  alignas(64) uint8_t blue[kBlock];
};

// The first `count` pixels; the others become any colour.
HWY_INLINE void Load(const uint8_t* rgb, int count, Block* block) {
  alignas(64) uint8_t padded[3 * kBlock];
  if (count < kBlock) {
    std::fill(std::copy(rgb, rgb + 3 * count, padded), padded + 3 * kBlock, uint8_t{0});
    rgb = padded;
  }
  const hn::CappedTag<uint8_t, 16> d8;
  const int lanes = static_cast<int>(hn::Lanes(d8));
  for (int i = 0; i < kBlock; i += lanes) {
    hn::Vec<decltype(d8)> red, green, blue;
    hn::LoadInterleaved3(d8, rgb + 3 * i, red, green, blue);
    hn::StoreU(red, d8, block->red + i);
    hn::StoreU(green, d8, block->green + i);
    hn::StoreU(blue, d8, block->blue + i);
  }
}

HWY_INLINE void Store(const Block& block, int count, uint8_t* rgb) {
  alignas(64) uint8_t padded[3 * kBlock];
  uint8_t* const to = count < kBlock ? padded : rgb;
  const hn::CappedTag<uint8_t, 16> d8;
  const int lanes = static_cast<int>(hn::Lanes(d8));
  for (int i = 0; i < kBlock; i += lanes) {
    hn::StoreInterleaved3(hn::LoadU(d8, block.red + i), hn::LoadU(d8, block.green + i),
                          hn::LoadU(d8, block.blue + i), d8, to + 3 * i);
  }
  if (count < kBlock) std::copy(padded, padded + 3 * count, rgb);
}

HWY_INLINE uint8_t Grey(int red, int green, int blue) {
  return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
}

HWY_INLINE uint8_t Blend(int value, int level, float factor) {
  float blended = static_cast<float>(level) + factor * static_cast<float>(value - level);
  blended = blended > 0.0f ? blended : 0.0f;
  blended = blended < 255.0f ? blended : 255.0f;
  return static_cast<uint8_t>(static_cast<int>(blended));
}

void BlendWithLevel(uint8_t* HWY_RESTRICT values, int count, uint8_t level, float factor) {
  for (int i = 0; i < count; ++i) values[i] = Blend(values[i], level, factor);
}

void BlendWithGrey(uint8_t* rgb, int width, float factor) {
  Block block;
  for (int x = 0; x < width; x += kBlock, rgb += 3 * kBlock) {
    const int count = std::min(kBlock, width - x);
    Load(rgb, count, &block);
    for (int i = 0; i < kBlock; ++i) {
      const uint8_t grey = Grey(block.red[i], block.green[i], block.blue[i]);
      block.red[i] = Blend(block.red[i], grey, factor);
      block.green[i] = Blend(block.green[i], grey, factor);
      block.blue[i] = Blend(block.blue[i], grey, factor);
    }
    Store(block, count, rgb);
  }
}

void BlendWithSmooth(const uint8_t* HWY_RESTRICT above, const uint8_t* HWY_RESTRICT here,
                     const uint8_t* HWY_RESTRICT below, int count, float factor,
                     uint8_t* HWY_RESTRICT out) {
  for (int i = 0; i < count; ++i) {
    const int sum = above[i - 3] + above[i] + above[i + 3] + here[i - 3] + 5 * here[i] +
                    here[i + 3] + below[i - 3] + below[i] + below[i + 3];
    // (2 * sum + 13) / 26 is sum / 13 rounded; sum is at most 13 * 255.
    const auto doubled = static_cast<uint16_t>(2 * sum + 13);
    out[i] = Blend(here[i], static_cast<uint16_t>(doubled / 26), factor);
  }
}

int64_t SumOfGrey(const uint8_t* rgb, int width) {
  int64_t sum = 0;
  Block block;
  for (int x = 0; x < width; x += kBlock, rgb += 3 * kBlock) {
    Load(rgb, std::min(kBlock, width - x), &block);  // what is missing is black, and black is 0
    int part = 0;
    for (int i = 0; i < kBlock; ++i) part += Grey(block.red[i], block.green[i], block.blue[i]);
    sum += part;
  }
  return sum;
}

// Planes of 8-bit hue, saturation and value.
struct HsvBlock {
  alignas(64) int32_t hue[kBlock];
  alignas(64) int32_t saturation[kBlock];
  alignas(64) int32_t value[kBlock];
};

// `yes` where the condition is 1, `no` where it is 0. A ?: over numbers that take floating-point
// operations to compute would keep the loop from becoming vector code.
HWY_INLINE int Select(int condition, int yes, int no) { return no ^ ((no ^ yes) & -condition); }

// Pillow takes quotients in float and goes on in double where a double constant comes in. Where the
// double makes no difference for any of the values there can be, this stays in float: tried for
// all.
HWY_INLINE void ToHsv(const Block& block, HsvBlock* HWY_RESTRICT hsv) {
  for (int i = 0; i < kBlock; ++i) {
    const int red = block.red[i], green = block.green[i], blue = block.blue[i];
    const int high = std::max(red, std::max(green, blue));
    const int low = std::min(red, std::min(green, blue));
    const int range = high - low;
    const auto divisor = static_cast<float>(range + (range == 0));
    // The hue in sixths: start + plus / range - minus / range.
    const int is_red = red == high, is_green = green == high;
    const int plus = high - Select(is_red, blue, Select(is_green, red, green));
    const int minus = high - Select(is_red, green, Select(is_green, blue, red));
    const int start = Select(is_red, 0, Select(is_green, 2, 4));
    const float plus_part = static_cast<float>(plus) / divisor;
    const float minus_part = static_cast<float>(minus) / divisor;
    const auto sixths =
        static_cast<float>((start + static_cast<double>(plus_part)) - double{minus_part});
    double turn = static_cast<double>(sixths) / 6.0 + 1.0;  // within [5/6, 2)
    turn -= static_cast<double>(static_cast<int>(turn));
    const int hue = static_cast<int>(static_cast<float>(turn) * 255.0f);
    const float part = static_cast<float>(range) / static_cast<float>(high + (high == 0));
    hsv->hue[i] = Select(range == 0, 0, hue);
    hsv->saturation[i] = static_cast<int>(part * 255.0f);
    hsv->value[i] = high;
  }
}

HWY_INLINE int RoundHalfUp(float x) { return static_cast<int>(x + 0.5f); }  // x >= 0

HWY_INLINE void FromHsv(const HsvBlock& hsv, Block* HWY_RESTRICT block) {
  for (int i = 0; i < kBlock; ++i) {
    const int value = hsv.value[i];
    const auto most = static_cast<float>(value);
    const float sixths = static_cast<float>(6 * hsv.hue[i]) / 255.0f;
    const int whole = static_cast<int>(sixths);  // 0 to 6, and 6 is 0
    const float rest = sixths - static_cast<float>(whole);
    const int sixth = Select(whole == 6, 0, whole);
    const float part = static_cast<float>(hsv.saturation[i]) / 255.0f;
    const int least = RoundHalfUp(most * (1.0f - part));
    // The middle channel falls in the odd sixths and rises in the even ones. Times 1 and plus 0
    // change nothing.
    const auto odd = static_cast<float>(sixth & 1);
    const float towards_least = odd * rest + (1.0f - odd) * (1.0f - rest);
    const int middle = RoundHalfUp(most * (1.0f - part * towards_least));
    const auto channel = [&](int is_value, int is_middle) HWY_ATTR {
      return static_cast<uint8_t>(Select(is_value, value, Select(is_middle, middle, least)));
    };
    block->red[i] = channel((sixth == 0) | (sixth == 5), (sixth == 1) | (sixth == 4));
    block->green[i] = channel((sixth == 1) | (sixth == 2), (sixth == 0) | (sixth == 3));
    block->blue[i] = channel((sixth == 3) | (sixth == 4), (sixth == 2) | (sixth == 5));
  }
}

void TurnHue(uint8_t* rgb, int width, int steps) {
  Block block;
  HsvBlock hsv;
  for (int x = 0; x < width; x += kBlock, rgb += 3 * kBlock) {
    const int count = std::min(kBlock, width - x);
    Load(rgb, count, &block);
    ToHsv(block, &hsv);
    for (int i = 0; i < kBlock; ++i) hsv.hue[i] = (hsv.hue[i] + steps) & 255;
    FromHsv(hsv, &block);
    Store(block, count, rgb);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace batchd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace batchd {
namespace {

HWY_EXPORT(BlendWithLevel);
HWY_EXPORT(BlendWithGrey);
HWY_EXPORT(BlendWithSmooth);
HWY_EXPORT(SumOfGrey);
HWY_EXPORT(TurnHue);

}  // namespace

void BlendWithLevel(uint8_t* values, int count, uint8_t level, float factor) {
  HWY_DYNAMIC_DISPATCH(BlendWithLevel)(values, count, level, factor);
}

void BlendWithGrey(uint8_t* rgb, int width, float factor) {
  HWY_DYNAMIC_DISPATCH(BlendWithGrey)(rgb, width, factor);
}

void BlendWithSmooth(const uint8_t* above, const uint8_t* here, const uint8_t* below, int count,
                     float factor, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(BlendWithSmooth)(above, here, below, count, factor, out);
}

int64_t SumOfGrey(const uint8_t* rgb, int width) {
  return HWY_DYNAMIC_DISPATCH(SumOfGrey)(rgb, width);
}

void TurnHue(uint8_t* rgb, int width, int steps) {
  HWY_DYNAMIC_DISPATCH(TurnHue)(rgb, width, steps);
}

}  // namespace batchd

#endif  // HWY_ONCE
