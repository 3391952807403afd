// SPDX-License-Identifier: Apache-2.0

#include "server/image/scratch.h"

#include <cstdlib>

#include "server/base/check.h"
#include "server/image/row_kernels.h"

namespace batchd {
namespace {

constexpr size_t kAlignmentBytes = 64;
static_assert(kRowSlackBytes % kAlignmentBytes == 0);

}  // namespace

uint8_t* Scratch::Get(ScratchArea area, size_t size_bytes) {
  Area& held = areas_[static_cast<int>(area)];
  if (held.data != nullptr && size_bytes <= held.capacity_bytes) return held.data;
  // The content may be lost, so the old block goes first: the two never add up.
  std::free(held.data);
  held = Area{};
  // aligned_alloc wants a multiple of the alignment.
  const size_t capacity = (size_bytes + kAlignmentBytes - 1) & ~(kAlignmentBytes - 1);
  void* const data = std::aligned_alloc(kAlignmentBytes, capacity + kRowSlackBytes);
  BATCHD_CHECK(data != nullptr);
  held.data = static_cast<uint8_t*>(data);
  held.capacity_bytes = capacity;
  return held.data;
}

void Scratch::ReleaseLarge(ScratchArea area) {
  Area& held = areas_[static_cast<int>(area)];
  if (held.capacity_bytes <= kScratchKeepBytes) return;
  std::free(held.data);
  held = Area{};
}

void Scratch::ReleaseLarge() {
  for (int i = 0; i < kScratchAreaCount; ++i) ReleaseLarge(static_cast<ScratchArea>(i));
}

size_t Scratch::held_bytes() const {
  size_t total = 0;
  for (const Area& held : areas_) total += held.capacity_bytes;
  return total;
}

Scratch::~Scratch() {
  for (Area& held : areas_) std::free(held.data);
}

}  // namespace batchd
