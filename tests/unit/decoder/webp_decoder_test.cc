// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/format_pictures.h"

#ifdef BATCHD_HAS_WEBP
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

ByteVector Decoded(const ByteVector& webp) {
  auto rgb = DecodeAnyWhole(webp);
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

TEST(WebpDecoderTest, LosslessColoursAreExactUnderAnyAlpha) {
  const ImageSize size = WebpOptions().size;
  const ByteVector rgba = TestSamples(size, 4);
  ByteVector expected;
  for (size_t i = 0; i < rgba.size(); i += 4) {
    expected.insert(expected.end(), rgba.begin() + i, rgba.begin() + i + 3);
  }

  EXPECT_EQ(Decoded(EncodeWebp({.lossless = true})), TestSamples(size, 3));
  EXPECT_EQ(Decoded(EncodeWebp({.lossless = true, .has_alpha = true})), expected);
}

TEST(WebpDecoderTest, AnAnimationIsItsFirstFrameOnBlack) {
  const ImageSize size = WebpOptions().size;
  const ImageSize canvas = {size.height + 8, size.width + 6};
  const ByteVector still = EncodeWebp({.lossless = true});

  const ByteVector rgb = Decoded(AnimateWebp(still, size, 6, 4, canvas));

  EXPECT_EQ(CutOut(rgb, canvas, {6, 4, size.height, size.width}), Decoded(still));
  EXPECT_EQ(CutOut(rgb, canvas, {0, 0, 6, canvas.width}), ByteVector(3 * 6 * canvas.width, 0));
  EXPECT_EQ(CutOut(rgb, canvas, {0, 0, canvas.height, 4}), ByteVector(3 * 4 * canvas.height, 0));
}

TEST(WebpDecoderTest, AFrameOutsideOfTheCanvasIsCorrupt) {
  const ImageSize size = WebpOptions().size;
  const ByteVector webp = AnimateWebp(EncodeWebp({}), size, 2, 0, size);

  EXPECT_THAT(DecodeAnyWhole(webp), IsBadSample(SampleReason::kCorrupt));
}

TEST(WebpDecoderTest, ACanvasAboveTheLimitIsTooLarge) {
  const ByteVector webp = AnimateWebp(EncodeWebp({}), WebpOptions().size, 0, 0, {16000, 16000});

  EXPECT_THAT(DecodeAnyWhole(webp), IsBadSample(SampleReason::kTooLarge));
}

}  // namespace
}  // namespace batchd
#endif
