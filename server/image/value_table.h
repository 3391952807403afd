// SPDX-License-Identifier: Apache-2.0
//
// From 8-bit samples to the values of a column. All value operations (ToTensor, Normalize, Cast)
// map one 8-bit sample to one value, so they fold into a table of 256 entries per channel, filled
// once per column in torch's order of operations. That is exact on every target, and fast.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "proto/shm/slab.h"
#include "server/image/geometry.h"
#include "server/image/picture.h"

namespace batchd {

using wire::DType;

// Size of one value, in bytes.
int DTypeSizeBytes(DType dtype);
// "uint8", "int64", "float16", "bfloat16", "float32".
const char* DTypeName(DType dtype);

enum class Layout : uint8_t { kHwc, kChw };

// float32 rounded to the nearest, ties to even, as torch and IEEE 754 do; NaN stays NaN.
uint16_t ToFloat16(float value);
uint16_t ToBfloat16(float value);

// Thread-compatible while it is filled; after that only read, and so thread-safe.
class ValueTable {
 public:
  // Starts as the identity, uint8.
  ValueTable();

  DType dtype() const { return dtype_; }
  // Values of a pixel: 3, or 1, which is the picture's first channel.
  int channels() const { return channels_; }
  void SetChannels(int channels);

  // A value that no sample has, for Fill: one number a channel, in the units of what the table
  // makes now. The value operations that follow act on it too. Returns its number, from 0 on.
  int AddConstant(const std::array<float, 3>& value);

  // Value operations; in place, on all entries.
  void DivideBy255();  // to float32
  void Normalize(const std::array<float, 3>& mean, const std::array<float, 3>& std);
  // float16 and bfloat16 round to the nearest, ties to even; uint8 cuts towards zero and clamps to
  // [0, 255]. No cast scales. Not to int64.
  void CastTo(DType dtype);

  // Whether samples stay as they are.
  bool is_identity() const { return is_identity_; }

  // Writes `picture` through the table to `out`, dense, in `layout`. `out` has
  // height * width * channels() * DTypeSizeBytes(dtype()) bytes, aligned to the value's size.
  void Write(const ConstPicture& picture, Layout layout, uint8_t* out) const {
    WriteRows(picture, 0, picture.height, layout, out);
  }

  // The same for `rows` alone, which begin at row `top` of a picture of `height` rows; `out` is
  // that of the whole.
  void WriteRows(const ConstPicture& rows, int top, int height, Layout layout, uint8_t* out) const;

  // Gives a constant to a box inside a picture of `size` that has been written to `out`.
  void Fill(const Box& box, int constant, ImageSize size, Layout layout, uint8_t* out) const;

  // The float value of entry `sample` of `channel`, before the cast to 16 bits.
  float at(int channel, int sample) const { return values_[channel][sample]; }

 private:
  // `change` maps (channel, value) to a value; on all entries and constants.
  template <typename Change>
  void ChangeValues(const Change& change);

  DType dtype_ = DType::kUint8;
  int channels_ = 3;
  bool is_identity_ = true;
  std::array<std::array<float, 256>, 3> values_;
  // The same in a type of 16 or 8 bits, if that is dtype_.
  std::array<std::array<uint16_t, 256>, 3> bits_ = {};
  std::array<std::array<uint8_t, 256>, 3> bytes_ = {};
  std::vector<std::array<float, 3>> constants_;
};

}  // namespace batchd
