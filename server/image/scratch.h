// SPDX-License-Identifier: Apache-2.0
//
// Working memory of one CPU thread: named areas that grow to what the largest picture has needed
// and are used again for the next, so that a sample allocates nothing in the steady state. An area
// above kScratchKeepBytes is given back after the sample.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace batchd {

inline constexpr size_t kScratchKeepBytes = size_t{16} << 20;

enum class ScratchArea : int {
  kEncoded,
  kPictureA,
  kPictureB,
  kResample,
  kWeights,
  kRows,
  kDecoder,
  kUpright,
  kStep  // what a picture operation needs beside the picture
};
inline constexpr int kScratchAreaCount = 9;

// Thread-compatible: each pool thread owns one.
class Scratch {
 public:
  // At least `size_bytes` bytes and kRowSlackBytes behind them, 64-byte aligned, with any content;
  // valid until the next Get of the same area or ReleaseLarge().
  uint8_t* Get(ScratchArea area, size_t size_bytes);

  // Frees the areas above kScratchKeepBytes. Called after each sample.
  void ReleaseLarge();

  // The same for one area.
  void ReleaseLarge(ScratchArea area);

  // Bytes held now.
  size_t held_bytes() const;

  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

 private:
  struct Area {
    uint8_t* data = nullptr;
    size_t capacity_bytes = 0;
  };
  Area areas_[kScratchAreaCount];
};

}  // namespace batchd
