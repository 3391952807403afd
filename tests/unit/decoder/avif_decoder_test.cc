// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/format_pictures.h"

#ifdef BATCHD_HAS_AVIF
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

ByteVector Decoded(const ByteVector& avif) {
  auto rgb = DecodeAnyWhole(avif);
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

size_t Find(const ByteVector& bytes, const std::string& text) {
  const auto at = std::search(bytes.begin(), bytes.end(), text.begin(), text.end());
  EXPECT_NE(at, bytes.end()) << text;
  return at - bytes.begin();
}

TEST(AvifDecoderTest, ColoursAreNearAndAlphaDoesNotDarkenThem) {
  const ImageSize size = AvifOptions().size;
  const ByteVector rgb = Decoded(EncodeAvif({}));
  const ByteVector under_alpha = Decoded(EncodeAvif({.has_alpha = true}));
  const ByteVector opaque = TestSamples(size, 3);
  const ByteVector rgba = TestSamples(size, 4);

  int64_t difference = 0;
  int64_t difference_under_alpha = 0;
  for (size_t i = 0; i < rgb.size(); ++i) {
    difference += std::abs(rgb[i] - opaque[i]);
    difference_under_alpha += std::abs(under_alpha[i] - rgba[i / 3 * 4 + i % 3]);
  }
  EXPECT_LT(difference, 12 * static_cast<int64_t>(rgb.size()));
  EXPECT_LT(difference_under_alpha, 12 * static_cast<int64_t>(rgb.size()));
}

TEST(AvifDecoderTest, TheContainersRotationIsTheOrientation) {
  constexpr int kOrientations[] = {1, 8, 3, 6};
  for (int rotation = 0; rotation < 4; ++rotation) {
    const ByteVector avif = EncodeAvif({.rotation = rotation});
    auto decoder = (*RecogniseImage(avif))->make();
    auto size = decoder->ReadHeader(avif, {});

    ASSERT_OK(size);
    EXPECT_EQ(*size, AvifOptions().size);
    EXPECT_EQ(decoder->Orientation(avif), kOrientations[rotation]);
  }
}

TEST(AvifDecoderTest, ASizeAboveTheLimitIsTooLarge) {
  for (uint8_t high : {0x3E, 0x7F}) {  // above that of this project, and above libavif's own
    ByteVector avif = EncodeAvif({});
    const size_t at = Find(avif, "ispe") + 8;
    for (size_t i : {at + 2, at + 6}) avif[i] = high;

    EXPECT_THAT(DecodeAnyWhole(avif), IsBadSample(SampleReason::kTooLarge));
  }
}

TEST(AvifDecoderTest, TheColoursMayBeToldByTheStreamAlone) {
  ByteVector avif = EncodeAvif({});
  const ByteVector expected = Decoded(avif);
  avif[Find(avif, "colr")] = 'x';

  EXPECT_EQ(Decoded(avif), expected);
}

// A stream of many frames that are not shown, as the picture of a file that says so.
TEST(AvifDecoderTest, FramesThatAreNotShownCountAgainstALimit) {
  ByteVector avif = EncodeAvif({.size = {300, 300}, .format = AVIF_PIXEL_FORMAT_YUV420});
  // Empty frame units in the place of the stream: what they say does not matter, they are counted
  // before.
  const size_t stream = Find(avif, "mdat") + 4;
  ASSERT_LT(stream + 3000, avif.size());
  constexpr uint8_t kFrameUnit = 6 << 3 | 2;
  std::fill(avif.begin() + stream, avif.end(), uint8_t{0});
  for (size_t i = stream; i + 1 < avif.size(); i += 2) avif[i] = kFrameUnit;

  EXPECT_THAT(DecodeAnyWhole(avif),
              testing::AllOf(IsBadSample(SampleReason::kTooLarge),
                             FailsWith(absl::StatusCode::kDataLoss, "frames")));
}

}  // namespace
}  // namespace batchd
#endif
