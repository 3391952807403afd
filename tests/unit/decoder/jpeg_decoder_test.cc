// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

constexpr ImageSize kSize = {33, 47};  // Of EncodeJpeg's pictures.

// The place of the first segment with this marker, its FF.
size_t Find(const ByteVector& bytes, uint8_t marker) {
  for (size_t at = 2; at + 4 <= bytes.size() && bytes[at] == 0xFF;
       at += 2 + (bytes[at + 2] << 8 | bytes[at + 3])) {
    if (bytes[at + 1] == marker) return at;
  }
  ADD_FAILURE() << "no segment " << int{marker};
  return 0;
}

size_t SegmentSize(const ByteVector& bytes, size_t at) {
  return 2 + (bytes[at + 2] << 8 | bytes[at + 3]);
}

// The place right after the first scan header.
size_t ScanData(const ByteVector& bytes) {
  const size_t at = Find(bytes, 0xDA);
  return at + SegmentSize(bytes, at);
}

ByteVector WithoutSegments(ByteVector bytes, uint8_t marker) {
  while (true) {
    size_t at = 2;
    while (bytes[at + 1] != marker && bytes[at + 1] != 0xDA) at += SegmentSize(bytes, at);
    if (bytes[at + 1] != marker) return bytes;
    bytes.erase(bytes.begin() + at, bytes.begin() + at + SegmentSize(bytes, at));
  }
}

ByteVector Joined(ByteVector first, const ByteVector& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void InsertAt(ByteVector* bytes, size_t at, const ByteVector& inserted) {
  bytes->insert(bytes->begin() + at, inserted.begin(), inserted.end());
}

absl::Status DecodeBox(const ByteVector& bytes, const Box& box) {
  auto kind = RecogniseImage(bytes);
  if (!kind.ok()) return kind.status();
  auto decoder = (*kind)->make();
  BATCHD_RETURN_IF_ERROR(decoder->ReadHeader(bytes, {}).status());
  Scratch scratch;
  CollectingSink sink(box.width);
  return decoder->Decode(bytes, box, &scratch, &sink);
}

constexpr Box kTopRow = {0, 0, 1, kSize.width};

TEST(JpegDecoderTest, WithoutAnEndMarkerItIsTruncatedWhateverTheRegion) {
  for (bool progressive : {false, true}) {
    ByteVector bytes = EncodeJpeg({.progressive = progressive});
    ASSERT_OK(DecodeBox(bytes, kTopRow));
    bytes.resize(bytes.size() - 2);

    EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kTruncated));
    EXPECT_THAT(DecodeBox(bytes, WholeOf(kSize)), IsBadSample(SampleReason::kTruncated));
  }
}

TEST(JpegDecoderTest, TheEndMarkerOfAThumbnailDoesNotCount) {
  ByteVector bytes = EncodeJpeg({.extra_segment = EncodeJpeg({.size = {8, 8}})});
  ASSERT_OK(DecodeBox(bytes, kTopRow));
  bytes.resize(bytes.size() - 2);

  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kTruncated));
}

TEST(JpegDecoderTest, OneInASegmentBetweenScansDoesNotCountEither) {
  ByteVector bytes = EncodeJpeg({.progressive = true});
  size_t second = ScanData(bytes);
  while (bytes[second] != 0xFF || bytes[second + 1] < 0xC0) ++second;
  InsertAt(&bytes, second, {0xFF, 0xE5, 0, 6, 1, 0xFF, 0xD9, 2});
  EXPECT_OK(DecodeBox(bytes, kTopRow));

  bytes.resize(bytes.size() - 2);

  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kTruncated));
}

TEST(JpegDecoderTest, WhatFollowsTheEndMarkerIsIgnored) {
  const ByteVector bytes = EncodeJpeg({});
  const ByteVector other = EncodeJpeg({.size = {16, 16}, .quality = 20});
  const auto expected = DecodeAnyWhole(bytes);
  ASSERT_OK(expected);

  const auto with_zeros = DecodeAnyWhole(Joined(bytes, ByteVector(100, 0)));
  const auto with_picture = DecodeAnyWhole(Joined(bytes, other));

  ASSERT_OK(with_zeros);
  EXPECT_EQ(*with_zeros, *expected);
  ASSERT_OK(with_picture);
  EXPECT_EQ(*with_picture, *expected);
}

TEST(JpegDecoderTest, StrayBytesBeforeTheEndMarkerAreHarmless) {
  for (bool progressive : {false, true}) {
    ByteVector bytes = EncodeJpeg({.progressive = progressive});
    const auto expected = DecodeAnyWhole(bytes);
    InsertAt(&bytes, bytes.size() - 2, {1, 2, 3, 4, 5});

    const auto rgb = DecodeAnyWhole(bytes);

    ASSERT_OK(rgb);
    EXPECT_EQ(*rgb, *expected);
  }
}

