// SPDX-License-Identifier: Apache-2.0

#include "server/image/pad.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/test_picture.h"

namespace batchd {
namespace {

TestPicture Padded(const TestPicture& in, const Box& box, PadMode mode) {
  TestPicture out({box.height, box.width});
  PadFrom(in.view(), box, mode, {7, 8, 9}, out.view());
  return out;
}

// The red values of a row of five pixels 0 to 4, from `left` on.
std::vector<int> RowFrom(int left, int width, PadMode mode, int size = 5) {
  TestPicture in({1, size});
  for (int x = 0; x < size; ++x) in.at(0, x)[0] = static_cast<uint8_t>(x);
  const TestPicture out = Padded(in, {0, left, 1, width}, mode);
  std::vector<int> row;
  for (int x = 0; x < width; ++x) row.push_back(out.at(0, x)[0]);
  return row;
}

TEST(PadFrom, ModesAreNumpys) {
  EXPECT_EQ(RowFrom(-3, 11, PadMode::kConstant),
            (std::vector<int>{7, 7, 7, 0, 1, 2, 3, 4, 7, 7, 7}));
  EXPECT_EQ(RowFrom(-3, 11, PadMode::kEdge), (std::vector<int>{0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 4}));
  EXPECT_EQ(RowFrom(-3, 11, PadMode::kReflect),
            (std::vector<int>{3, 2, 1, 0, 1, 2, 3, 4, 3, 2, 1}));
  EXPECT_EQ(RowFrom(-3, 11, PadMode::kSymmetric),
            (std::vector<int>{2, 1, 0, 0, 1, 2, 3, 4, 4, 3, 2}));
}

TEST(PadFrom, FarOutsideMirrorsRepeat) {
  EXPECT_EQ(RowFrom(-9, 9, PadMode::kReflect), (std::vector<int>{1, 0, 1, 2, 3, 4, 3, 2, 1}));
  EXPECT_EQ(RowFrom(5, 9, PadMode::kSymmetric), (std::vector<int>{4, 3, 2, 1, 0, 0, 1, 2, 3}));
  for (const PadMode mode : {PadMode::kEdge, PadMode::kReflect, PadMode::kSymmetric}) {
    EXPECT_EQ(RowFrom(-4, 7, mode, 1), (std::vector<int>(7, 0)));
  }
}

// Columns and rows are independent: a box of a picture is, pixel by pixel, that of its sides.
TEST(PadFrom, ABoxIsItsRowsAndColumns) {
  for (uint64_t i = 0; i < 2000; ++i) {
    Draws draws({.seed = 4, .ordinal = i});
    const ImageSize size = {int(1 + draws.NextBelow(9)), int(1 + draws.NextBelow(9))};
    const TestPicture in = NoisePicture(size, &draws);
    const Box box = {int(draws.NextBelow(40)) - 20, int(draws.NextBelow(40)) - 20,
                     int(1 + draws.NextBelow(30)), int(1 + draws.NextBelow(30))};
    const auto mode = static_cast<PadMode>(draws.NextBelow(4));
    const TestPicture out = Padded(in, box, mode);
    const std::vector<int> columns = RowFrom(box.left, box.width, mode, size.width);
    const std::vector<int> rows = RowFrom(box.top, box.height, mode, size.height);
    for (int y = 0; y < box.height; ++y) {
      for (int x = 0; x < box.width; ++x) {
        const bool is_inside = box.top + y >= 0 && box.top + y < size.height && box.left + x >= 0 &&
                               box.left + x < size.width;
        const uint8_t fill[3] = {7, 8, 9};
        const bool is_fill = mode == PadMode::kConstant && !is_inside;
        ASSERT_TRUE(std::equal(out.at(y, x), out.at(y, x) + 3,
                               is_fill ? fill : in.at(rows[y], columns[x])));
      }
    }
  }
}

}  // namespace
}  // namespace batchd
