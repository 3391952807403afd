// SPDX-License-Identifier: Apache-2.0
//
// The two passes of Pillow's resize as vector code, on Google Highway with dispatch at run time:
// one across rows, one down columns. 8-bit RGB in, 8-bit RGB out, equal to the scalar reference of
// tests/support/scalar_resample.h in every bit on every target.
//
// A weight w has 22 fraction bits; as high * 2^11 + low it is two 16-bit factors, so that the
// multiply-add of pairs of 16-bit values does two taps at a time. What the two sums lose to
// overflow they lose modulo 2^32, and the true sum fits into 32 bits, so that the result is exact.
//
// The kernels read and write up to kRowSlackBytes behind the end of a row; what they read there
// counts for nothing. Pure functions: thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>

#include "server/image/filter_weights.h"

namespace batchd {

// Readable and writable bytes that a row must have behind its end.
inline constexpr size_t kRowSlackBytes = 64;

// Taps of one axis for the kernels, in pairs: output i is the sum over j < 2 * pair_count of input
// first[i] + j by its weight. Weights lie as {high of tap 0, high of tap 1, low of tap 0, low of
// tap 1} for each pair, `pair_count` of them for each output; those that an output does not need
// are 0. Borrows.
struct PairTaps {
  int count = 0;       // outputs; first and weights go on to a multiple of 4, with weights of 0
  int pair_count = 0;  // pairs of each output
  const int32_t* first = nullptr;
  const int16_t* weights = nullptr;
};

// What MakePairTaps needs; a multiple of 8.
size_t PairTapsBytes(const FilterAxis& axis);

// Fills `memory`, PairTapsBytes(axis) bytes aligned to 8, from the taps of the same axis. Inputs
// count from in_begin, and there are in_count of them. With `reversed`, the last output comes
// first.
PairTaps MakePairTaps(const FilterTaps& taps, int out_count, int in_begin, int in_count,
                      bool reversed, uint8_t* memory);

// `row_count` rows of `in`, in_stride_bytes apart, filtered along their length into rows of
// taps.count pixels.
void FilterAcross(const uint8_t* in, ptrdiff_t in_stride_bytes, int row_count, const PairTaps& taps,
                  uint8_t* out, ptrdiff_t out_stride_bytes);

// One row of `size_bytes` values from the `tap_count` rows that begin at `in`, in_stride_bytes
// apart. `weights` are those of one output of a PairTaps.
void FilterDown(const uint8_t* in, ptrdiff_t in_stride_bytes, int tap_count, const int16_t* weights,
                size_t size_bytes, uint8_t* out);

// A row of `width` pixels with the last pixel first.
void ReverseRow(const uint8_t* in, int width, uint8_t* out);

// The three channels of a row of `width` pixels, each into its own plane.
void SplitChannels(const uint8_t* rgb, int width, uint8_t* red, uint8_t* green, uint8_t* blue);

// The instruction set in use, as Highway calls it: "AVX3", "AVX2", "SSE4", "NEON" ...
const char* KernelTargetName();

}  // namespace batchd