TEST(JpegDecoderTest, StrayBytesBeforeARestartMarkerAreCorrupt) {
  ByteVector bytes = EncodeJpeg({.restart_rows = 1});
  size_t restart = ScanData(bytes);
  while (bytes[restart] != 0xFF || bytes[restart + 1] != 0xD0) ++restart;
  InsertAt(&bytes, restart, {1, 2, 3, 4, 5, 6, 7, 8});

  EXPECT_THAT(DecodeBox(bytes, WholeOf(kSize)), IsBadSample(SampleReason::kCorrupt));
}

TEST(JpegDecoderTest, AMissingRestartMarkerIsCorruptButNotAboveIt) {
  ByteVector bytes = EncodeJpeg({.size = {320, 40}, .restart_rows = 1});
  size_t restart = ScanData(bytes);
  while (bytes[restart] != 0xFF || bytes[restart + 1] != 0xD7) ++restart;
  bytes.erase(bytes.begin() + restart, bytes.begin() + restart + 2);

  EXPECT_THAT(DecodeBox(bytes, {0, 0, 320, 40}), IsBadSample(SampleReason::kCorrupt));
  EXPECT_OK(DecodeBox(bytes, {0, 0, 64, 40}));
}

TEST(JpegDecoderTest, AScanThatEndsTooEarlyIsCorruptThoughTheEndMarkerIsThere) {
  for (bool progressive : {false, true}) {
    ByteVector bytes = EncodeJpeg({.size = {200, 200}, .progressive = progressive});
    bytes.erase(bytes.end() - 200, bytes.end() - 2);

    EXPECT_THAT(DecodeBox(bytes, {0, 0, 200, 200}), IsBadSample(SampleReason::kCorrupt));
  }
}

TEST(JpegDecoderTest, AChannelWithoutAScanIsCorrupt) {
  ByteVector bytes = EncodeJpeg({.separate_scans = true});
  // The last scan goes: from its tables' or its own header to the end marker.
  size_t last = 0;
  for (size_t at = ScanData(bytes); at + 1 < bytes.size(); ++at) {
    if (bytes[at] == 0xFF && bytes[at + 1] == 0xDA) last = at;
  }
  bytes.erase(bytes.begin() + last, bytes.end() - 2);

  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kCorrupt));
}

// Motion JPEG leaves the standard tables out. The decoder must not use those of the picture before.
TEST(JpegDecoderTest, APictureWithoutTablesUsesTheStandardOnesWhateverCameBefore) {
  const ByteVector complete = EncodeJpeg({});
  const ByteVector bare = WithoutSegments(complete, 0xC4);
  const ByteVector without_quantisation = WithoutSegments(complete, 0xDB);
  const ByteVector own_tables = EncodeJpeg({.optimised = true, .quality = 30});
  auto decoder = (*RecogniseImage(complete))->make();
  const auto expected = DecodeWhole(decoder.get(), complete);
  ASSERT_OK(expected);
  ASSERT_OK(DecodeWhole(decoder.get(), own_tables));

  const auto rgb = DecodeWhole(decoder.get(), bare);
  const auto none = DecodeWhole(decoder.get(), without_quantisation);

  ASSERT_OK(rgb);
  EXPECT_EQ(*rgb, *expected);
  EXPECT_THAT(none, IsBadSample(SampleReason::kCorrupt));
}

TEST(JpegDecoderTest, WhatThisBuildCannotDecodeIsUnsupported) {
  const ByteVector baseline = EncodeJpeg({});
  const size_t frame = Find(baseline, 0xC0);
  for (uint8_t marker : {0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xF7, 0xDE}) {
    ByteVector bytes = baseline;
    bytes[frame + 1] = marker;  // Lossless, hierarchical, JPEG-LS.
    EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kUnsupported)) << int{marker};
  }
  ByteVector bytes = baseline;
  bytes[frame + 4] = 12;
  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kUnsupported)) << "12 bits";
  bytes = baseline;
  bytes[frame + 5] = bytes[frame + 6] = 0;
  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kUnsupported)) << "height 0";
}

TEST(JpegDecoderTest, AnEmptyFrameIsCorrupt) {
  ByteVector bytes = EncodeJpeg({});
  const size_t frame = Find(bytes, 0xC0);
  bytes[frame + 7] = bytes[frame + 8] = 0;

  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kCorrupt));
}

TEST(JpegDecoderTest, AHugeHeaderIsTooLarge) {
  ByteVector bytes = EncodeJpeg({});
  const size_t frame = Find(bytes, 0xC0);
  for (int i : {5, 7}) {
    bytes[frame + i] = 65500 >> 8;
    bytes[frame + i + 1] = 65500 & 0xFF;
  }

  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kTooLarge));
}

