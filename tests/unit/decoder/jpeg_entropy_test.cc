// SPDX-License-Identifier: Apache-2.0
//
// The project's own Huffman decoder against libjpeg's: the same rows, and for damaged pictures the
// same rows and the same error.

#include "server/decoder/jpeg_entropy.h"

#include <gtest/gtest.h>

#include <string>

#include "server/base/philox.h"
#include "server/decoder/jpeg_decoder.h"
#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

struct Decoded {
  absl::Status status;
  ByteVector rgb;
};

Decoded DecodeBy(ImageDecoder* decoder, const ByteVector& bytes, const Box& box, bool accept) {
  Scratch scratch;
  CollectingSink sink(box.width);
  const auto size = decoder->ReadHeader(bytes, {.goes_on_over_damage = accept});
  if (!size.ok()) return {size.status(), {}};
  const absl::Status status = decoder->Decode(bytes, box, &scratch, &sink);
  return {status, sink.rgb()};
}

class JpegEntropyTest : public testing::Test {
 protected:
  // Whether both decoders came to the same end; the box is drawn.
  void ExpectEqual(const ByteVector& bytes, ImageSize size) {
    const auto upto = [&](int n) { return 1 + static_cast<int>(draws_.NextBelow(uint32_t(n))); };
    const int height = upto(size.height), width = upto(size.width);
    const Box box = {upto(size.height - height + 1) - 1, upto(size.width - width + 1) - 1, height,
                     width};
    for (const bool accept : {false, true}) {
      const Decoded own = DecodeBy(own_.get(), bytes, box, accept);
      const Decoded libjpeg = DecodeBy(libjpeg_.get(), bytes, box, accept);
      ASSERT_EQ(own.status, libjpeg.status);
      ASSERT_EQ(own.rgb, libjpeg.rgb);
      good_ += own.status.ok();
      bad_ += !own.status.ok();
    }
  }

  ByteVector Encode(int quality, bool optimal, int restart_rows) {
    JpegOptions options;
    options.size = {1 + int(draws_.NextBelow(90)), 1 + int(draws_.NextBelow(90))};
    constexpr int kFactors[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {4, 2}};
    const auto& factors = kFactors[draws_.NextBelow(6)];
    options.h_factor = factors[0];
    options.v_factor = factors[1];
    constexpr int kChannels[] = {1, 3, 3, 3, 4};
    options.channels = kChannels[draws_.NextBelow(factors[0] * factors[1] == 8 ? 4 : 5)];
    options.quality = quality;
    options.optimised = optimal;
    options.restart_rows = restart_rows;
    size_ = options.size;
    return EncodeJpeg(options);
  }

  Draws draws_{DrawKey{.seed = 33}};
  std::unique_ptr<ImageDecoder> own_ = MakeJpegDecoder(HuffmanBy::kOwn);
  std::unique_ptr<ImageDecoder> libjpeg_ = MakeJpegDecoder(HuffmanBy::kLibjpeg);
  ImageSize size_;
  int good_ = 0;
  int bad_ = 0;
};

// High qualities have long codes and values, low ones many codes in the bits of one look.
TEST_F(JpegEntropyTest, GivesLibjpegsPixels) {
  for (int i = 0; i < 1500; ++i) {
    const int quality = 1 + i % 100;
    SCOPED_TRACE("picture " + std::to_string(i));
    const ByteVector bytes = Encode(quality, i % 3 == 0, i % 5 == 0 ? 1 : 0);
    ExpectEqual(bytes, size_);
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(bad_, 0);
}

// A changed byte is mostly damage, but often it only makes another picture.
TEST_F(JpegEntropyTest, GivesLibjpegsErrorsAndRowsOfDamagedPictures) {
  for (int i = 0; i < 3000; ++i) {
    SCOPED_TRACE("picture " + std::to_string(i));
    ByteVector bytes = Encode(1 + i % 100, i % 3 == 0, i % 4 == 0 ? 1 : 0);
    const uint32_t changes = 1 + draws_.NextBelow(3);
    for (uint32_t k = 0; k < changes; ++k) {
      const size_t behind_header = bytes.size() / 3;
      const size_t at = behind_header + draws_.NextBelow(uint32_t(bytes.size() - behind_header));
      switch (draws_.NextBelow(4)) {
        case 0:
          bytes[at] = static_cast<uint8_t>(draws_.NextU32());
          break;
        case 1:
          bytes[at] = 0xFF;
          break;
        case 2:
          bytes.erase(bytes.begin() + static_cast<ptrdiff_t>(at));
          break;
        default:
          bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), uint8_t{0xFF});
      }
    }
    ExpectEqual(bytes, size_);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(good_, 500);
  EXPECT_GT(bad_, 500);
}

// Tables are kept from picture to picture: those of another must not be taken.
TEST_F(JpegEntropyTest, TablesOfThePictureBefore) {
  for (int i = 0; i < 40; ++i) {
    ExpectEqual(Encode(20 + i, /*optimal=*/i % 2 == 0, 0), size_);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace batchd
