// SPDX-License-Identifier: Apache-2.0

#include "tests/support/scalar_resample.h"

#include <algorithm>
#include <cstring>

#include "server/base/check.h"
#include "server/image/filter_weights.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;
constexpr int32_t kHalf = int32_t{1} << (kWeightBits - 1);

// |weights| of one output sum to less than 2, so that 255 times the sum stays within 31 bits.
uint8_t ToByte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, int32_t{0}, int32_t{255}));
}

const uint8_t* RowOf(const ConstPicture& picture, int row) {
  return picture.data + row * picture.stride_bytes;
}
uint8_t* RowOf(const Picture& picture, int row) {
  return picture.data + row * picture.stride_bytes;
}

// Each row of `in` filtered along its length; in.data is column `in_left` of what the taps count.
void HorizontalPass(const ConstPicture& in, int in_left, const FilterTaps& taps,
                    const Picture& out) {
  for (int y = 0; y < out.height; ++y) {
    const uint8_t* const row = RowOf(in, y);
    uint8_t* to = RowOf(out, y);
    for (int x = 0; x < out.width; ++x, to += kChannels) {
      const uint8_t* from = row + (taps.first[x] - in_left) * kChannels;
      const int32_t* const weights = taps.weights + int64_t{x} * taps.stride;
      int32_t r = kHalf, g = kHalf, b = kHalf;
      for (int k = 0; k < taps.count[x]; ++k, from += kChannels) {
        r += from[0] * weights[k];
        g += from[1] * weights[k];
        b += from[2] * weights[k];
      }
      to[0] = ToByte(r);
      to[1] = ToByte(g);
      to[2] = ToByte(b);
    }
  }
}

// Each column of `in` filtered along its height; in.data is row `in_top` of what the taps count.
void VerticalPass(const ConstPicture& in, int in_top, const FilterTaps& taps, const Picture& out) {
  // A few values of a row at a time: the sums stay in registers or close by, and the rows are read
  // along their length.
  constexpr int kBlock = 64;
  const int row_values = out.width * kChannels;
  for (int y = 0; y < out.height; ++y) {
    const uint8_t* const first = RowOf(in, taps.first[y] - in_top);
    const int32_t* const weights = taps.weights + int64_t{y} * taps.stride;
    uint8_t* const to = RowOf(out, y);
    for (int begin = 0; begin < row_values; begin += kBlock) {
      const int size = std::min(kBlock, row_values - begin);
      int32_t sums[kBlock];
      std::fill_n(sums, size, kHalf);
      const uint8_t* from = first + begin;
      for (int k = 0; k < taps.count[y]; ++k, from += in.stride_bytes) {
        for (int i = 0; i < size; ++i) sums[i] += from[i] * weights[k];
      }
      for (int i = 0; i < size; ++i) to[begin + i] = ToByte(sums[i]);
    }
  }
}

void ResampleNearest(const ConstPicture& in, ImageSize resized, const Box& window,
                     const Picture& out, Scratch* scratch) {
  auto* const columns = reinterpret_cast<int32_t*>(scratch->Get(
      ScratchArea::kWeights, sizeof(int32_t) * (size_t(window.width) + size_t(window.height))));
  int32_t* const rows = columns + window.width;
  NearestIndices(in.width, resized.width, window.left, window.width, columns);
  NearestIndices(in.height, resized.height, window.top, window.height, rows);
  for (int y = 0; y < window.height; ++y) {
    const uint8_t* const from = RowOf(in, rows[y]);
    uint8_t* to = RowOf(out, y);
    for (int x = 0; x < window.width; ++x, to += kChannels) {
      std::memcpy(to, from + int64_t{columns[x]} * kChannels, kChannels);
    }
  }
}

void CopyPixels(const ConstPicture& in, const Picture& out) {
  for (int y = 0; y < out.height; ++y) {
    std::memcpy(RowOf(out, y), RowOf(in, y), size_t(out.width) * kChannels);
  }
}

// The rows or columns of the input that a pass reads.
struct Span {
  int begin;
  int size;
};
Span SpanOf(const FilterTaps& taps, int out_size) {
  int begin = taps.first[0];
  int end = begin;
  for (int i = 0; i < out_size; ++i) {
    begin = std::min(begin, taps.first[i]);
    end = std::max(end, taps.first[i] + taps.count[i]);
  }
  return {begin, end - begin};
}

ConstPicture PartOf(const ConstPicture& in, int top, int left, int height, int width) {
  return {RowOf(in, top) + int64_t{left} * kChannels, height, width, in.stride_bytes};
}

Picture MakeBetween(int height, int width, Scratch* scratch) {
  const int64_t stride = int64_t{width} * kChannels;
  return {scratch->Get(ScratchArea::kResample, size_t(stride) * size_t(height)), height, width,
          stride};
}

