// SPDX-License-Identifier: Apache-2.0
//
// Decoding that goes on over damage: the rows before it are those of the whole picture, and the
// error is told all the same.

#include <gtest/gtest.h>

#include "tests/conformance/format_pictures.h"
#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

struct Partial {
  absl::Status status;
  ImageSize size;
  ByteVector rgb;
};

Partial DecodeOverDamage(const ByteVector& bytes) {
  Partial partial;
  auto decoder = (*RecogniseImage(bytes))->make();
  const auto size = decoder->ReadHeader(bytes, {.goes_on_over_damage = true});
  EXPECT_OK(size);
  if (!size.ok()) return partial;
  partial.size = *size;
  Scratch scratch;
  CollectingSink sink(size->width);
  partial.status = decoder->Decode(bytes, WholeOf(*size), &scratch, &sink);
  partial.rgb = sink.rgb();
  return partial;
}

bool BeginsWithRows(const ByteVector& rgb, const ByteVector& whole, int rows, int width) {
  const size_t count = size_t{3} * rows * width;
  return rgb.size() >= count && whole.size() >= count &&
         std::equal(rgb.begin(), rgb.begin() + count, whole.begin());
}

TEST(DamageTest, SharedCasesGiveTheirGoodRows) {
  BATCHD_NEEDS_CASES();
  int count = 0;
  const auto expected = ReadJson(CasesPath("expected.json"));
  for (const auto& c : expected["cases"]) {
    if (c["group"] != "img" || !c["expect"].contains("recover")) continue;
    SCOPED_TRACE(c["id"].get<std::string>());
    const auto& recover = c["expect"]["recover"];
    const Partial partial = DecodeOverDamage(ReadFileBytes(CasesPath(c["file"])));
    ++count;

    EXPECT_THAT(partial.status, IsBadSample(SampleReason::kTruncated));
    EXPECT_EQ(partial.size.width, recover["width"]);
    EXPECT_EQ(partial.size.height, recover["height"]);
    // libjpeg makes all rows, in grey where it has none.
    EXPECT_EQ(partial.rgb.size(), size_t{3} * partial.size.width * partial.size.height);
    if (!recover.contains("whole_ref")) continue;
    const auto whole = DecodeAnyWhole(ReadFileBytes(CasesPath(recover["whole_ref"])));
    ASSERT_OK(whole);
    EXPECT_TRUE(BeginsWithRows(partial.rgb, *whole, recover["good_rows"], partial.size.width));
  }
  EXPECT_GE(count, 2);
}

TEST(DamageTest, WholePicturesAreWhole) {
  for (const TestPicture& picture : JpegPictures()) {
    const Partial partial = DecodeOverDamage(picture.bytes);
    EXPECT_OK(partial.status) << picture.name;
    EXPECT_EQ(partial.rgb, *DecodeAnyWhole(picture.bytes)) << picture.name;
  }
}

TEST(DamageTest, AJpegWithoutItsScanHasNoRows) {
  ByteVector jpeg = EncodeJpeg({});
  for (size_t at = 2; at + 4 <= jpeg.size();) {
    const bool is_scan = jpeg[at + 1] == 0xDA;
    at += 2 + (jpeg[at + 2] << 8 | jpeg[at + 3]);
    if (is_scan) jpeg.resize(at);
  }
  const Partial partial = DecodeOverDamage(jpeg);

  EXPECT_THAT(partial.status, IsBadSample(SampleReason::kTruncated));
  EXPECT_TRUE(partial.rgb.empty());
}

TEST(DamageTest, ACutPngGivesTheRowsBeforeTheCut) {
  const ByteVector png = EncodePng({.size = {200, 50}});
  const ByteVector whole = *DecodeAnyWhole(png);
  const ByteVector cut(png.begin(), png.begin() + png.size() / 2);

  const Partial partial = DecodeOverDamage(cut);

  EXPECT_THAT(partial.status, IsBadSample(SampleReason::kTruncated));
  const int rows = static_cast<int>(partial.rgb.size() / (3 * 50));
  EXPECT_GT(rows, 50);
  EXPECT_LT(rows, 150);
  EXPECT_TRUE(BeginsWithRows(partial.rgb, whole, rows, 50));
}

TEST(DamageTest, APngWithAWrongChecksumGivesItsRowsAndTheError) {
  ByteVector png = EncodePng({});
  const ByteVector whole = *DecodeAnyWhole(png);
  png[png.size() - 12 - 1] ^= 1;  // of the last IDAT, before IEND

  const Partial partial = DecodeOverDamage(png);

  EXPECT_THAT(partial.status, IsBadSample(SampleReason::kCorrupt));
  EXPECT_EQ(partial.rgb, whole);
}

TEST(DamageTest, PicturesCutAnywhereGiveRowsOfTheWholeOneOrMadeUpOnesWithAnError) {
  for (const TestPicture& picture : JpegPictures()) {
    for (size_t length = 700; length < picture.bytes.size(); length += 37) {
      const ByteVector cut(picture.bytes.begin(), picture.bytes.begin() + length);
      auto decoder = (*RecogniseImage(cut))->make();
      if (!decoder->ReadHeader(cut, {.goes_on_over_damage = true}).ok()) continue;
      const Partial partial = DecodeOverDamage(cut);
      // Only bits that pad the last byte and the end marker may be missing.
      if (partial.status.ok()) {
        EXPECT_GE(length + 4, picture.bytes.size()) << picture.name;
      }
    }
  }
}

}  // namespace
}  // namespace batchd
