// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using namespace std::string_literals;

absl::StatusOr<ByteVector> Decoded(const std::string& text) {
  return DecodeAnyWhole(ByteVector(text.begin(), text.end()));
}

TEST(PnmDecoderTest, GreyAndColourOfEightAndSixteenBits) {
  EXPECT_EQ(*Decoded("P5 2 1 255\nA!"), (ByteVector{65, 65, 65, 33, 33, 33}));
  EXPECT_EQ(*Decoded("P6 1 2 255\nABCDEF"), (ByteVector{65, 66, 67, 68, 69, 70}));
  EXPECT_EQ(*Decoded("P5 1 1 65535\nA\xFF"), (ByteVector{65, 65, 65}));
  EXPECT_EQ(*Decoded("P6 1 1 65535\nA1B2C3"), (ByteVector{65, 66, 67}));
}

TEST(PnmDecoderTest, OtherMaximaAreScaled) {
  EXPECT_EQ(*Decoded("P5 4 1 15\n\x00\x01\x0F\x77"s),
            (ByteVector{0, 0, 0, 17, 17, 17, 255, 255, 255, 255, 255, 255}));
  EXPECT_EQ(*Decoded("P5 2 1 1000\n\x03\xE8\x01\xF4"s), (ByteVector{255, 255, 255, 128, 128, 128}));
}

TEST(PnmDecoderTest, CommentsMayBeAnywhereInTheHeader) {
  EXPECT_EQ(*Decoded("P5#one 9 9\n# two\r\n 1 # three\n1\t#\n255 A"), (ByteVector{65, 65, 65}));
}

TEST(PnmDecoderTest, PixelsMayLookLikeSpaceOrAComment) {
  EXPECT_EQ(*Decoded("P5 2 1 255\n #"), (ByteVector{32, 32, 32, 35, 35, 35}));
}

TEST(PnmDecoderTest, BadHeadersAreNamedErrors) {
  using enum SampleReason;
  EXPECT_THAT(Decoded("P5 x 1 255\nA"), IsBadSample(kCorrupt));
  EXPECT_THAT(Decoded("P5 -1 1 255\nA"), IsBadSample(kCorrupt));
  EXPECT_THAT(Decoded("P5 0 1 255\nA"), IsBadSample(kCorrupt));
  EXPECT_THAT(Decoded("P5 1 1 0\nA"), IsBadSample(kCorrupt));
  EXPECT_THAT(Decoded("P5 1 1 65536\nA"), IsBadSample(kCorrupt));
  EXPECT_THAT(Decoded("P5 1 1 255A"), IsBadSample(kCorrupt));
  EXPECT_THAT(Decoded("P5 1 1"), IsBadSample(kTruncated));
  EXPECT_THAT(Decoded("P5 1 1 255"), IsBadSample(kTruncated));
  EXPECT_THAT(Decoded("P5 # never ends"), IsBadSample(kTruncated));
  EXPECT_THAT(Decoded("P5 65500 65500 255\nA"), IsBadSample(kTooLarge));
  EXPECT_THAT(Decoded("P5 99999999999999999999999999 1 255\nA"), IsBadSample(kTooLarge));
  EXPECT_THAT(Decoded("P6 18446744073709551617 18446744073709551617 255\nA"),
              IsBadSample(kTooLarge));
  EXPECT_THAT(Decoded("P3 1 1 255\n1 2 3"), IsBadSample(kUnsupported));
}

TEST(PnmDecoderTest, OnlyTheRowsThatAreNeededMustBeThere) {
  const std::string text = "P5 1 3 255\nAB";
  const ByteVector bytes(text.begin(), text.end());
  auto decoder = (*RecogniseImage(bytes))->make();
  Scratch scratch;
  CollectingSink sink(1);

  EXPECT_THAT(Decoded(text), IsBadSample(SampleReason::kTruncated));
  EXPECT_OK(decoder->Decode(bytes, {1, 0, 1, 1}, &scratch, &sink));
  EXPECT_EQ(sink.rgb(), (ByteVector{66, 66, 66}));
}

}  // namespace
}  // namespace batchd
