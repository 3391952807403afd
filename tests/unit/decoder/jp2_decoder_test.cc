// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/format_pictures.h"

#ifdef BATCHD_HAS_JP2
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

absl::StatusOr<ByteVector> Decoded(const Jp2Options& options) {
  return DecodeAnyWhole(EncodeJp2(options));
}

size_t FindMarker(const ByteVector& bytes, uint8_t marker) {
  for (size_t at = 0; at + 1 < bytes.size(); ++at) {
    if (bytes[at] == 0xFF && bytes[at + 1] == marker) return at;
  }
  ADD_FAILURE() << "no marker " << marker;
  return 0;
}

constexpr uint8_t kSiz = 0x51;
constexpr uint8_t kCod = 0x52;

TEST(Jp2DecoderTest, LosslessIsExactInAndOutOfABox) {
  const ByteVector expected = TestSamples(Jp2Options().size, 3);

  EXPECT_EQ(*Decoded({}), expected);
  EXPECT_EQ(*Decoded({.boxed = false}), expected);
  EXPECT_EQ(*Decoded({.tile = 16}), expected);
}

TEST(Jp2DecoderTest, AlphaIsDroppedAndGreyIsThreeTimesTheSame) {
  const ByteVector rgba = TestSamples(Jp2Options().size, 4);
  const ByteVector rgb = *Decoded({.channels = 4});
  const ByteVector grey = *Decoded({.channels = 1});
  const ByteVector grey_samples = TestSamples(Jp2Options().size, 1);

  for (size_t i = 0; i < rgb.size(); ++i) ASSERT_EQ(rgb[i], rgba[i / 3 * 4 + i % 3]);
  for (size_t i = 0; i < grey.size(); ++i) ASSERT_EQ(grey[i], grey_samples[i / 3]);
}

TEST(Jp2DecoderTest, MoreBitsBecomeTheHighByteAndFewerAreScaled) {
  const ByteVector deep = *Decoded({.channels = 1, .bits = 16});
  const ByteVector coarse = *Decoded({.channels = 1, .bits = 4});
  const ByteVector samples = TestSamples(Jp2Options().size, 1);

  for (size_t i = 0; i < samples.size(); ++i) {
    ASSERT_EQ(deep[3 * i], samples[i]);
    ASSERT_EQ(coarse[3 * i], (samples[i] >> 4) * 17);
  }
}

// Writes a number of 4 bytes.
void SetBigEndian(size_t at, uint32_t value, ByteVector* bytes) {
  for (int i = 0; i < 4; ++i) (*bytes)[at + i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

TEST(Jp2DecoderTest, HeadersThatAskForTooMuchAreRefusedBeforeTheyAreObeyed) {
  const auto is_refused = [](const char* what) {
    return testing::AllOf(IsBadSample(SampleReason::kTooLarge),
                          FailsWith(absl::StatusCode::kDataLoss, what));
  };
  const ByteVector good = EncodeJp2({.size = {60, 60}, .channels = 1, .boxed = false});
  const size_t siz = FindMarker(good, kSiz);
  const size_t cod = FindMarker(good, kCod);
  const auto with_side = [&](uint32_t side) {
    ByteVector bytes = good;
    for (size_t at : {siz + 6, siz + 10, siz + 22, siz + 26}) SetBigEndian(at, side, &bytes);
    return bytes;
  };

  EXPECT_THAT(DecodeAnyWhole(with_side(60000)), is_refused("pixels"));
  EXPECT_THAT(DecodeAnyWhole(with_side(0xFFFFFFFF)), is_refused("pixels"));
  ByteVector many_tiles = with_side(6000);
  for (size_t at : {siz + 22, siz + 26}) SetBigEndian(at, 4, &many_tiles);
  EXPECT_THAT(DecodeAnyWhole(many_tiles), is_refused("tiles"));
  ByteVector small_blocks = with_side(6000);
  small_blocks[cod + 10] = small_blocks[cod + 11] = 0;  // 4 by 4
  EXPECT_THAT(DecodeAnyWhole(small_blocks), is_refused("code blocks"));
  ByteVector many_layers = with_side(6000);
  SetBigEndian(cod + 4, 0x0000FFFF, &many_layers);
  for (size_t at : {siz + 22, siz + 26}) SetBigEndian(at, 600, &many_layers);
  EXPECT_THAT(DecodeAnyWhole(many_layers), is_refused("packets"));
}

TEST(Jp2DecoderTest, SmallPrecinctsAreCounted) {
  // A header alone: a size, and a coding of 1 level with precincts of 2 by 2.
  ByteVector bytes = {0xFF, 0x4F, 0xFF, kSiz, 0, 41, 0, 0};
  for (uint32_t number : {6000, 6000, 0, 0, 6000, 6000, 0, 0}) {
    for (int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(number >> shift));
  }
  Append({0, 1, 7, 1, 1}, &bytes);
  Append({0xFF, kCod, 0, 14, 1, 0, 0, 1, 0, 1, 4, 4, 0, 1, 0x11, 0x11}, &bytes);
  Append({0xFF, 0x90, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 0xFF, 0x93, 0xFF, 0xD9}, &bytes);

  EXPECT_THAT(DecodeAnyWhole(bytes),
              testing::AllOf(IsBadSample(SampleReason::kTooLarge),
                             FailsWith(absl::StatusCode::kDataLoss, "precincts")));
}

TEST(Jp2DecoderTest, OtherKindsOfChannelsAreUnsupported) {
  ByteVector subsampled = EncodeJp2({.boxed = false});
  const size_t siz = FindMarker(subsampled, kSiz);
  subsampled[siz + 4 + 37] = 2;
  EXPECT_THAT(DecodeAnyWhole(subsampled), IsBadSample(SampleReason::kUnsupported));
}

}  // namespace
}  // namespace batchd
#endif
