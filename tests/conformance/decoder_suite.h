// SPDX-License-Identifier: Apache-2.0
//
// What every kind of decoder promises. Instantiated in decoder_test.cc over all kinds of the build.

#pragma once

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {

// How often this program has called operator new; see decoder_test.cc.
int64_t NewCallCount();

struct DecoderCase {
  const DecoderKind* kind = nullptr;
  std::vector<TestPicture> (*pictures)() = nullptr;  // Valid ones.
};
inline void PrintTo(const DecoderCase& c, std::ostream* out) { *out << c.kind->name; }

class DecoderSuite : public testing::TestWithParam<DecoderCase> {
 protected:
  void SetUp() override {
    ASSERT_NE(GetParam().pictures, nullptr)
        << "no pictures for " << GetParam().kind->name << ": add them in decoder_test.cc";
    pictures_ = GetParam().pictures();
    decoder_ = GetParam().kind->make();
  }

  // A number below `bound`; the same on every machine.
  int Below(int bound) { return static_cast<int>(random_() % bound); }

  ByteVector Expected(const TestPicture& picture) {
    auto rgb = DecodeWhole(GetParam().kind->make().get(), picture.bytes);
    EXPECT_THAT(rgb, IsOk()) << picture.name;
    return rgb.ok() ? *rgb : ByteVector();
  }

  std::vector<TestPicture> pictures_;
  std::unique_ptr<ImageDecoder> decoder_;
  std::mt19937 random_{20240607};
};

TEST_P(DecoderSuite, IsRecognisedAndGivesSizeAndAllRows) {
  for (const TestPicture& picture : pictures_) {
    SCOPED_TRACE(picture.name);

    auto kind = RecogniseImage(picture.bytes);
    auto size = decoder_->ReadHeader(picture.bytes, {});
    auto rgb = DecodeWhole(decoder_.get(), picture.bytes);

    ASSERT_OK(kind);
    EXPECT_EQ(*kind, GetParam().kind);
    ASSERT_OK(size);
    EXPECT_EQ(*size, picture.size);
    ASSERT_OK(rgb);
    EXPECT_EQ(rgb->size(), size_t{3} * size->height * size->width);
  }
}

TEST_P(DecoderSuite, ARegionIsTheCutOfTheWholePicture) {
  Scratch scratch;
  for (const TestPicture& picture : pictures_) {
    SCOPED_TRACE(picture.name);
    const ByteVector whole = Expected(picture);
    for (int i = 0; i < 60; ++i) {
      const int top = Below(picture.size.height);
      const int left = Below(picture.size.width);
      const Box box = {top, left, 1 + Below(picture.size.height - top),
                       1 + Below(picture.size.width - left)};
      CollectingSink sink(box.width);

      ASSERT_OK(decoder_->ReadHeader(picture.bytes, {}));
      ASSERT_OK(decoder_->Decode(picture.bytes, box, &scratch, &sink));

      EXPECT_EQ(sink.rgb(), CutOut(whole, picture.size, box))
          << box.top << " " << box.left << " " << box.height << " " << box.width;
    }
  }
}

TEST_P(DecoderSuite, CutAtAnyLengthGivesAnErrorOrTheRightRows) {
  using enum SampleReason;
  Scratch scratch;
  for (const TestPicture& picture : pictures_) {
    const ByteVector whole = Expected(picture);
    for (size_t length = 0; length < picture.bytes.size(); ++length) {
      SCOPED_TRACE(picture.name + " cut to " + std::to_string(length));
      // A buffer of its own, so that a read behind its end is seen.
      const ByteVector cut(picture.bytes.begin(), picture.bytes.begin() + length);
      CollectingSink sink(picture.size.width);

      absl::Status status = RecogniseImage(cut).status();
      if (status.ok()) status = decoder_->ReadHeader(cut, {}).status();
      if (status.ok()) {
        status = decoder_->Decode(cut, WholeOf(picture.size), &scratch, &sink);
      }

      ASSERT_LE(sink.rgb().size(), whole.size());
      EXPECT_TRUE(std::equal(sink.rgb().begin(), sink.rgb().end(), whole.begin()));
      if (status.ok()) {
        EXPECT_EQ(sink.rgb().size(), whole.size());
      } else {
        EXPECT_THAT(SampleReasonOf(status),
                    testing::AnyOf(kTruncated, kCorrupt, kEmpty, kNotAnImage))
            << status;
      }
    }
  }
}

TEST_P(DecoderSuite, BytesChangedAtRandomGiveASampleErrorOrAPicture) {
  const DecodeLimits limits = {.pixels_max = 1 << 20};
  for (const TestPicture& picture : pictures_) {
    for (int i = 0; i < 200; ++i) {
      ByteVector damaged = picture.bytes;
      for (int k = Below(3); k >= 0; --k) {
        damaged[Below(static_cast<int>(damaged.size()))] = static_cast<uint8_t>(Below(256));
      }

      auto kind = RecogniseImage(damaged);
      const absl::Status status =
          kind.ok() ? DecodeWhole(decoder_.get(), damaged, limits).status() : kind.status();

      if (!status.ok()) {
        EXPECT_NE(SampleReasonOf(status), std::nullopt) << picture.name << ": " << status;
      }
    }
  }
}

TEST_P(DecoderSuite, WhatCameBeforeDoesNotChangeAPicture) {
  std::vector<ByteVector> expected;
  for (const TestPicture& picture : pictures_) expected.push_back(Expected(picture));
  Scratch scratch;

  for (int i = 0; i < 300; ++i) {
    const int good = Below(static_cast<int>(pictures_.size()));
    ByteVector bad = pictures_[Below(static_cast<int>(pictures_.size()))].bytes;
    bad.resize(Below(static_cast<int>(bad.size())) + 1);
    bad[Below(static_cast<int>(bad.size()))] ^= 0x55;
    auto bad_size = decoder_->ReadHeader(bad, {.pixels_max = 1 << 20});
    if (bad_size.ok()) {
      CollectingSink sink(bad_size->width);
      (void)decoder_->Decode(bad, WholeOf(*bad_size), &scratch, &sink);
    }

    auto rgb = DecodeWhole(decoder_.get(), pictures_[good].bytes);

    ASSERT_OK(rgb);
    EXPECT_EQ(*rgb, expected[good]) << pictures_[good].name;
  }
}

TEST_P(DecoderSuite, ThreadsWithTheirOwnDecodersGiveTheSameBytes) {
  std::vector<ByteVector> expected;
  for (const TestPicture& picture : pictures_) expected.push_back(Expected(picture));
  std::vector<int> wrong_counts(8, 0);
  std::vector<std::thread> threads;

  for (int& wrong_count : wrong_counts) {
    threads.emplace_back([&] {
      auto decoder = GetParam().kind->make();
      for (int round = 0; round < 5; ++round) {
        for (size_t i = 0; i < pictures_.size(); ++i) {
          auto rgb = DecodeWhole(decoder.get(), pictures_[i].bytes);
          if (!rgb.ok() || *rgb != expected[i]) ++wrong_count;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_THAT(wrong_counts, testing::Each(0));
}

TEST_P(DecoderSuite, MorePixelsThanTheLimitAreRefusedByTheHeaderWithBothNumbers) {
  const TestPicture& picture = pictures_[0];
  const int64_t pixels = int64_t{picture.size.height} * picture.size.width;

  auto at_limit = decoder_->ReadHeader(picture.bytes, {.pixels_max = pixels});
  auto above = decoder_->ReadHeader(picture.bytes, {.pixels_max = pixels - 1});

  EXPECT_OK(at_limit);
  EXPECT_THAT(above, IsBadSample(SampleReason::kTooLarge));
  EXPECT_THAT(above, FailsWith(absl::StatusCode::kDataLoss, std::to_string(pixels)));
  EXPECT_THAT(above, FailsWith(absl::StatusCode::kDataLoss, std::to_string(pixels - 1)));
}

// Counts calls of `new`, that is this project's own: libraries have their pools.
TEST_P(DecoderSuite, NothingIsAllocatedForAPictureLikeTheOneBefore) {
  class CountingSink final : public RowSink {
   public:
    void PutRows(const uint8_t*, ptrdiff_t, int row_count) override { count += row_count; }
    int count = 0;
  } sink;
  Scratch scratch;
  const TestPicture& picture = pictures_[0];
  const Bytes bytes = picture.bytes;
  ASSERT_OK(decoder_->Decode(bytes, WholeOf(picture.size), &scratch, &sink));

  const int64_t before = NewCallCount();
  const bool header_ok = decoder_->ReadHeader(bytes, {}).ok();
  const bool pixels_ok = decoder_->Decode(bytes, WholeOf(picture.size), &scratch, &sink).ok();
  const int64_t after = NewCallCount();

  EXPECT_TRUE(header_ok && pixels_ok);
  EXPECT_EQ(sink.count, 2 * picture.size.height);
  EXPECT_EQ(after - before, 0);
}

}  // namespace batchd
