// SPDX-License-Identifier: Apache-2.0

#include "server/image/pad.h"

#include <algorithm>
#include <cstring>

namespace batchd {
namespace {

constexpr int64_t kChannels = 3;

// The place in [0, size) that stands at `at`; -1 is the fill.
int Source(int at, int size, PadMode mode) {
  if (at >= 0 && at < size) return at;
  if (mode == PadMode::kConstant) return -1;
  if (mode == PadMode::kEdge || size == 1) return at < 0 ? 0 : size - 1;
  const int period = mode == PadMode::kReflect ? 2 * (size - 1) : 2 * size;
  const int within = ((at % period) + period) % period;
  const int mirrored = mode == PadMode::kReflect ? period - within : period - 1 - within;
  return std::min(within, mirrored);
}

void PutPixel(const uint8_t* row, int from, const std::array<uint8_t, 3>& fill, uint8_t* out) {
  std::memcpy(out, from < 0 ? fill.data() : row + from * kChannels, kChannels);
}

}  // namespace

void PadFrom(const ConstPicture& in, const Box& box, PadMode mode,
             const std::array<uint8_t, 3>& fill, const Picture& out) {
  // Columns [left, right) of the output lie inside.
  const int left = std::clamp(-box.left, 0, box.width);
  const int right = std::clamp(in.width - box.left, left, box.width);
  for (int y = 0; y < box.height; ++y) {
    uint8_t* const to = out.data + y * out.stride_bytes;
    const int from_y = Source(box.top + y, in.height, mode);
    if (from_y < 0) {
      for (int x = 0; x < box.width; ++x) PutPixel(nullptr, -1, fill, to + x * kChannels);
      continue;
    }
    const uint8_t* const row = in.data + from_y * in.stride_bytes;
    if (right > left) {
      std::memcpy(to + left * kChannels, row + (box.left + left) * kChannels,
                  static_cast<size_t>((right - left) * kChannels));
    }
    const auto put_outside = [&](int begin, int end) {
      for (int x = begin; x < end; ++x) {
        PutPixel(row, Source(box.left + x, in.width, mode), fill, to + x * kChannels);
      }
    };
    put_outside(0, left);
    put_outside(right, box.width);
  }
}

}  // namespace batchd
