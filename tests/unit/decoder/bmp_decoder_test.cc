// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/conformance/format_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

ByteVector Decoded(const BmpOptions& options) {
  auto rgb = DecodeAnyWhole(EncodeBmp(options));
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

TEST(BmpDecoderTest, RowsBeginAtTheBottomUnlessTheHeightIsNegative) {
  const ByteVector pixels = {3, 2, 1, 0, 6, 5, 4, 0};

  EXPECT_EQ(Decoded({.size = {2, 1}, .pixels = pixels}), (ByteVector{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(Decoded({.size = {2, 1}, .top_down = true, .pixels = pixels}),
            (ByteVector{1, 2, 3, 4, 5, 6}));
}

TEST(BmpDecoderTest, IndicesAreThePalettesColours) {
  // Colour i is 112233 + i * 050301.
  EXPECT_EQ(Decoded({.size = {1, 2}, .bits = 1, .pixels = {0x40, 0, 0, 0}}),
            (ByteVector{0x11, 0x22, 0x33, 0x16, 0x25, 0x34}));
  EXPECT_EQ(Decoded({.size = {1, 2}, .bits = 4, .pixels = {0x20, 0, 0, 0}}),
            (ByteVector{0x1B, 0x28, 0x35, 0x11, 0x22, 0x33}));
  EXPECT_EQ(Decoded({.size = {1, 1}, .bits = 8, .pixels = {2, 0, 0, 0}}),
            (ByteVector{0x1B, 0x28, 0x35}));
}

TEST(BmpDecoderTest, SixteenBitsAreScaledAsPillowDoes) {
  const ByteVector pixels = {0x1F, 0x42, 0, 0};  // 0x421F
  EXPECT_EQ(Decoded({.size = {1, 1}, .bits = 16, .pixels = pixels}),
            (ByteVector{16 * 255 / 31, 16 * 255 / 31, 255}));
  EXPECT_EQ(Decoded({.size = {1, 1},
                     .bits = 16,
                     .compression = 3,
                     .masks = {0xF800, 0x7E0, 0x1F},
                     .pixels = pixels}),
            (ByteVector{8 * 255 / 31, 16 * 255 / 63, 255}));
}

TEST(BmpDecoderTest, AlphaIsDroppedAndMasksMayBeInAnyOrder) {
  const ByteVector pixels = {1, 2, 3, 0};
  EXPECT_EQ(Decoded({.size = {1, 1}, .bits = 32, .pixels = pixels}), (ByteVector{3, 2, 1}));
  EXPECT_EQ(Decoded({.size = {1, 1},
                     .bits = 32,
                     .compression = 3,
                     .masks = {0xFF, 0xFF00, 0xFF0000},
                     .pixels = pixels}),
            (ByteVector{1, 2, 3}));
}

TEST(BmpDecoderTest, RunsLiteralsAndJumps) {
  // A run, the end of the line; three literals with their padding; a jump to the next line's
  // column 1, one pixel, the end.
  const ByteVector rle = {2, 1, 0, 0, 0, 3, 2, 3, 4, 0, 0, 0, 0, 2, 1, 0, 1, 5, 0, 1};
  const ByteVector rgb = Decoded({.size = {3, 4}, .bits = 8, .compression = 1, .pixels = rle});

  ByteVector indices;
  for (size_t i = 0; i < rgb.size(); i += 3) indices.push_back((rgb[i] - 0x11) / 5);
  EXPECT_EQ(indices, (ByteVector{0, 5, 0, 0, 2, 3, 4, 0, 1, 1, 0, 0}));
}

TEST(BmpDecoderTest, BadHeadersAreNamedErrors) {
  using enum SampleReason;
  const auto decoded = [](const BmpOptions& options) { return DecodeAnyWhole(EncodeBmp(options)); };
  EXPECT_THAT(decoded({.bits = 2}), IsBadSample(kUnsupported));
  EXPECT_THAT(decoded({.bits = 24, .compression = 1}), IsBadSample(kUnsupported));
  EXPECT_THAT(decoded({.bits = 24, .compression = 5}), IsBadSample(kUnsupported));
  EXPECT_THAT(decoded({.bits = 32, .compression = 3, .masks = {0x3FF, 0xFFC00, 0x3FF00000}}),
              IsBadSample(kUnsupported));
  EXPECT_THAT(decoded({.size = {0, 5}, .pixels = {0}}), IsBadSample(kCorrupt));
  EXPECT_THAT(decoded({.size = {65500, 65500}, .pixels = {0}}), IsBadSample(kTooLarge));
  EXPECT_THAT(decoded({.size = {30000, 1500}, .bits = 8, .compression = 1, .pixels = {0, 0}}),
              IsBadSample(kTruncated));
}

}  // namespace
}  // namespace batchd
