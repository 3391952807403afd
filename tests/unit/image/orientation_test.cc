// SPDX-License-Identifier: Apache-2.0

#include "server/image/orientation.h"

#include <gtest/gtest.h>

#include "tests/support/test_picture.h"

namespace batchd {
namespace {

constexpr ImageSize kStored = {5, 7};

// What EXIF says of each orientation: where row 0 and column 0 of the stored picture are seen.
TestPicture Upright(const TestPicture& stored, int orientation) {
  const int bottom = stored.size.height - 1;
  const int right = stored.size.width - 1;
  TestPicture upright(UprightSize(stored.size, orientation));
  for (int y = 0; y <= bottom; ++y) {
    for (int x = 0; x <= right; ++x) {
      const int places[8][2] = {{y, x}, {y, right - x},  {bottom - y, right - x}, {bottom - y, x},
                                {x, y}, {x, bottom - y}, {right - x, bottom - y}, {right - x, y}};
      const int* place = places[orientation - 1];
      std::copy_n(stored.at(y, x), 3, upright.at(place[0], place[1]));
    }
  }
  return upright;
}

class Collect final : public RowSink {
 public:
  explicit Collect(ImageSize size) : picture(size) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    for (int i = 0; i < row_count; ++i, rgb += stride_bytes) {
      ASSERT_LT(rows, picture.size.height);
      std::copy_n(rgb, 3 * picture.size.width, picture.at(rows++, 0));
    }
  }
  TestPicture picture;
  int rows = 0;
};

TEST(OrientationTest, SidesAreExchangedFrom5On) {
  for (int orientation = 1; orientation <= 4; ++orientation) {
    EXPECT_EQ(UprightSize(kStored, orientation), kStored);
  }
  for (int orientation = 5; orientation <= 8; ++orientation) {
    EXPECT_EQ(UprightSize(kStored, orientation), (ImageSize{7, 5}));
  }
}

TEST(OrientationTest, EveryPartOfTheUprightPictureComesFromItsPartOfTheStoredOne) {
  Draws draws({.seed = 3});
  const TestPicture stored = NoisePicture(kStored, &draws);
  Scratch scratch;
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const TestPicture upright = Upright(stored, orientation);
    for (int i = 0; i < 100; ++i) {
      const int top = draws.NextBelow(upright.size.height);
      const int left = draws.NextBelow(upright.size.width);
      const Box box = {top, left, 1 + static_cast<int>(draws.NextBelow(upright.size.height - top)),
                       1 + static_cast<int>(draws.NextBelow(upright.size.width - left))};
      Collect rows({box.height, box.width});

      UprightRows turned(orientation, kStored, box, &rows, &scratch);
      const ConstPicture part = stored.part(turned.region());
      const int first = 1 + draws.NextBelow(part.height);  // in two calls, if there are two rows
      turned.PutRows(part.data, part.stride_bytes, first);
      if (first < part.height) {
        turned.PutRows(part.data + first * part.stride_bytes, part.stride_bytes,
                       part.height - first);
      }

      TestPicture expected({box.height, box.width});
      for (int y = 0; y < box.height; ++y) {
        std::copy_n(upright.at(top + y, left), 3 * box.width, expected.at(y, 0));
      }
      EXPECT_EQ(rows.rows, box.height);
      EXPECT_EQ(rows.picture, expected) << orientation;
    }
  }
}

}  // namespace
}  // namespace batchd
