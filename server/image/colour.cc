// SPDX-License-Identifier: Apache-2.0

#include "server/image/colour.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "server/base/check.h"
#include "server/image/colour_rows.h"

namespace batchd {
namespace {

constexpr int kLevels = 256;
using Table = std::array<uint8_t, kLevels>;
using Histogram = std::array<int64_t, kLevels>;

uint8_t* RowOf(const Picture& picture, int y) { return picture.data + y * picture.stride_bytes; }

// values[i] -> table[values[i]] in every channel.
void Apply(const Picture& picture, const Table& table) {
  const int count = 3 * picture.width;
  for (int y = 0; y < picture.height; ++y) {
    uint8_t* const row = RowOf(picture, y);
    for (int i = 0; i < count; ++i) row[i] = table[row[i]];
  }
}

void Apply(const Picture& picture, const std::array<Table, 3>& tables) {
  const int count = 3 * picture.width;
  for (int y = 0; y < picture.height; ++y) {
    uint8_t* const row = RowOf(picture, y);
    for (int i = 0; i < count; i += 3) {
      row[i] = tables[0][row[i]];
      row[i + 1] = tables[1][row[i + 1]];
      row[i + 2] = tables[2][row[i + 2]];
    }
  }
}

std::array<Histogram, 3> Count(const Picture& picture) {
  std::array<Histogram, 3> counts = {};
  for (int y = 0; y < picture.height; ++y) {
    const uint8_t* const row = RowOf(picture, y);
    for (int i = 0; i < 3 * picture.width; i += 3) {
      ++counts[0][row[i]];
      ++counts[1][row[i + 1]];
      ++counts[2][row[i + 2]];
    }
  }
  return counts;
}

Table Identity() {
  Table table;
  for (int i = 0; i < kLevels; ++i) table[i] = static_cast<uint8_t>(i);
  return table;
}

Table StretchTable(const Histogram& counts) {
  int low = 0, high = kLevels - 1;
  while (low < high && counts[low] == 0) ++low;
  while (high > low && counts[high] == 0) --high;
  if (high == low) return Identity();
  const double scale = 255.0 / static_cast<double>(high - low);
  const double offset = -static_cast<double>(low) * scale;
  Table table;
  for (int i = 0; i < kLevels; ++i) {
    const double level = static_cast<double>(i) * scale + offset;
    table[i] = static_cast<uint8_t>(std::clamp(static_cast<int>(level), 0, 255));
  }
  return table;
}

Table EqualizeTable(const Histogram& counts) {
  int64_t sum = 0, last = 0;
  for (const int64_t count : counts) {
    sum += count;
    if (count != 0) last = count;
  }
  const int64_t step = (sum - last) / 255;
  if (step == 0) return Identity();  // one level only, or too few pixels
  Table table;
  int64_t below = step / 2;
  for (int i = 0; i < kLevels; ++i) {
    table[i] = static_cast<uint8_t>(std::min(below / step, int64_t{255}));
    below += counts[i];
  }
  return table;
}

}  // namespace

void AdjustBrightness(const Picture& picture, double factor) {
  const auto f = static_cast<float>(factor);
  if (f == 1.0f) return;
  for (int y = 0; y < picture.height; ++y)
    BlendWithLevel(RowOf(picture, y), 3 * picture.width, 0, f);
}

void AdjustContrast(const Picture& picture, double factor) {
  const auto f = static_cast<float>(factor);
  if (f == 1.0f) return;
  int64_t sum = 0;
  for (int y = 0; y < picture.height; ++y) sum += SumOfGrey(RowOf(picture, y), picture.width);
  const int64_t pixels = int64_t{picture.height} * picture.width;
  const auto mean =
      static_cast<uint8_t>(static_cast<double>(sum) / static_cast<double>(pixels) + 0.5);
  for (int y = 0; y < picture.height; ++y) {
    BlendWithLevel(RowOf(picture, y), 3 * picture.width, mean, f);
  }
}

void AdjustSaturation(const Picture& picture, double factor) {
  const auto f = static_cast<float>(factor);
  if (f == 1.0f) return;
  for (int y = 0; y < picture.height; ++y) BlendWithGrey(RowOf(picture, y), picture.width, f);
}

size_t SharpnessScratchBytes(int width) { return size_t{2} * 3 * static_cast<size_t>(width); }

void AdjustSharpness(const Picture& picture, double factor, uint8_t* scratch) {
  const auto f = static_cast<float>(factor);
  if (f == 1.0f || picture.height < 3 || picture.width < 3) return;
  const size_t row_bytes = size_t{3} * static_cast<size_t>(picture.width);
  // The row above and this one as they were; the row below has not been written yet.
  uint8_t* above = scratch;
  uint8_t* here = scratch + row_bytes;
  std::memcpy(above, RowOf(picture, 0), row_bytes);
  for (int y = 1; y + 1 < picture.height; ++y) {
    std::memcpy(here, RowOf(picture, y), row_bytes);
    BlendWithSmooth(above + 3, here + 3, RowOf(picture, y + 1) + 3, 3 * (picture.width - 2), f,
                    RowOf(picture, y) + 3);
    std::swap(above, here);
  }
}

void AdjustHue(const Picture& picture, double turn) {
  BATCHD_CHECK(turn >= -0.5 && turn <= 0.5);
  const int steps = static_cast<int>(turn * 255.0);
  for (int y = 0; y < picture.height; ++y) TurnHue(RowOf(picture, y), picture.width, steps);
}

void Autocontrast(const Picture& picture) {
  const std::array<Histogram, 3> counts = Count(picture);
  Apply(picture, {StretchTable(counts[0]), StretchTable(counts[1]), StretchTable(counts[2])});
}

void Equalize(const Picture& picture) {
  const std::array<Histogram, 3> counts = Count(picture);
  Apply(picture, {EqualizeTable(counts[0]), EqualizeTable(counts[1]), EqualizeTable(counts[2])});
}

void Posterize(const Picture& picture, int bits) {
  BATCHD_CHECK(bits >= 0 && bits <= 8);
  const auto mask = static_cast<uint8_t>(256 - (1 << (8 - bits)));
  const int count = 3 * picture.width;
  for (int y = 0; y < picture.height; ++y) {
    uint8_t* const row = RowOf(picture, y);
    for (int i = 0; i < count; ++i) row[i] &= mask;
  }
}

void Solarize(const Picture& picture, double threshold) {
  Table table = Identity();
  for (uint8_t& level : table) {
    if (!(level < threshold)) level = static_cast<uint8_t>(255 - level);
  }
  Apply(picture, table);
}

void Invert(const Picture& picture) {
  const int count = 3 * picture.width;
  for (int y = 0; y < picture.height; ++y) {
    uint8_t* const row = RowOf(picture, y);
    for (int i = 0; i < count; ++i) row[i] = static_cast<uint8_t>(~row[i]);
  }
}

void Grayscale(const Picture& picture) { AdjustSaturation(picture, 0); }

}  // namespace batchd
