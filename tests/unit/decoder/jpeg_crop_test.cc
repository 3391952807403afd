// SPDX-License-Identifier: Apache-2.0
//
// A part of a JPEG is decoded alone, and its pixels must be those of the whole: over all kinds of
// subsampling and coding, with boxes at random.

#include <gtest/gtest.h>

#include "server/base/philox.h"
#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

struct Coding {
  const char* name;
  bool progressive, arithmetic, separate_scans;
  int restart_rows;
};
constexpr Coding kCodings[] = {
    {"baseline", false, false, false, 0},
    {"restarts", false, false, false, 1},
    {"progressive", true, false, false, 0},
    {"arithmetic", false, true, false, 0},
    {"separate scans", false, false, true, 0},
    {"progressive arithmetic", true, true, false, 0},
    {"progressive restarts", true, false, false, 2},
};
constexpr int kFactors[][2] = {{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {4, 2}, {2, 4}};
constexpr int kBoxes = 12;

void ExpectPartsOf(const JpegOptions& options, Draws* draws) {
  const ByteVector bytes = EncodeJpeg(options);
  const auto kind = RecogniseImage(bytes);
  ASSERT_OK(kind);
  const auto decoder = (*kind)->make();
  const auto whole = DecodeWhole(decoder.get(), bytes);
  ASSERT_OK(whole);
  const auto upto = [&](int n) { return 1 + static_cast<int>(draws->NextBelow(uint32_t(n))); };
  Scratch scratch;
  for (int i = 0; i < kBoxes; ++i) {
    const int height = upto(options.size.height), width = upto(options.size.width);
    const Box box = {upto(options.size.height - height + 1) - 1,
                     upto(options.size.width - width + 1) - 1, height, width};
    ASSERT_OK(decoder->ReadHeader(bytes, {}));
    CollectingSink sink(box.width);
    ASSERT_OK(decoder->Decode(bytes, box, &scratch, &sink));
    ASSERT_EQ(sink.rgb(), CutOut(*whole, options.size, box))
        << box.top << " " << box.left << " " << box.height << "x" << box.width;
  }
}

TEST(JpegCrop, APartHasThePixelsOfTheWhole) {
  Draws draws({.seed = 20});
  for (const Coding& coding : kCodings) {
    for (const auto& factors : kFactors) {
      for (const int channels : {1, 3, 4}) {
        if (coding.separate_scans && channels != 3) continue;
        if (factors[0] * factors[1] + channels - 1 > 10) continue;  // no JPEG has more
        for (int i = 0; i < 3; ++i) {
          JpegOptions options;
          options.size = {1 + int(draws.NextBelow(150)), 1 + int(draws.NextBelow(150))};
          options.channels = channels;
          options.h_factor = factors[0];
          options.v_factor = factors[1];
          options.progressive = coding.progressive;
          options.arithmetic = coding.arithmetic;
          options.separate_scans = coding.separate_scans;
          options.restart_rows = coding.restart_rows;
          SCOPED_TRACE(std::string(coding.name) + ", factors " + std::to_string(factors[0]) + "x" +
                       std::to_string(factors[1]) + ", channels " + std::to_string(channels) +
                       ", " + std::to_string(options.size.height) + "x" +
                       std::to_string(options.size.width));
          ExpectPartsOf(options, &draws);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Coefficients that no scan brings are guessed from the blocks around.
TEST(JpegCrop, APartOfAProgressivePictureWithoutItsLastScansToo) {
  Draws draws({.seed = 22});
  for (const auto& factors : kFactors) {
    for (const int channels : {1, 3}) {
      if (factors[0] * factors[1] + channels - 1 > 10) continue;
      const int scans = channels == 1 ? 6 : 10;  // of jpeg_simple_progression
      for (int kept = 1; kept < scans; ++kept) {
        SCOPED_TRACE(kept);
        ExpectPartsOf({.size = {100, 130},
                       .channels = channels,
                       .h_factor = factors[0],
                       .v_factor = factors[1],
                       .progressive = true,
                       .scans_kept = kept},
                      &draws);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// RGB and YCCK as stored, which no conversion may treat as anything else.
TEST(JpegCrop, APartOfOtherColourSpacesToo) {
  Draws draws({.seed = 21});
  for (const J_COLOR_SPACE stored : {JCS_RGB, JCS_YCCK}) {
    JpegOptions options;
    options.size = {90, 110};
    options.channels = stored == JCS_RGB ? 3 : 4;
    options.stored = stored;
    options.h_factor = options.v_factor = stored == JCS_RGB ? 1 : 2;
    ExpectPartsOf(options, &draws);
  }
}

}  // namespace
}  // namespace batchd
