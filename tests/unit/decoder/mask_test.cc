// SPDX-License-Identifier: Apache-2.0
//
// Pictures as masks: the numbers of the colours instead of the colours.

#include <gtest/gtest.h>

#include <string>

#include "tests/conformance/format_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

constexpr DecodeLimits kAsMask = {.as_mask = true};
constexpr ImageSize kSize = {23, 37};

ByteVector DecodedMask(const ByteVector& bytes) {
  const auto rgb = DecodeAnyWhole(bytes, kAsMask);
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

// `colour_of` gives the channels of a number as the same picture has them when it is decoded to
// RGB.
template <typename ColourOf>
void ExpectNumbersOf(const ByteVector& bytes, const ColourOf& colour_of) {
  const ByteVector mask = DecodedMask(bytes);
  const auto rgb = DecodeAnyWhole(bytes);
  ASSERT_OK(rgb);
  ASSERT_EQ(mask.size(), rgb->size());
  for (size_t i = 0; i < mask.size(); i += 3) {
    ASSERT_EQ(mask[i], mask[i + 1]);
    ASSERT_EQ(mask[i], mask[i + 2]);
    const std::array<uint8_t, 3> colour = colour_of(mask[i]);
    for (size_t c = 0; c < 3; ++c) ASSERT_EQ((*rgb)[i + c], colour[c]) << "pixel " << i / 3;
  }
}

TEST(Mask, PngGivesIndicesOfThePalette) {
  for (const bool interlaced : {false, true}) {
    for (const int bits : {1, 2, 4, 8}) {
      SCOPED_TRACE(std::to_string(bits) + (interlaced ? " interlaced" : ""));
      ExpectNumbersOf(EncodePng({kSize, SPNG_COLOR_TYPE_INDEXED, uint8_t(bits), interlaced}),
                      [](uint8_t i) -> std::array<uint8_t, 3> {
                        return {uint8_t(i * 37), uint8_t(255 - i), uint8_t(i * 11)};
                      });
    }
  }
}

// As numpy sees them behind Pillow: a bit is 0 or 1, what is wider is spread over 0 to 255.
TEST(Mask, PngGivesGreyLevels) {
  for (const bool interlaced : {false, true}) {
    for (const int bits : {1, 2, 4, 8}) {
      SCOPED_TRACE(std::to_string(bits) + (interlaced ? " interlaced" : ""));
      ExpectNumbersOf(EncodePng({kSize, SPNG_COLOR_TYPE_GRAYSCALE, uint8_t(bits), interlaced}),
                      [bits](uint8_t level) -> std::array<uint8_t, 3> {
                        const auto spread = uint8_t(bits == 1 ? level * 255 : level);
                        return {spread, spread, spread};
                      });
    }
  }
}

TEST(Mask, BmpGivesIndicesOfThePalette) {
  for (const int bits : {1, 4, 8}) {
    SCOPED_TRACE(bits);
    ExpectNumbersOf(EncodeBmp({.size = kSize, .bits = bits}),
                    [](uint8_t i) -> std::array<uint8_t, 3> {
                      const uint32_t colour = i * 0x050301u + 0x112233u;
                      return {uint8_t(colour >> 16), uint8_t(colour >> 8), uint8_t(colour)};
                    });
  }
}

TEST(Mask, PgmGivesSamplesAsTheyAre) {
  for (const int maximum : {1, 20, 255}) {
    const ByteVector pgm = EncodePnm(kSize, 1, maximum);
    const ByteVector mask = DecodedMask(pgm);
    const size_t count = size_t(kSize.height) * size_t(kSize.width);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(mask[3 * i], pgm[pgm.size() - count + i]);
  }
}

TEST(Mask, APartIsAPartOfTheWhole) {
  Scratch scratch;
  for (const ByteVector& bytes :
       {EncodePng({kSize, SPNG_COLOR_TYPE_INDEXED, 2, false}),
        EncodePng({kSize, SPNG_COLOR_TYPE_INDEXED, 4, true}), EncodePnm(kSize, 1, 255),
        EncodeBmp({.size = kSize, .bits = 4})}) {
    const ByteVector whole = DecodedMask(bytes);
    const auto decoder = (*RecogniseImage(bytes))->make();
    for (const Box& box : {Box{0, 0, 1, 1}, {5, 3, 7, 20}, {22, 36, 1, 1}, {1, 1, 22, 36}}) {
      ASSERT_OK(decoder->ReadHeader(bytes, kAsMask));
      CollectingSink sink(box.width);
      ASSERT_OK(decoder->Decode(bytes, box, &scratch, &sink));
      EXPECT_EQ(sink.rgb(), CutOut(whole, kSize, box));
    }
  }
}

// Some of its passes have no pixels.
TEST(Mask, ASmallInterlacedPng) {
  for (const ImageSize size : {ImageSize{1, 1}, {1, 6}, {6, 1}, {2, 3}, {5, 4}}) {
    EXPECT_EQ(DecodedMask(EncodePng({size, SPNG_COLOR_TYPE_GRAYSCALE, 4, true})),
              DecodeAnyWhole(EncodePng({size, SPNG_COLOR_TYPE_GRAYSCALE, 4, true})).value());
  }
}

#ifdef BATCHD_HAS_TIFF
TEST(Mask, TiffGivesSamplesOfItsPalette) {
  const ByteVector samples = TestSamples(kSize, 1);  // a row is a strip's line
  for (const int compression : {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE}) {
    const ByteVector mask = DecodedMask(EncodeTiff({.size = kSize,
                                                    .channels = 1,
                                                    .photometric = PHOTOMETRIC_PALETTE,
                                                    .compression = compression}));
    ASSERT_EQ(mask.size(), 3 * samples.size());
    for (size_t i = 0; i < samples.size(); ++i) ASSERT_EQ(mask[3 * i], samples[i]);
  }
}

TEST(Mask, TiffGivesGreyLevels) {
  for (const int photometric : {PHOTOMETRIC_MINISBLACK, PHOTOMETRIC_MINISWHITE}) {
    for (const int tile : {0, 16}) {
      for (const int bits : {1, 2, 4, 8}) {
        SCOPED_TRACE(bits);
        ExpectNumbersOf(EncodeTiff({.size = kSize,
                                    .bits = bits,
                                    .channels = 1,
                                    .photometric = photometric,
                                    .tile = tile}),
                        [bits](uint8_t level) -> std::array<uint8_t, 3> {
                          const auto spread = uint8_t(bits == 1 ? level * 255 : level);
                          return {spread, spread, spread};
                        });
      }
    }
  }
}

TEST(Mask, ATiffOfColoursIsUnsupported) {
  EXPECT_THAT(DecodeAnyWhole(EncodeTiff({}), kAsMask), IsBadSample(SampleReason::kUnsupported));
}
#endif  // BATCHD_HAS_TIFF

// A decoder is used for pictures and masks by turns.
TEST(Mask, TheNextPictureIsNone) {
  const ByteVector png = EncodePng({kSize, SPNG_COLOR_TYPE_INDEXED, 8, false});
  const auto decoder = (*RecogniseImage(png))->make();
  EXPECT_EQ(DecodeWhole(decoder.get(), png, kAsMask).value(), DecodedMask(png));
  EXPECT_EQ(DecodeWhole(decoder.get(), png).value(), DecodeAnyWhole(png).value());
}

TEST(Mask, WhatHasColoursOrMoreThan8BitsIsUnsupported) {
  for (const ByteVector& bytes : {EncodePng({kSize, SPNG_COLOR_TYPE_TRUECOLOR, 8, false}),
                                  EncodePng({kSize, SPNG_COLOR_TYPE_GRAYSCALE, 16, false}),
                                  EncodePng({kSize, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, 8, false}),
                                  EncodeBmp({.size = kSize, .bits = 24}), EncodePnm(kSize, 3, 255),
                                  EncodePnm(kSize, 1, 65535)}) {
    EXPECT_THAT(DecodeAnyWhole(bytes, kAsMask), IsBadSample(SampleReason::kUnsupported));
  }
}

}  // namespace
}  // namespace batchd
