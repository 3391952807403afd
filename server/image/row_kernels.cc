// SPDX-License-Identifier: Apache-2.0

#include "server/image/row_kernels.h"

#include <algorithm>
#include <cstring>

#include "server/base/check.h"

// Vectors are members of a class here, which those of no fixed size cannot be; NEON remains.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Highway compiles this file once for each target, each in a namespace of its own.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/image/row_kernels.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace batchd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kChannels = 3;
constexpr int kLowBits = 11;
constexpr int32_t kHalf = int32_t{1} << (kWeightBits - 1);

#if HWY_TARGET == HWY_SCALAR  // a processor without the vectors below: one value at a time

int32_t WeightOf(const int16_t* weights, int tap) {
  const int16_t* const pair = weights + tap / 2 * 4 + tap % 2;
  return int32_t{pair[0]} * (1 << kLowBits) + pair[2];
}

uint8_t ToByte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, int32_t{0}, int32_t{255}));
}

void FilterAcross(const uint8_t* in, ptrdiff_t in_stride, int row_count, const PairTaps& taps,
                  uint8_t* out, ptrdiff_t out_stride) {
  const int tap_count = 2 * taps.pair_count;
  for (int y = 0; y < row_count; ++y, in += in_stride, out += out_stride) {
    for (int i = 0; i < taps.count * kChannels; ++i) {
      const int x = i / kChannels;
      const uint8_t* const from = in + ptrdiff_t{taps.first[x]} * kChannels + i % kChannels;
      int32_t sum = kHalf;
      for (int k = 0; k < tap_count; ++k) {
        sum += from[k * kChannels] * WeightOf(taps.weights + ptrdiff_t{x} * tap_count * 2, k);
      }
      out[i] = ToByte(sum);
    }
  }
}

void FilterDown(const uint8_t* in, ptrdiff_t in_stride, int tap_count, const int16_t* weights,
                size_t size_bytes, uint8_t* out) {
  for (size_t i = 0; i < size_bytes; ++i) {
    int32_t sum = kHalf;
    for (int k = 0; k < tap_count; ++k) sum += in[k * in_stride + i] * WeightOf(weights, k);
    out[i] = ToByte(sum);
  }
}

void SplitChannels(const uint8_t* rgb, int width, uint8_t* red, uint8_t* green, uint8_t* blue) {
  for (int x = 0; x < width; ++x, rgb += kChannels) {
    red[x] = rgb[0];
    green[x] = rgb[1];
    blue[x] = rgb[2];
  }
}

#else

// Byte positions of a shuffle within each block of 16; 0x80 gives 0.
HWY_ALIGN constexpr uint8_t kPairUp[16] = {0, 0x80, 3, 0x80, 1,    0x80, 4,    0x80,
                                           2, 0x80, 5, 0x80, 0x80, 0x80, 0x80, 0x80};
HWY_ALIGN constexpr uint8_t kPixelsLow[16] = {0,    2,    4,    8,    10,   12,   0x80, 0x80,
                                              0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
HWY_ALIGN constexpr uint8_t kPixelsHigh[16] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0,    2,
                                               4,    8,    10,   12,   0x80, 0x80, 0x80, 0x80};
HWY_ALIGN constexpr uint8_t kBytesLow[16] = {0,    2,    4,    6,    8,    10,   12,   14,
                                             0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
HWY_ALIGN constexpr uint8_t kBytesHigh[16] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                              0,    2,    4,    6,    8,    10,   12,   14};

// A vector type of bytes with its relatives of the same size.
template <class D8>
struct Tags {
  using D16 = hn::Repartition<int16_t, D8>;
  using D32 = hn::Repartition<int32_t, D8>;
  using V8 = hn::Vec<D8>;
  using V32 = hn::Vec<D32>;
};

// Sums of weighted samples in 32-bit lanes, two samples of 16 bits at a time.
template <class D8>
class Sums {
  using D16 = typename Tags<D8>::D16;
  using D32 = typename Tags<D8>::D32;
  using V8 = typename Tags<D8>::V8;
  using V32 = typename Tags<D8>::V32;