TEST(JpegDecoderTest, ScansWithoutNumberAreTooLarge) {
  ByteVector bytes = EncodeJpeg({.progressive = true});
  size_t last = 0;
  for (size_t at = ScanData(bytes); at + 1 < bytes.size(); ++at) {
    if (bytes[at] == 0xFF && bytes[at + 1] == 0xDA) last = at;
  }
  const ByteVector scan(bytes.begin() + last, bytes.end() - 2);
  ByteVector scans;
  for (int i = 0; i < 1000; ++i) scans.insert(scans.end(), scan.begin(), scan.end());
  InsertAt(&bytes, bytes.size() - 2, scans);

  const absl::Status status = DecodeBox(bytes, kTopRow);

  EXPECT_THAT(status, IsBadSample(SampleReason::kTooLarge));
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, "1010 scans"));
}

TEST(JpegDecoderTest, ManyScansOfManyPixelsAreTooLarge) {
  ByteVector bytes = EncodeJpeg({.progressive = true});
  ASSERT_OK(DecodeBox(bytes, kTopRow));
  const size_t frame = Find(bytes, 0xC2);
  bytes[frame + 5] = bytes[frame + 7] = 7000 >> 8;
  bytes[frame + 6] = bytes[frame + 8] = 7000 & 0xFF;
  const size_t data = ScanData(bytes);
  ByteVector empty_scans;
  for (int i = 0; i < 10; ++i) {
    InsertAt(&empty_scans, 0, ByteVector(bytes.begin() + Find(bytes, 0xDA), bytes.begin() + data));
  }
  InsertAt(&bytes, data, empty_scans);

  const absl::Status status = DecodeBox(bytes, kTopRow);

  EXPECT_THAT(status, IsBadSample(SampleReason::kTooLarge));
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, "20 scans of 7000x7000"));
}

TEST(JpegDecoderTest, ArithmeticCodingHasLowerLimits) {
  ByteVector bytes = EncodeJpeg({.arithmetic = true});
  ASSERT_OK(DecodeBox(bytes, kTopRow));
  const size_t frame = Find(bytes, 0xC9);
  bytes[frame + 5] = bytes[frame + 7] = 7000 >> 8;
  bytes[frame + 6] = bytes[frame + 8] = 7000 & 0xFF;
  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kTooLarge));

  bytes = EncodeJpeg({.arithmetic = true, .extra_segment = ByteVector(60000, 0)});
  const size_t segment = Find(bytes, 0xE1);
  const ByteVector copy(bytes.begin() + segment, bytes.begin() + segment + 60004);
  for (int i = 0; i < 150; ++i) InsertAt(&bytes, segment, copy);
  EXPECT_THAT(DecodeBox(bytes, kTopRow), IsBadSample(SampleReason::kTooLarge));
}

// By the formula, from the samples that libjpeg gives.
TEST(JpegDecoderTest, CmykFollowsPillowWithAndWithoutAnAdobeMarker) {
  // Lossy by no more than rounding, so colours come out near the formula's.
  JpegOptions options = {.channels = 4, .h_factor = 1, .v_factor = 1, .quality = 100};
  const ByteVector samples = TestSamples(options.size, 4);
  for (bool adobe_marker : {true, false}) {
    options.adobe_marker = adobe_marker;

    const auto rgb = DecodeAnyWhole(EncodeJpeg(options));

    ASSERT_OK(rgb);
    for (size_t i = 0; i < samples.size() / 4; ++i) {
      for (int c = 0; c < 3; ++c) {
        const int expected = samples[4 * i + c] * samples[4 * i + 3] / 255;
        ASSERT_NEAR((*rgb)[3 * i + c], expected, 6) << i << " " << c;
      }
    }
  }
}

TEST(JpegDecoderTest, GreyHasThreeEqualChannels) {
  const auto rgb = DecodeAnyWhole(EncodeJpeg({.channels = 1}));

  ASSERT_OK(rgb);
  for (size_t i = 0; i < rgb->size(); i += 3) {
    ASSERT_EQ((*rgb)[i], (*rgb)[i + 1]);
    ASSERT_EQ((*rgb)[i], (*rgb)[i + 2]);
  }
}

TEST(JpegDecoderTest, TheErrorSaysWhereItIs) {
  ByteVector bytes = EncodeJpeg({.size = {200, 200}});
  const size_t data = ScanData(bytes);
  bytes.erase(bytes.begin() + data + 500, bytes.end() - 2);

  EXPECT_THAT(DecodeBox(bytes, {0, 0, 200, 200}),
              FailsWith(absl::StatusCode::kDataLoss, fmt::format("of {})", bytes.size())));
}

TEST(JpegDecoderTest, TwoBytesAreATruncatedJpeg) {
  EXPECT_THAT(DecodeAnyWhole(ByteVector{0xFF, 0xD8}), IsBadSample(SampleReason::kTruncated));
}

}  // namespace
}  // namespace batchd
