// SPDX-License-Identifier: Apache-2.0

#include "server/image/value_table.h"

#include <bit>
#include <cstring>

#include "server/base/check.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;

template <typename T>
using Table = std::array<std::array<T, 256>, kChannels>;

template <typename T>
void WriteHwc(const ConstPicture& picture, const Table<T>& table, T* out) {
  for (int y = 0; y < picture.height; ++y) {
    const uint8_t* from = picture.data + y * picture.stride_bytes;
    for (int x = 0; x < picture.width; ++x, from += kChannels, out += kChannels) {
      out[0] = table[0][from[0]];
      out[1] = table[1][from[1]];
      out[2] = table[2][from[2]];
    }
  }
}

template <typename T>
void WriteChw(const ConstPicture& picture, const Table<T>& table, T* out) {
  const int64_t plane = int64_t{picture.height} * picture.width;
  for (int y = 0; y < picture.height; ++y) {
    const uint8_t* from = picture.data + y * picture.stride_bytes;
    for (int x = 0; x < picture.width; ++x, from += kChannels, ++out) {
      out[0] = table[0][from[0]];
      out[plane] = table[1][from[1]];
      out[2 * plane] = table[2][from[2]];
    }
  }
}

template <typename T>
void WriteAs(const ConstPicture& picture, Layout layout, const Table<T>& table, uint8_t* out) {
  T* const values = reinterpret_cast<T*>(out);
  if (layout == Layout::kHwc) {
    WriteHwc(picture, table, values);
  } else {
    WriteChw(picture, table, values);
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
  for (auto& channel : values_) {
    for (int sample = 0; sample < 256; ++sample) channel[sample] = static_cast<float>(sample);
  }
}

void ValueTable::DivideBy255() {
  for (auto& channel : values_) {
    for (float& value : channel) value = value / 255.0f;
  }
  dtype_ = DType::kFloat32;
}

void ValueTable::Normalize(const std::array<float, 3>& mean, const std::array<float, 3>& std) {
  BATCHD_CHECK(dtype_ == DType::kFloat32);
  for (int c = 0; c < kChannels; ++c) {
    for (float& value : values_[c]) value = (value - mean[c]) / std[c];
  }
}

void ValueTable::CastTo(DType dtype) {
  BATCHD_CHECK(dtype != DType::kInt64);
  // Only a table of floats can have values that a byte has not.
  if (dtype == DType::kUint8) {
    for (auto& channel : values_) {
      for (float& value : channel) {
        value = value >= 255.0f ? 255.0f : value > 0.0f ? static_cast<float>(uint8_t(value)) : 0.0f;
      }
    }
  }
  dtype_ = dtype;
  if (DTypeSizeBytes(dtype) != 2) return;
  for (int c = 0; c < kChannels; ++c) {
    for (int sample = 0; sample < 256; ++sample) {
      const float value = values_[c][sample];
      bits_[c][sample] = dtype == DType::kFloat16 ? ToFloat16(value) : ToBfloat16(value);
    }
  }
}

bool ValueTable::is_identity() const {
  if (dtype_ != DType::kUint8) return false;
  for (const auto& channel : values_) {
    for (int sample = 0; sample < 256; ++sample) {
      if (channel[sample] != static_cast<float>(sample)) return false;
    }
  }
  return true;
}

void ValueTable::Write(const ConstPicture& picture, Layout layout, uint8_t* out) const {
  switch (DTypeSizeBytes(dtype_)) {
    case 1: {
      Table<uint8_t> bytes;
      for (int c = 0; c < kChannels; ++c) {
        for (int sample = 0; sample < 256; ++sample) bytes[c][sample] = uint8_t(values_[c][sample]);
      }
      WriteAs(picture, layout, bytes, out);
      return;
    }
    case 2:
      WriteAs(picture, layout, bits_, out);
      return;
    default:
      WriteAs(picture, layout, values_, out);
  }
}

}  // namespace batchd
