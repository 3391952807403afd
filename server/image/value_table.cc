// SPDX-License-Identifier: Apache-2.0

#include "server/image/value_table.h"

#include <bit>
#include <cstring>

#include "server/base/check.h"
#include "server/image/row_kernels.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;

template <typename T>
using Table = std::array<std::array<T, 256>, kChannels>;

template <typename T>
void WriteHwc(const ConstPicture& rows, const Table<T>& table, T* out) {
  for (int y = 0; y < rows.height; ++y) {
    const uint8_t* from = rows.data + y * rows.stride_bytes;
    for (int x = 0; x < rows.width; ++x, from += kChannels, out += kChannels) {
      out[0] = table[0][from[0]];
      out[1] = table[1][from[1]];
      out[2] = table[2][from[2]];
    }
  }
}

template <typename T>
void WriteChw(const ConstPicture& rows, const Table<T>& table, int64_t plane, T* out) {
  for (int y = 0; y < rows.height; ++y) {
    const uint8_t* from = rows.data + y * rows.stride_bytes;
    for (int x = 0; x < rows.width; ++x, from += kChannels, ++out) {
      out[0] = table[0][from[0]];
      out[plane] = table[1][from[1]];
      out[2 * plane] = table[2][from[2]];
    }
  }
}

// The first channel alone.
template <typename T>
void WriteOne(const ConstPicture& rows, const Table<T>& table, T* out) {
  for (int y = 0; y < rows.height; ++y) {
    const uint8_t* from = rows.data + y * rows.stride_bytes;
    for (int x = 0; x < rows.width; ++x, from += kChannels, ++out) *out = table[0][from[0]];
  }
}

template <typename T>
void WriteAs(const ConstPicture& rows, int top, int height, Layout layout, int channels,
             const Table<T>& table, uint8_t* out) {
  T* const values = reinterpret_cast<T*>(out);
  const int64_t pixels_above = int64_t{top} * rows.width;
  if (channels == 1) {
    WriteOne(rows, table, values + pixels_above);
  } else if (layout == Layout::kHwc) {
    WriteHwc(rows, table, values + pixels_above * kChannels);
  } else {
    WriteChw(rows, table, int64_t{height} * rows.width, values + pixels_above);
  }
}

// The samples as they are.
void CopyRows(const ConstPicture& rows, int top, int height, Layout layout, uint8_t* out) {
  const int64_t plane = int64_t{height} * rows.width;
  for (int y = 0; y < rows.height; ++y) {
    const uint8_t* const from = rows.data + y * rows.stride_bytes;
    uint8_t* const to =
        out + int64_t{top + y} * rows.width * (layout == Layout::kHwc ? kChannels : 1);
    if (layout == Layout::kHwc) {
      std::memcpy(to, from, size_t(rows.width) * kChannels);
    } else {
      SplitChannels(from, rows.width, to, to + plane, to + 2 * plane);
    }
  }
}

// Writes one value to a box of one channel, whose values are step apart.
template <typename T>
void FillAs(const Box& box, int width, int step, T value, T* out) {
  for (int y = box.top; y < box.top + box.height; ++y) {
    T* to = out + (int64_t{y} * width + box.left) * step;
    for (int x = 0; x < box.width; ++x, to += step) *to = value;
  }
}

}  // namespace

int DTypeSizeBytes(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return 1;
    case DType::kInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kFloat32:
      return 4;
  }
  return 0;
}

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return "uint8";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kBfloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
  }
  return "";
}

uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7FFF'FFFF;
  if (magnitude > 0x7F80'0000) return static_cast<uint16_t>(sign | 0x7E00);  // NaN
  // 65520 and above round to infinity.
  if (magnitude >= 0x477F'F000) return static_cast<uint16_t>(sign | 0x7C00);
  if (magnitude >= 0x3880'0000) {  // 2^-14: a normal number
    const uint32_t odd = (magnitude >> 13) & 1;
    return static_cast<uint16_t>(sign | ((magnitude - 0x3800'0000 + 0xFFF + odd) >> 13));
  }
  if (magnitude <= 0x3300'0000) return static_cast<uint16_t>(sign);  // up to 2^-25: zero
  // A subnormal number: the mantissa with its leading one, in units of 2^-24.
  const uint32_t shift = 126 - (magnitude >> 23);  // 14 to 24
  const uint32_t mantissa = (magnitude & 0x007F'FFFF) | 0x0080'0000;
  const uint32_t half = uint32_t{1} << (shift - 1);
  const uint32_t odd = (mantissa >> shift) & 1;
  return static_cast<uint16_t>(sign | ((mantissa + half - 1 + odd) >> shift));
}

uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFF'FFFF) > 0x7F80'0000) return static_cast<uint16_t>((bits >> 16) | 0x40);  // NaN
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

ValueTable::ValueTable() {
  for (int c = 0; c < kChannels; ++c) {
    for (int sample = 0; sample < 256; ++sample) {
      values_[c][sample] = static_cast<float>(sample);
      bytes_[c][sample] = static_cast<uint8_t>(sample);
    }
  }
}

template <typename Change>
void ValueTable::ChangeValues(const Change& change) {
  for (int c = 0; c < kChannels; ++c) {
    for (float& value : values_[c]) value = change(c, value);
    for (auto& constant : constants_) constant[c] = change(c, constant[c]);
  }
}

void ValueTable::SetChannels(int channels) {
  BATCHD_CHECK(channels == 1 || channels == kChannels);
  channels_ = channels;
}

int ValueTable::AddConstant(const std::array<float, 3>& value) {
  constants_.push_back(value);
  return static_cast<int>(constants_.size()) - 1;
}

void ValueTable::DivideBy255() {
  is_identity_ = false;
  ChangeValues([](int, float value) { return value / 255.0f; });
  dtype_ = DType::kFloat32;
}

void ValueTable::Normalize(const std::array<float, 3>& mean, const std::array<float, 3>& std) {
  BATCHD_CHECK(dtype_ == DType::kFloat32);
  ChangeValues([&](int c, float value) { return (value - mean[c]) / std[c]; });
}

void ValueTable::CastTo(DType dtype) {
  BATCHD_CHECK(dtype != DType::kInt64);
  is_identity_ = dtype == DType::kUint8;
  // Only a table of floats can have values that a byte has not.
  if (dtype == DType::kUint8) {
    ChangeValues([](int, float value) {
      return value >= 255.0f ? 255.0f : value > 0.0f ? static_cast<float>(uint8_t(value)) : 0.0f;
    });
  }
  dtype_ = dtype;
  if (dtype == DType::kFloat32) return;
  for (int c = 0; c < kChannels; ++c) {
    for (int sample = 0; sample < 256; ++sample) {
      const float value = values_[c][sample];
      if (dtype == DType::kUint8) {
        bytes_[c][sample] = static_cast<uint8_t>(value);
        if (bytes_[c][sample] != sample) is_identity_ = false;
      } else {
        bits_[c][sample] = dtype == DType::kFloat16 ? ToFloat16(value) : ToBfloat16(value);
      }
    }
  }
}

void ValueTable::WriteRows(const ConstPicture& rows, int top, int height, Layout layout,
                           uint8_t* out) const {
  if (is_identity_ && channels_ == kChannels) {
    CopyRows(rows, top, height, layout, out);
    return;
  }
  switch (DTypeSizeBytes(dtype_)) {
    case 1:
      WriteAs(rows, top, height, layout, channels_, bytes_, out);
      return;
    case 2:
      WriteAs(rows, top, height, layout, channels_, bits_, out);
      return;
    default:
      WriteAs(rows, top, height, layout, channels_, values_, out);
  }
}

void ValueTable::Fill(const Box& box, int constant, ImageSize size, Layout layout,
                      uint8_t* out) const {
  const int step = layout == Layout::kHwc ? channels_ : 1;
  const int64_t between = layout == Layout::kHwc ? 1 : int64_t{size.height} * size.width;
  for (int c = 0; c < channels_; ++c) {
    const float value = constants_[static_cast<size_t>(constant)][c];
    const auto fill = [&](auto as_type) {
      using T = decltype(as_type);
      FillAs<T>(box, size.width, step, as_type, reinterpret_cast<T*>(out) + c * between);
    };
    switch (dtype_) {
      case DType::kUint8:
        fill(static_cast<uint8_t>(value));
        break;
      case DType::kFloat16:
        fill(ToFloat16(value));
        break;
      case DType::kBfloat16:
        fill(ToBfloat16(value));
        break;
      default:
        fill(value);
    }
  }
}

}  // namespace batchd