 public:
#if HWY_TARGET <= HWY_SSSE3  // x86: the sum of the products of neighbours is one instruction
  HWY_INLINE Sums() : high_(hn::Zero(D32())), low_(hn::Set(D32(), kHalf)) {}
  struct Weights {
    V32 high, low;
  };
  static HWY_INLINE Weights Load(const int16_t* weights) {
    int32_t high, low;
    std::memcpy(&high, weights, 4);
    std::memcpy(&low, weights + 2, 4);
    return {hn::Set(D32(), high), hn::Set(D32(), low)};
  }
  HWY_INLINE void Add(V8 samples, const Weights& weights) {
    const D16 d16;
    V32 unused = hn::Zero(D32());
    const auto pairs = hn::BitCast(d16, samples);
    high_ =
        hn::ReorderWidenMulAccumulate(D32(), pairs, hn::BitCast(d16, weights.high), high_, unused);
    low_ = hn::ReorderWidenMulAccumulate(D32(), pairs, hn::BitCast(d16, weights.low), low_, unused);
  }
  HWY_INLINE V32 Values() const {
    return hn::ShiftRight<kWeightBits>(hn::Add(hn::ShiftLeft<kLowBits>(high_), low_));
  }

 private:
  V32 high_, low_;
#else
  HWY_INLINE Sums() : sum_(hn::Set(D32(), kHalf)) {}
  struct Weights {
    V32 even, odd;
  };
  static HWY_INLINE Weights Load(const int16_t* weights) {
    return {hn::Set(D32(), int32_t{weights[0]} * (1 << kLowBits) + weights[2]),
            hn::Set(D32(), int32_t{weights[1]} * (1 << kLowBits) + weights[3])};
  }
  HWY_INLINE void Add(V8 samples, const Weights& weights) {
    const auto pairs = hn::BitCast(D32(), samples);
    const auto even = hn::And(pairs, hn::Set(D32(), 0xFFFF));
    const auto odd = hn::ShiftRight<16>(pairs);  // a sample is below 2^15: no sign
    sum_ = hn::Add(sum_, hn::Add(hn::Mul(even, weights.even), hn::Mul(odd, weights.odd)));
  }
  HWY_INLINE V32 Values() const { return hn::ShiftRight<kWeightBits>(sum_); }

 private:
  V32 sum_;
#endif
};

// Two vectors of 32 bits as 16 bits, block by block, clamped to a byte's range.
template <class D8>
HWY_INLINE typename Tags<D8>::V8 ToBytes16(D8 d8, typename Tags<D8>::V32 a,
                                           typename Tags<D8>::V32 b) {
  const typename Tags<D8>::D16 d16;
  const auto both = hn::ReorderDemote2To(d16, a, b);
  return hn::BitCast(d8, hn::Min(hn::Max(both, hn::Zero(d16)), hn::Set(d16, 255)));
}

