// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/format_pictures.h"

#ifdef BATCHD_HAS_GIF
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

ByteVector Decoded(const ByteVector& gif) {
  auto rgb = DecodeAnyWhole(gif);
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

// Colour i of EncodeGif.
ByteVector Colour(int i) {
  return {static_cast<uint8_t>(4 * i), static_cast<uint8_t>(255 - i), static_cast<uint8_t>(i * 7)};
}
ByteVector PixelAt(const ByteVector& rgb, int width, int row, int column) {
  const auto first = rgb.begin() + 3 * (row * width + column);
  return {first, first + 3};
}

TEST(GifDecoderTest, InterlacedRowsComeInTheirPlaces) {
  const ByteVector plain = Decoded(EncodeGif({}));
  const ByteVector interlaced = Decoded(EncodeGif({.interlaced = true}));
  const int row_bytes = 3 * 23;
  // Of 17 rows the file has 0, 8, 16, 4, 12, 2, 6, ... in this order.
  const int order[] = {0, 8, 16, 4, 12, 2, 6, 10, 14, 1, 3, 5, 7, 9, 11, 13, 15};

  for (int i = 0; i < 17; ++i) {
    EXPECT_TRUE(std::equal(plain.begin() + i * row_bytes, plain.begin() + (i + 1) * row_bytes,
                           interlaced.begin() + order[i] * row_bytes))
        << i;
  }
}

TEST(GifDecoderTest, WhatThePictureDoesNotCoverIsTheTransparentColourOrElseColour0) {
  const ByteVector opaque = Decoded(EncodeGif({.frame = {3, 5, 7, 9}}));
  const ByteVector transparent = Decoded(EncodeGif({.frame = {3, 5, 7, 9}, .transparent = 9}));

  EXPECT_EQ(PixelAt(opaque, 23, 0, 0), Colour(0));
  EXPECT_EQ(PixelAt(transparent, 23, 0, 0), Colour(9));
  EXPECT_EQ(PixelAt(transparent, 23, 16, 22), Colour(9));
  EXPECT_EQ(PixelAt(opaque, 23, 3, 5), PixelAt(transparent, 23, 3, 5));
}

TEST(GifDecoderTest, WithoutAPaletteIndicesAreGrey) {
  const ByteVector coloured = EncodeGif({});
  constexpr size_t kScreenBytes = 13;
  ByteVector gif(coloured.begin(), coloured.begin() + kScreenBytes);
  gif[10] &= 0x7F;  // says that a palette follows
  gif.insert(gif.end(), coloured.begin() + kScreenBytes + 3 * 64, coloured.end());

  const ByteVector rgb = Decoded(gif);
  const ByteVector expected = Decoded(coloured);

  ASSERT_EQ(rgb.size(), expected.size());
  for (size_t i = 0; i < rgb.size(); ++i) EXPECT_EQ(rgb[i], expected[i / 3 * 3] / 4);
}

TEST(GifDecoderTest, AScreenWithoutAPictureIsCorruptAndAHugeOneTooLarge) {
  ByteVector empty = {'G', 'I', 'F', '8', '9', 'a', 1, 0, 1, 0, 0, 0, 0, ';'};
  EXPECT_THAT(DecodeAnyWhole(empty), IsBadSample(SampleReason::kCorrupt));
  ByteVector huge = EncodeGif({});
  for (int i = 6; i < 10; ++i) huge[i] = 0xFF;
  EXPECT_THAT(DecodeAnyWhole(huge), IsBadSample(SampleReason::kTooLarge));
}

}  // namespace
}  // namespace batchd
#endif
