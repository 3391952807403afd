// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/format_pictures.h"

#ifdef BATCHD_HAS_TIFF
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

ByteVector Decoded(const ByteVector& tiff) {
  auto rgb = DecodeAnyWhole(tiff);
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

// Of a little-endian file: where the entry of this tag is.
size_t FindTag(const ByteVector& tiff, int tag) {
  size_t at = tiff[4] | tiff[5] << 8 | tiff[6] << 16;
  const int count = tiff[at] | tiff[at + 1] << 8;
  at += 2;
  for (int i = 0; i < count; ++i, at += 12) {
    if ((tiff[at] | tiff[at + 1] << 8) == tag) return at;
  }
  ADD_FAILURE() << "no tag " << tag;
  return 0;
}
void SetValue(int tag, uint32_t value, ByteVector* tiff) {
  const size_t at = FindTag(*tiff, tag) + 8;
  for (int i = 0; i < 4; ++i) (*tiff)[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

TEST(TiffDecoderTest, SamplesAreTheFirstChannelsUnderAnyAlpha) {
  const ImageSize size = {2, 3};
  const ByteVector stored = TestSamples({2, 12}, 1);
  ByteVector expected;
  for (size_t i = 0; i < stored.size(); i += 4) {
    expected.insert(expected.end(), stored.begin() + i, stored.begin() + i + 3);
  }

  EXPECT_EQ(Decoded(EncodeTiff({.size = size})), TestSamples({2, 9}, 1));
  EXPECT_EQ(Decoded(EncodeTiff({.size = size, .channels = 4})), expected);
}

// libtiff only warns, and would leave the rest of each row as it was in memory.
TEST(TiffDecoderTest, AJpegOfAnotherSizeThanItsStripIsCorrupt) {
  const ByteVector tiff = EncodeTiff({.size = {16, 32}, .compression = COMPRESSION_JPEG});
  ASSERT_OK(DecodeAnyWhole(tiff));
  for (const auto& [tag, value] :
       {std::pair{TIFFTAG_IMAGEWIDTH, 64u}, {TIFFTAG_IMAGELENGTH, 24u}}) {
    ByteVector wrong = tiff;
    SetValue(tag, value, &wrong);
    SetValue(TIFFTAG_ROWSPERSTRIP, 24, &wrong);
    const auto rgb = DecodeAnyWhole(wrong);
    EXPECT_EQ(SampleReasonOf(rgb.status()), SampleReason::kCorrupt) << rgb.status();
    EXPECT_NE(rgb.status().message().find("another size"), std::string::npos) << rgb.status();
  }
}

TEST(TiffDecoderTest, SixteenBitsBecomeTheirHighByteInEitherByteOrder) {
  const ByteVector rgb = Decoded(EncodeTiff(
      {.size = {1, 2}, .bits = 16, .channels = 1, .photometric = PHOTOMETRIC_MINISBLACK}));
  const ByteVector swapped = Decoded(EncodeTiff({.size = {1, 2},
                                                 .bits = 16,
                                                 .channels = 1,
                                                 .photometric = PHOTOMETRIC_MINISBLACK,
                                                 .big_endian = true}));
  const ByteVector stored = TestSamples({1, 4}, 1);

  EXPECT_EQ(rgb, (ByteVector{stored[1], stored[1], stored[1], stored[3], stored[3], stored[3]}));
  EXPECT_EQ(swapped, rgb);
}

TEST(TiffDecoderTest, GreyOfFewBitsIsScaledAndMinIsWhiteTurned) {
  const ByteVector black = Decoded(EncodeTiff(
      {.size = {1, 8}, .bits = 4, .channels = 1, .photometric = PHOTOMETRIC_MINISBLACK}));
  const ByteVector white = Decoded(EncodeTiff(
      {.size = {1, 8}, .bits = 4, .channels = 1, .photometric = PHOTOMETRIC_MINISWHITE}));
  const ByteVector stored = TestSamples({1, 4}, 1);

  for (int x = 0; x < 8; ++x) {
    const int nibble = x % 2 == 0 ? stored[x / 2] >> 4 : stored[x / 2] & 15;
    EXPECT_EQ(black[3 * x], nibble * 17);
    EXPECT_EQ(white[3 * x], 255 - nibble * 17);
  }
}

TEST(TiffDecoderTest, TilesPlanesAndCompressionsDoNotChangePixels) {
  const ByteVector expected = Decoded(EncodeTiff({}));

  for (int compression : {COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE, COMPRESSION_PACKBITS}) {
    EXPECT_EQ(Decoded(EncodeTiff({.compression = compression})), expected) << compression;
  }
  EXPECT_EQ(Decoded(EncodeTiff({.big_endian = true})), expected);
}

TEST(TiffDecoderTest, WhatIsNotHandledIsUnsupported) {
  using enum SampleReason;
  ByteVector floats = EncodeTiff({.bits = 16});
  SetValue(TIFFTAG_COMPRESSION, 34712, &floats);
  EXPECT_THAT(DecodeAnyWhole(floats), IsBadSample(kUnsupported));
  ByteVector lab = EncodeTiff({});
  SetValue(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_CIELAB, &lab);
  EXPECT_THAT(DecodeAnyWhole(lab), IsBadSample(kUnsupported));
}

TEST(TiffDecoderTest, SizesAboveTheLimitAreTooLarge) {
  ByteVector tiff = EncodeTiff({});
  SetValue(TIFFTAG_IMAGEWIDTH, 65500, &tiff);
  SetValue(TIFFTAG_IMAGELENGTH, 65500, &tiff);
  EXPECT_THAT(DecodeAnyWhole(tiff), IsBadSample(SampleReason::kTooLarge));
}

TEST(TiffDecoderTest, TilesThatBecomeTooMuchAreTooLarge) {
  ByteVector tiff = EncodeTiff({.compression = COMPRESSION_LZW, .tile = 16});
  SetValue(TIFFTAG_TILEWIDTH, 1 << 14, &tiff);
  SetValue(TIFFTAG_TILELENGTH, 1 << 14, &tiff);
  EXPECT_THAT(DecodeAnyWhole(tiff), IsBadSample(SampleReason::kTooLarge));
}

TEST(TiffDecoderTest, StripsThatAllLieOnTheWholeFileAreCorrupt) {
  ByteVector tiff = EncodeTiff({.compression = COMPRESSION_LZW});
  const size_t counts = FindTag(tiff, TIFFTAG_STRIPBYTECOUNTS);
  const size_t at = tiff[counts + 8] | tiff[counts + 9] << 8;
  const bool is_short = tiff[counts + 2] == 3;
  ASSERT_TRUE(is_short);
  for (int i = 0; i < 4; ++i) {
    tiff[at + 2 * i] = static_cast<uint8_t>(tiff.size());
    tiff[at + 2 * i + 1] = static_cast<uint8_t>(tiff.size() >> 8);
  }

  EXPECT_THAT(DecodeAnyWhole(tiff), IsBadSample(SampleReason::kCorrupt));
}

TEST(TiffDecoderTest, TagsThatAllLieOnTheWholeFileAreCorrupt) {
  ByteVector tiff = EncodeTiff({.size = {40, 40}});
  // A folder of tags that nobody knows, each with all bytes of the file as its value.
  const size_t folder = tiff.size();
  PutLittle(300, 2, &tiff);
  for (int i = 0; i < 300; ++i) {
    PutLittle(40000 + i, 2, &tiff);
    PutLittle(7, 2, &tiff);
    PutLittle(folder, 4, &tiff);
    PutLittle(0, 4, &tiff);
  }
  PutLittle(0, 4, &tiff);
  for (int i = 0; i < 4; ++i) tiff[4 + i] = static_cast<uint8_t>(folder >> (8 * i));

  EXPECT_THAT(DecodeAnyWhole(tiff),
              testing::AllOf(IsBadSample(SampleReason::kCorrupt),
                             FailsWith(absl::StatusCode::kDataLoss, "tags with")));
}

}  // namespace
}  // namespace batchd
#endif