// The 16 bytes at the same place of one, two or four rows, a row in each block.
HWY_INLINE hn::Vec<hn::FixedTag<uint8_t, 16> > LoadBlocks(hn::FixedTag<uint8_t, 16> d8,
                                                          const uint8_t* p, ptrdiff_t) {
  return hn::LoadU(d8, p);
}
HWY_INLINE void StoreBlocks(hn::FixedTag<uint8_t, 16> d8, hn::Vec<hn::FixedTag<uint8_t, 16> > v,
                            uint8_t* p, ptrdiff_t) {
  hn::StoreU(v, d8, p);
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec<hn::FixedTag<uint8_t, 32> > LoadBlocks(hn::FixedTag<uint8_t, 32> d8,
                                                          const uint8_t* p, ptrdiff_t stride) {
  const hn::FixedTag<uint8_t, 16> half;
  return hn::Combine(d8, LoadBlocks(half, p + 1 * stride, stride), LoadBlocks(half, p, stride));
}
HWY_INLINE void StoreBlocks(hn::FixedTag<uint8_t, 32>, hn::Vec<hn::FixedTag<uint8_t, 32> > v,
                            uint8_t* p, ptrdiff_t stride) {
  const hn::FixedTag<uint8_t, 16> half;
  StoreBlocks(half, hn::LowerHalf(half, v), p, stride);
  StoreBlocks(half, hn::UpperHalf(half, v), p + 1 * stride, stride);
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec<hn::FixedTag<uint8_t, 64> > LoadBlocks(hn::FixedTag<uint8_t, 64> d8,
                                                          const uint8_t* p, ptrdiff_t stride) {
  const hn::FixedTag<uint8_t, 32> half;
  return hn::Combine(d8, LoadBlocks(half, p + 2 * stride, stride), LoadBlocks(half, p, stride));
}
HWY_INLINE void StoreBlocks(hn::FixedTag<uint8_t, 64>, hn::Vec<hn::FixedTag<uint8_t, 64> > v,
                            uint8_t* p, ptrdiff_t stride) {
  const hn::FixedTag<uint8_t, 32> half;
  StoreBlocks(half, hn::LowerHalf(half, v), p, stride);
  StoreBlocks(half, hn::UpperHalf(half, v), p + 2 * stride, stride);
}
#endif

// As many rows as d8 has blocks. kPairs: pairs of an output if known when compiling, else 0.
template <int kPairs, class D8>
HWY_INLINE void AcrossBlocks(D8 d8, const uint8_t* in, ptrdiff_t in_stride, const PairTaps& taps,
                             uint8_t* out, ptrdiff_t out_stride) {
  const int pairs = kPairs > 0 ? kPairs : taps.pair_count;
  const auto pair_up = hn::LoadDup128(d8, kPairUp);
  const auto pixels_low = hn::LoadDup128(d8, kPixelsLow);
  const auto pixels_high = hn::LoadDup128(d8, kPixelsHigh);
  const int16_t* weights = taps.weights;
  const auto filter = [&](int x) HWY_ATTR {
    Sums<D8> sums;
    const uint8_t* from = in + ptrdiff_t{taps.first[x]} * kChannels;
    for (int j = 0; j < pairs; ++j, from += 2 * kChannels, weights += 4) {
      const auto samples = hn::TableLookupBytes(LoadBlocks(d8, from, in_stride), pair_up);
      sums.Add(samples, Sums<D8>::Load(weights));
    }
    return sums.Values();
  };
  for (int x = 0; x < taps.count; x += 4, out += 4 * kChannels) {
    const auto a = filter(x);
    const auto b = filter(x + 1);
    const auto c = filter(x + 2);
    const auto d = filter(x + 3);
    const auto pixels = hn::Or(hn::TableLookupBytes(ToBytes16(d8, a, b), pixels_low),
                               hn::TableLookupBytes(ToBytes16(d8, c, d), pixels_high));
    StoreBlocks(d8, pixels, out, out_stride);
  }
}

template <class D8>
void AcrossRows(D8 d8, const uint8_t* in, ptrdiff_t in_stride, const PairTaps& taps, uint8_t* out,
                ptrdiff_t out_stride) {
  switch (taps.pair_count) {
    case 1:
      return AcrossBlocks<1>(d8, in, in_stride, taps, out, out_stride);
    case 2:
      return AcrossBlocks<2>(d8, in, in_stride, taps, out, out_stride);
    case 3:
      return AcrossBlocks<3>(d8, in, in_stride, taps, out, out_stride);
    default:
      return AcrossBlocks<0>(d8, in, in_stride, taps, out, out_stride);
  }
}

void FilterAcross(const uint8_t* in, ptrdiff_t in_stride, int row_count, const PairTaps& taps,
                  uint8_t* out, ptrdiff_t out_stride) {
  int y = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; y + 4 <= row_count; y += 4) {
    AcrossRows(hn::FixedTag<uint8_t, 64>(), in + y * in_stride, in_stride, taps,
               out + y * out_stride, out_stride);
  }
#endif
#if HWY_TARGET <= HWY_AVX2
  for (; y + 2 <= row_count; y += 2) {
    AcrossRows(hn::FixedTag<uint8_t, 32>(), in + y * in_stride, in_stride, taps,
               out + y * out_stride, out_stride);
  }
#endif
  for (; y < row_count; ++y) {
    AcrossRows(hn::FixedTag<uint8_t, 16>(), in + y * in_stride, in_stride, taps,
               out + y * out_stride, out_stride);
  }
}

void FilterDown(const uint8_t* in, ptrdiff_t in_stride, int tap_count, const int16_t* weights,
                size_t size_bytes, uint8_t* out) {
  const hn::CappedTag<uint8_t, 64> d8;
  const auto bytes_low = hn::LoadDup128(d8, kBytesLow);
  const auto bytes_high = hn::LoadDup128(d8, kBytesHigh);
  const auto zero = hn::Zero(d8);
  for (size_t at = 0; at < size_bytes; at += hn::Lanes(d8)) {
    Sums<decltype(d8)> s0, s1, s2, s3;
    const uint8_t* from = in + at;
    const int16_t* w = weights;
    for (int k = 0; k < tap_count; k += 2, from += 2 * in_stride, w += 4) {
      const auto row_weights = Sums<decltype(d8)>::Load(w);
      const auto a = hn::LoadU(d8, from);
      const auto b = k + 1 < tap_count ? hn::LoadU(d8, from + in_stride) : zero;
      const auto low = hn::InterleaveLower(d8, a, b);
      const auto high = hn::InterleaveUpper(d8, a, b);
      s0.Add(hn::InterleaveLower(d8, low, zero), row_weights);
      s1.Add(hn::InterleaveUpper(d8, low, zero), row_weights);
      s2.Add(hn::InterleaveLower(d8, high, zero), row_weights);
      s3.Add(hn::InterleaveUpper(d8, high, zero), row_weights);
    }
    const auto low = hn::TableLookupBytes(ToBytes16(d8, s0.Values(), s1.Values()), bytes_low);
    const auto high = hn::TableLookupBytes(ToBytes16(d8, s2.Values(), s3.Values()), bytes_high);
    hn::StoreU(hn::Or(low, high), d8, out + at);
  }
}

void SplitChannels(const uint8_t* rgb, int width, uint8_t* red, uint8_t* green, uint8_t* blue) {
  const hn::FixedTag<uint8_t, 16> d8;
  int x = 0;
  for (; x + 16 <= width; x += 16) {
    hn::Vec<decltype(d8)> r, g, b;
    hn::LoadInterleaved3(d8, rgb + x * kChannels, r, g, b);
    hn::StoreU(r, d8, red + x);
    hn::StoreU(g, d8, green + x);
    hn::StoreU(b, d8, blue + x);
  }
  for (; x < width; ++x) {
    red[x] = rgb[x * kChannels];
    green[x] = rgb[x * kChannels + 1];
    blue[x] = rgb[x * kChannels + 2];
  }
}

#endif  // HWY_SCALAR

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace batchd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace batchd {
namespace {

HWY_EXPORT(FilterAcross);
HWY_EXPORT(FilterDown);
HWY_EXPORT(SplitChannels);
HWY_EXPORT(TargetName);

constexpr int kLow = 11;
constexpr int kWeightsPerPair = 4;

int RoundUpTo4(int count) { return (count + 3) & ~3; }

}  // namespace

size_t PairTapsBytes(const FilterAxis& axis) {
  const auto count = static_cast<size_t>(RoundUpTo4(axis.out_count));
  const auto pairs = static_cast<size_t>((MostTaps(axis) + 1) / 2);
  return count * (sizeof(int32_t) + pairs * kWeightsPerPair * sizeof(int16_t));
}

PairTaps MakePairTaps(const FilterTaps& taps, int out_count, int in_begin, int in_count,
                      bool reversed, uint8_t* memory) {
  const int most = *std::max_element(taps.count, taps.count + out_count);
  PairTaps result;
  result.count = out_count;
  result.pair_count = std::max((most + 1) / 2, 1);
  const int padded_count = RoundUpTo4(out_count);
  const int tap_count = 2 * result.pair_count;
  auto* const first = reinterpret_cast<int32_t*>(memory);
  auto* const weights = reinterpret_cast<int16_t*>(first + padded_count);
  std::memset(memory, 0,
              size_t(padded_count) * (sizeof(int32_t) + size_t(tap_count) * 2 * sizeof(int16_t)));
  for (int i = 0; i < out_count; ++i) {
    const int from = reversed ? out_count - 1 - i : i;
    const int begin = taps.first[from] - in_begin;
    // Close to the end the window is moved back, so that nothing far behind it is read.
    first[i] = std::clamp(in_count - tap_count, 0, begin);
    const int32_t* const exact = taps.weights + int64_t{from} * taps.stride;
    int16_t* const to = weights + int64_t{i} * tap_count * 2;
    for (int k = 0; k < taps.count[from]; ++k) {
      const int at = begin - first[i] + k;
      int16_t* const pair = to + at / 2 * kWeightsPerPair + at % 2;
      pair[0] = static_cast<int16_t>(exact[k] >> kLow);
      pair[2] = static_cast<int16_t>(exact[k] & ((1 << kLow) - 1));
    }
  }
  result.first = first;
  result.weights = weights;
  return result;
}

void FilterAcross(const uint8_t* in, ptrdiff_t in_stride_bytes, int row_count, const PairTaps& taps,
                  uint8_t* out, ptrdiff_t out_stride_bytes) {
  HWY_DYNAMIC_DISPATCH(FilterAcross)
  (in, in_stride_bytes, row_count, taps, out, out_stride_bytes);
}

void FilterDown(const uint8_t* in, ptrdiff_t in_stride_bytes, int tap_count, const int16_t* weights,
                size_t size_bytes, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(FilterDown)
  (in, in_stride_bytes, tap_count, weights, size_bytes, out);
}

void ReverseRow(const uint8_t* in, int width, uint8_t* out) {
  const uint8_t* from = in + int64_t{width - 1} * 3;
  for (int x = 0; x < width; ++x, from -= 3, out += 3) {
    out[0] = from[0];
    out[1] = from[1];
    out[2] = from[2];
  }
}

void SplitChannels(const uint8_t* rgb, int width, uint8_t* red, uint8_t* green, uint8_t* blue) {
  HWY_DYNAMIC_DISPATCH(SplitChannels)(rgb, width, red, green, blue);
}

const char* KernelTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace batchd

#endif  // HWY_ONCE