void ResampleBoth(const ConstPicture& in, ImageSize resized, const FilterTaps& across,
                  const FilterTaps& down, const Picture& out, Scratch* scratch) {
  const Span columns = SpanOf(across, out.width);
  const Span rows = SpanOf(down, out.height);
  const ConstPicture part = PartOf(in, rows.begin, columns.begin, rows.size, columns.size);
  if (VerticalFirst({in.height, in.width}, resized)) {
    const Picture between = MakeBetween(out.height, columns.size, scratch);
    VerticalPass(part, rows.begin, down, between);
    HorizontalPass({between.data, between.height, between.width, between.stride_bytes},
                   columns.begin, across, out);
  } else {
    const Picture between = MakeBetween(rows.size, out.width, scratch);
    HorizontalPass(part, columns.begin, across, between);
    VerticalPass({between.data, between.height, between.width, between.stride_bytes}, rows.begin,
                 down, out);
  }
}

void FlipInPlace(const GeometryStage& stage, const Picture& picture) {
  if (stage.flip_vertical) {
    for (int y = 0; y < picture.height / 2; ++y) {
      uint8_t* const row = RowOf(picture, y);
      std::swap_ranges(row, row + int64_t{picture.width} * kChannels,
                       RowOf(picture, picture.height - 1 - y));
    }
  }
  if (stage.flip_horizontal) {
    for (int y = 0; y < picture.height; ++y) {
      uint8_t* left = RowOf(picture, y);
      uint8_t* right = left + int64_t{picture.width - 1} * kChannels;
      for (; left < right; left += kChannels, right -= kChannels) {
        std::swap_ranges(left, left + kChannels, right);
      }
    }
  }
}

void ClearPixels(const Picture& picture, int top, int left, int height, int width) {
  for (int y = top; y < top + height; ++y) {
    std::memset(RowOf(picture, y) + int64_t{left} * kChannels, 0, size_t(width) * kChannels);
  }
}

}  // namespace

void Resample(const ConstPicture& in, ImageSize resized, Filter filter, const Box& window,
              const Picture& out, Scratch* scratch) {
  BATCHD_CHECK(out.height == window.height && out.width == window.width);
  BATCHD_CHECK(window.top >= 0 && window.left >= 0 && window.height >= 1 && window.width >= 1);
  BATCHD_CHECK(window.height <= resized.height - window.top &&
               window.width <= resized.width - window.left);
  const bool filters_width = resized.width != in.width;
  const bool filters_height = resized.height != in.height;
  if (!filters_width && !filters_height) {
    CopyPixels(PartOf(in, window.top, window.left, window.height, window.width), out);
    return;
  }
  if (filter == Filter::kNearest) {
    ResampleNearest(in, resized, window, out, scratch);
    return;
  }
  // Both tables lie in one area, so that neither Get moves the other.
  const FilterAxis across_axis = {filter, in.width, resized.width, window.left, window.width};
  const FilterAxis down_axis = {filter, in.height, resized.height, window.top, window.height};
  const size_t across_bytes = filters_width ? FilterTableBytes(across_axis) : 0;
  const size_t down_bytes = filters_height ? FilterTableBytes(down_axis) : 0;
  uint8_t* const memory = scratch->Get(ScratchArea::kWeights, across_bytes + down_bytes);
  FilterTaps across, down;
  if (filters_width) across = MakeFilterTaps(across_axis, memory);
  if (filters_height) down = MakeFilterTaps(down_axis, memory + across_bytes);

  if (!filters_height) {
    HorizontalPass(PartOf(in, window.top, 0, window.height, in.width), 0, across, out);
  } else if (!filters_width) {
    VerticalPass(PartOf(in, 0, window.left, in.height, window.width), 0, down, out);
  } else {
    ResampleBoth(in, resized, across, down, out, scratch);
  }
}

void RunStage(const GeometryStage& stage, const ConstPicture& in, const Picture& out,
              Scratch* scratch) {
  const Box& window = stage.window;
  BATCHD_CHECK(in.height == stage.box.height && in.width == stage.box.width);
  BATCHD_CHECK(out.height == window.height && out.width == window.width);
  // What of the window lies inside the resized picture, in the window's coordinates.
  const int top = std::clamp(-window.top, 0, window.height);
  const int left = std::clamp(-window.left, 0, window.width);
  const int bottom = std::clamp(stage.resized.height - window.top, top, window.height);
  const int right = std::clamp(stage.resized.width - window.left, left, window.width);

  ClearPixels(out, 0, 0, top, out.width);
  ClearPixels(out, bottom, 0, out.height - bottom, out.width);
  ClearPixels(out, top, 0, bottom - top, left);
  ClearPixels(out, top, right, bottom - top, out.width - right);
  if (bottom > top && right > left) {
    const Box inside = {window.top + top, window.left + left, bottom - top, right - left};
    Resample(in, stage.resized, stage.filter, inside,
             {RowOf(out, top) + int64_t{left} * kChannels, inside.height, inside.width,
              out.stride_bytes},
             scratch);
  }
  FlipInPlace(stage, out);
}

}  // namespace batchd
