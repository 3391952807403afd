// SPDX-License-Identifier: Apache-2.0
//
// Fast decoding is near the exact one, and a part of a reduced picture is that part of the whole.

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "server/base/philox.h"
#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

constexpr DecodeLimits kFast = {.is_fast = true};

class JpegFastTest : public testing::Test {
 protected:
  ByteVector Decode(const ByteVector& bytes, const DecodeLimits& limits, int reduction,
                    const Box& box) {
    const auto decoder = decoders_.For(bytes);
    EXPECT_OK(decoder);
    EXPECT_OK((*decoder)->ReadHeader(bytes, limits));
    if (reduction > 1) {
      EXPECT_TRUE((*decoder)->Reduce(reduction));
    }
    CollectingSink sink(box.width);
    EXPECT_OK((*decoder)->Decode(bytes, box, &scratch_, &sink));
    return sink.rgb();
  }

  DecoderSet decoders_;
  Scratch scratch_;
};

// The mean of each reduction x reduction pixels.
std::vector<double> Averages(const ByteVector& rgb, ImageSize size, int reduction) {
  const ImageSize small = ReducedSize(size, reduction);
  std::vector<double> sums(size_t(small.height) * size_t(small.width) * 3);
  std::vector<int> counts(sums.size());
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width * 3; ++x) {
      const int column = x / 3 / reduction * 3 + x % 3;
      const size_t at = size_t(y / reduction) * size_t(small.width) * 3 + size_t(column);
      sums[at] += rgb[size_t(y) * size_t(size.width) * 3 + size_t(x)];
      ++counts[at];
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= counts[i];
  return sums;
}

TEST_F(JpegFastTest, AReducedPictureIsNearTheMeansOfTheExactOne) {
  for (const int v_factor : {1, 2}) {
    for (const bool progressive : {false, true}) {
      const ImageSize size = {97, 131};
      const ByteVector bytes =
          EncodeJpeg({.size = size, .v_factor = v_factor, .progressive = progressive});
      const ByteVector exact = Decode(bytes, {}, 1, {0, 0, size.height, size.width});
      for (const int reduction : {1, 2, 4, 8}) {
        const ImageSize small = ReducedSize(size, reduction);
        const ByteVector fast = Decode(bytes, kFast, reduction, {0, 0, small.height, small.width});
        const std::vector<double> means = Averages(exact, size, reduction);
        ASSERT_EQ(fast.size(), means.size());
        double sum = 0, sum_of_parts = 0;
        for (size_t i = 0; i < means.size(); ++i) {
          sum += std::abs(fast[i] - means[i]);
          sum_of_parts += std::abs(means[i] - 128);
        }
        // The chroma of 4:2:2 is reduced to half of the columns that there are, and repeated.
        EXPECT_LT(sum, (v_factor == 2 ? 0.1 : 0.3) * sum_of_parts)
            << "reduction " << reduction << (progressive ? ", progressive" : "");
      }
    }
  }
}

TEST_F(JpegFastTest, APartHasThePixelsOfTheWhole) {
  Draws draws({.seed = 21});
  for (int i = 0; i < 400; ++i) {
    JpegOptions options;
    options.size = {1 + int(draws.NextBelow(200)), 1 + int(draws.NextBelow(200))};
    options.h_factor = 1 + int(draws.NextBelow(2));
    options.v_factor = 1 + int(draws.NextBelow(2));
    constexpr int kChannels[] = {1, 3, 3, 4};
    options.channels = kChannels[draws.NextBelow(4)];
    options.progressive = draws.NextBelow(4) == 0;
    const ByteVector bytes = EncodeJpeg(options);
    const int reduction = 1 << draws.NextBelow(4);
    const ImageSize size = ReducedSize(options.size, reduction);
    const ByteVector whole = Decode(bytes, kFast, reduction, {0, 0, size.height, size.width});
    const auto upto = [&](int n) { return 1 + static_cast<int>(draws.NextBelow(uint32_t(n))); };
    for (int k = 0; k < 6; ++k) {
      const int height = upto(size.height), width = upto(size.width);
      const Box box = {upto(size.height - height + 1) - 1, upto(size.width - width + 1) - 1, height,
                       width};
      ASSERT_EQ(Decode(bytes, kFast, reduction, box), CutOut(whole, size, box))
          << "picture " << i << " reduction " << reduction << " box " << box.top << " " << box.left
          << " " << box.height << "x" << box.width << " factors " << options.h_factor << "x"
          << options.v_factor << " of " << options.size.height << "x" << options.size.width
          << " channels " << options.channels << " " << options.progressive;
    }
  }
}

}  // namespace
}  // namespace batchd
