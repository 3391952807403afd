// SPDX-License-Identifier: Apache-2.0
//
// The tables of the shared case geometry.json, and what is beyond them.

#include "server/transform/sizes.h"

#include <gtest/gtest.h>

#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using nlohmann::json;

json Table(const char* name) {
  json table = ReadJson(CasesPath("transforms/geometry.json"))[name];
  EXPECT_FALSE(table.empty());
  return table;
}
ImageSize PictureOf(const json& row) { return {row["height"], row["width"]}; }

TEST(Sizes, ShortSideTableHolds) {
  BATCHD_NEEDS_CASES();
  for (const json& row : Table("resized_size")) {
    const auto size = ShortSideSize(PictureOf(row), row["short_side"], std::nullopt);
    ASSERT_OK(size);
    EXPECT_EQ(*size, (ImageSize{row["size"][0], row["size"][1]})) << row;
  }
}

TEST(Sizes, CentreCropTableHolds) {
  BATCHD_NEEDS_CASES();
  for (const json& row : Table("center_crop")) {
    const ImageSize crop = {row["crop"][0], row["crop"][1]};
    const json& border = row["border"];  // left, top, right, bottom
    const Box want = {row["top"].get<int>() - border[1].get<int>(),
                      row["left"].get<int>() - border[0].get<int>(), crop.height, crop.width};
    EXPECT_EQ(CenterBox(PictureOf(row), crop), want) << row;
  }
}

TEST(Sizes, SingleTriesTableHolds) {
  BATCHD_NEEDS_CASES();
  for (const json& row : Table("random_resized_crop_try")) {
    const auto size = CropSize(PictureOf(row), row["area_fraction"], row["aspect"]);
    ASSERT_EQ(size.has_value(), !row["size"].is_null()) << row;
    if (!size) continue;
    EXPECT_EQ(*size, (ImageSize{row["size"][0], row["size"][1]})) << row;
  }
}

TEST(Sizes, FallbackTableHolds) {
  BATCHD_NEEDS_CASES();
  for (const json& row : Table("random_resized_crop_fallback")) {
    const json& box = row["box"];
    EXPECT_EQ(FallbackBox(PictureOf(row), row["ratio"][0], row["ratio"][1]),
              (Box{box[0], box[1], box[2], box[3]}))
        << row;
  }
}

TEST(Sizes, MaxSizeLimitsTheLongSideAndLeavesAPixelOfTheShortOne) {
  EXPECT_EQ(*ShortSideSize({300, 400}, 240, 300), (ImageSize{225, 300}));
  EXPECT_EQ(*ShortSideSize({300, 400}, 240, 320), (ImageSize{240, 320}));
  EXPECT_EQ(*ShortSideSize({1, 1000}, 2, 3), (ImageSize{1, 3}));
}

TEST(Sizes, ASideBeyondTheLimitIsTooLargeAndNoOverflow) {
  EXPECT_THAT(ShortSideSize({1, 300}, 256, std::nullopt), IsBadSample(SampleReason::kTooLarge));
  EXPECT_THAT(ShortSideSize({1, 65535}, 65535, std::nullopt), IsBadSample(SampleReason::kTooLarge));
  EXPECT_EQ(*ShortSideSize({1, 65535}, 65534, 65535), (ImageSize{1, 65535}));
}

TEST(Sizes, TheFallbackIsNeverEmptyNorLargerThanThePicture) {
  for (const ImageSize picture : {ImageSize{1, 1}, {1, 500}, {500, 1}, {7, 3}}) {
    for (const double ratio : {1e-3, 0.3, 1.0, 7.7, 1e3}) {
      const Box box = FallbackBox(picture, ratio, ratio);
      EXPECT_TRUE(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
                  box.top + box.height <= picture.height && box.left + box.width <= picture.width);
    }
  }
}

}  // namespace
}  // namespace batchd
