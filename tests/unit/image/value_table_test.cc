// SPDX-License-Identifier: Apache-2.0

#include "server/image/value_table.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/test_picture.h"

namespace batchd {
namespace {

TEST(ToFloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(ToFloat16(0.0f), 0x0000);
  EXPECT_EQ(ToFloat16(-0.0f), 0x8000);
  EXPECT_EQ(ToFloat16(1.0f), 0x3C00);
  EXPECT_EQ(ToFloat16(-2.5f), 0xC100);
  EXPECT_EQ(ToFloat16(1.0f + 0x1p-11f), 0x3C00);      // a tie, down to even
  EXPECT_EQ(ToFloat16(1.0f + 3 * 0x1p-11f), 0x3C02);  // a tie, up to even
  EXPECT_EQ(ToFloat16(1.0f + 0x1p-11f + 0x1p-20f), 0x3C01);
  EXPECT_EQ(ToFloat16(65504.0f), 0x7BFF);
  EXPECT_EQ(ToFloat16(65519.99f), 0x7BFF);
  EXPECT_EQ(ToFloat16(65520.0f), 0x7C00);
  EXPECT_EQ(ToFloat16(INFINITY), 0x7C00);
  EXPECT_EQ(ToFloat16(0x1p-14f), 0x0400);
  EXPECT_EQ(ToFloat16(0x1p-24f), 0x0001);      // the smallest subnormal number
  EXPECT_EQ(ToFloat16(0x1p-25f), 0x0000);      // a tie to even
  EXPECT_EQ(ToFloat16(0x1.8p-24f), 0x0002);    // a tie to even
  EXPECT_EQ(ToFloat16(0x1.ffcp-15f), 0x0400);  // rounds up into the normal numbers
  EXPECT_GT(ToFloat16(std::numeric_limits<float>::quiet_NaN()) & 0x7FFF, 0x7C00);
}

// Every half is its own rounding, and so are the two neighbours of each midpoint.
TEST(ToFloat16, AgreesWithTheDefinitionForAllHalves) {
  const auto value_of = [](int bits) {
    const int exponent = bits >> 10, mantissa = bits & 0x3FF;
    return exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                         : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  };
  for (int bits = 0; bits < 0x7BFF; ++bits) {
    const float here = value_of(bits), next = value_of(bits + 1);
    const float middle = (here + next) / 2;
    ASSERT_EQ(ToFloat16(here), bits);
    ASSERT_EQ(ToFloat16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(ToFloat16(middle), bits + (bits & 1));
    ASSERT_EQ(ToFloat16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(ToFloat16(-here), bits | 0x8000);
  }
}

TEST(ToBfloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(ToBfloat16(1.0f), 0x3F80);
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x3F80'8000u)), 0x3F80);
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x3F81'8000u)), 0x3F82);
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x3F80'8001u)), 0x3F81);
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x7F7F'FFFFu)), 0x7F80);
  EXPECT_EQ(ToBfloat16(std::bit_cast<float>(0x7F80'0001u)) & 0x7FC0, 0x7FC0);
  EXPECT_EQ(ToBfloat16(-0.0f), 0x8000);
}

TEST(ValueTable, StartsAsTheIdentity) {
  const ValueTable table;
  EXPECT_EQ(table.dtype(), DType::kUint8);
  EXPECT_TRUE(table.is_identity());
  EXPECT_EQ(table.at(2, 77), 77.0f);
}

TEST(ValueTable, DividesAndNormalisesInFloat32) {
  ValueTable table;
  table.DivideBy255();
  EXPECT_FALSE(table.is_identity());
  EXPECT_EQ(table.at(0, 255), 1.0f);
  EXPECT_EQ(table.at(1, 77), 77.0f / 255.0f);
  table.Normalize({0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f});
  EXPECT_EQ(table.at(2, 200), (200.0f / 255.0f - 0.406f) / 0.225f);
  EXPECT_EQ(table.dtype(), DType::kFloat32);
}

TEST(ValueTable, ACastToBytesCutsAndClampsAndNeverScales) {
  ValueTable table;
  table.DivideBy255();
  table.Normalize({0.5f, -300.0f, 0.0f}, {0.1f, 1.0f, 1.0f});
  table.CastTo(DType::kUint8);
  EXPECT_EQ(table.at(0, 0), 0.0f);  // -5
  EXPECT_EQ(table.at(0, 255), 5.0f);
  EXPECT_EQ(table.at(0, 170), 1.0f);  // 1.67
  EXPECT_EQ(table.at(1, 9), 255.0f);  // 300
  EXPECT_EQ(table.at(2, 254), 0.0f);
  EXPECT_FALSE(table.is_identity());
}

TEST(ValueTable, WritesBothLayoutsFromAPartOfAPicture) {
  Draws draws({.seed = 1});
  const TestPicture whole = NoisePicture({6, 7}, &draws);
  const Box box = {1, 2, 3, 4};
  ValueTable table;
  std::vector<uint8_t> hwc(36), chw(36);
  table.Write(whole.part(box), Layout::kHwc, hwc.data());
  table.Write(whole.part(box), Layout::kChw, chw.data());
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 4; ++x) {
      for (int c = 0; c < 3; ++c) {
        EXPECT_EQ(hwc[size_t((y * 4 + x) * 3 + c)], whole.at(y + 1, x + 2)[c]);
        EXPECT_EQ(chw[size_t(c * 12 + y * 4 + x)], whole.at(y + 1, x + 2)[c]);
      }
    }
  }
}

TEST(ValueTable, WritesEveryTypeAsItsTableSays) {
  Draws draws({.seed = 2});
  const TestPicture picture = NoisePicture({5, 9}, &draws);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
    ValueTable table;
    table.DivideBy255();
    table.Normalize({0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f});
    table.CastTo(dtype);
    const auto value_size = static_cast<size_t>(DTypeSizeBytes(dtype));
    std::vector<float> memory(picture.pixels.size());  // aligned for all types
    table.Write(picture.view(), Layout::kHwc, reinterpret_cast<uint8_t*>(memory.data()));
    for (size_t i = 0; i < picture.pixels.size(); ++i) {
      const float want = table.at(static_cast<int>(i % 3), picture.pixels[i]);
      uint32_t got = 0;
      std::memcpy(&got, reinterpret_cast<uint8_t*>(memory.data()) + i * value_size, value_size);
      EXPECT_EQ(got, dtype == DType::kFloat32   ? std::bit_cast<uint32_t>(want)
                     : dtype == DType::kFloat16 ? ToFloat16(want)
                                                : ToBfloat16(want));
    }
  }
}

TEST(ValueTable, OneChannelIsThePicturesFirst) {
  Draws draws({.seed = 3});
  const TestPicture picture = NoisePicture({5, 9}, &draws);
  ValueTable bytes;
  bytes.SetChannels(1);
  ValueTable floats;
  floats.SetChannels(1);
  floats.DivideBy255();
  for (const Layout layout : {Layout::kHwc, Layout::kChw}) {
    std::vector<uint8_t> row(45 + 1, 77);
    bytes.Write(picture.view(), layout, row.data());
    std::vector<float> values(45 + 1, 77.0f);
    floats.Write(picture.view(), layout, reinterpret_cast<uint8_t*>(values.data()));
    for (size_t i = 0; i < 45; ++i) {
      EXPECT_EQ(row[i], picture.pixels[3 * i]);
      EXPECT_EQ(values[i], static_cast<float>(picture.pixels[3 * i]) / 255.0f);
    }
    EXPECT_EQ(row[45], 77);
    EXPECT_EQ(values[45], 77.0f);
  }
}

// Fills a box of a 4x5 row of zeros; the values of the float types as floats would be written.
template <typename T>
std::vector<T> Filled(const ValueTable& table, int constant, Layout layout) {
  std::vector<T> row(4 * 5 * 3, T{0});
  table.Fill({1, 2, 2, 3}, constant, {4, 5}, layout, reinterpret_cast<uint8_t*>(row.data()));
  return row;
}

TEST(ValueTable, FillsABoxInBothLayouts) {
  ValueTable table;
  table.AddConstant({1, 1, 1});
  const int constant = table.AddConstant({7, 8, 9});
  EXPECT_EQ(constant, 1);
  const auto hwc = Filled<uint8_t>(table, constant, Layout::kHwc);
  const auto chw = Filled<uint8_t>(table, constant, Layout::kChw);
  for (int y = 0; y < 4; ++y) {
    for (int x = 0; x < 5; ++x) {
      const bool is_in = y >= 1 && y < 3 && x >= 2;
      for (int c = 0; c < 3; ++c) {
        EXPECT_EQ(hwc[size_t((y * 5 + x) * 3 + c)], is_in ? 7 + c : 0);
        EXPECT_EQ(chw[size_t(c * 20 + y * 5 + x)], is_in ? 7 + c : 0);
      }
    }
  }
}

TEST(ValueTable, WhatFollowsAConstantActsOnIt) {
  ValueTable table;
  const int bytes = table.AddConstant({51, 102, 255});
  table.DivideBy255();
  const int unit = table.AddConstant({0.25f, 0.5f, 1.0f});
  table.Normalize({0.5f, 0.5f, 0.5f}, {0.5f, 0.25f, 0.5f});
  const int normal = table.AddConstant({-3, 0.1f, 5});
  const auto at = [&](int constant) {
    const auto row = Filled<float>(table, constant, Layout::kChw);
    return std::array<float, 3>{row[7], row[27], row[47]};
  };
  EXPECT_EQ(at(bytes), (std::array<float, 3>{(51 / 255.0f - 0.5f) / 0.5f,
                                             (102 / 255.0f - 0.5f) / 0.25f, 1.0f}));
  EXPECT_EQ(at(unit), (std::array<float, 3>{-0.5f, 0, 1}));
  EXPECT_EQ(at(normal), (std::array<float, 3>{-3, 0.1f, 5}));
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    ValueTable cast = table;
    cast.CastTo(dtype);
    EXPECT_EQ(Filled<uint16_t>(cast, normal, Layout::kChw)[27],
              dtype == DType::kFloat16 ? ToFloat16(0.1f) : ToBfloat16(0.1f));
  }
  table.CastTo(DType::kUint8);
  EXPECT_EQ(Filled<uint8_t>(table, normal, Layout::kHwc)[21], 0);  // -3
  EXPECT_EQ(Filled<uint8_t>(table, normal, Layout::kHwc)[23], 5);
}

TEST(DTypes, HaveNamesAndSizes) {
  EXPECT_STREQ(DTypeName(DType::kBfloat16), "bfloat16");
  EXPECT_EQ(DTypeSizeBytes(DType::kInt64), 8);
  EXPECT_EQ(DTypeSizeBytes(DType::kUint8), 1);
}

}  // namespace
}  // namespace batchd
