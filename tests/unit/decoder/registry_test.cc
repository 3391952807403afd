// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using namespace std::string_literals;

absl::Status Recognised(const std::string& text) {
  return RecogniseImage(ByteVector(text.begin(), text.end())).status();
}

auto Names(const std::string& format) {
  return testing::AllOf(IsBadSample(SampleReason::kUnsupported),
                        FailsWith(absl::StatusCode::kDataLoss, format));
}

TEST(RegistryTest, NoBytesAreEmpty) {
  EXPECT_THAT(Recognised(""), IsBadSample(SampleReason::kEmpty));
}

TEST(RegistryTest, KnownFormatsOutsideThisBuildAreNamed) {
  EXPECT_THAT(Recognised("II+\0\x08\0\0\0"s), Names("BigTIFF"));
  EXPECT_THAT(Recognised("\0\0\0\x18"
                         "ftypheic\0\0\0\0"s),
              Names("HEIF"));
  EXPECT_THAT(Recognised("\xFF\x0A\x01"), Names("JPEG XL"));
  EXPECT_THAT(Recognised("<?xml version=\"1.0\"?>\n<svg width=\"1\"/>"), Names("SVG"));
}

// A build without a library names the format; one with it has a kind of that name.
TEST(RegistryTest, FormatsOfALibraryAreRecognisedOrNamed) {
  struct Format {
    std::string start;
    std::string kind;
    std::string name;
  };
  for (const Format& format :
       {Format{"GIF89a....."s, "gif", "GIF"}, Format{"RIFF\x10\0\0\0WEBPVP8 "s, "webp", "WebP"},
        Format{"II*\0\x08\0\0\0"s, "tiff", "TIFF"}, Format{"MM\0*\0\0\0\x08"s, "tiff", "TIFF"},
        Format{"\0\0\0\x1C"
               "ftypavif\0\0\0\0"s,
               "avif", "AVIF"},
        Format{"\0\0\0\x0CjP  \r\n\x87\n\0\0"s, "jp2", "JPEG 2000"},
        Format{"\xFF\x4F\xFF\x51"s, "jp2", "JPEG 2000"}}) {
    const auto kind = RecogniseImage(ByteVector(format.start.begin(), format.start.end()));
    if (kind.ok()) {
      EXPECT_EQ((*kind)->name, format.kind);
    } else {
      EXPECT_THAT(kind, Names(format.name));
    }
  }
}

TEST(RegistryTest, AnythingElseIsNotAnImageAndItsStartIsShownSafely) {
  EXPECT_THAT(Recognised("<!DOCTYPE html><html>"),
              testing::AllOf(IsBadSample(SampleReason::kNotAnImage),
                             FailsWith(absl::StatusCode::kDataLoss, "<!DOCTYPE html>")));
  EXPECT_THAT(Recognised("{\"error\": 1}"),
              FailsWith(absl::StatusCode::kDataLoss, "{\\x22error\\x22: 1}"));
  EXPECT_THAT(Recognised("\x1B[31m\0\n"s),
              FailsWith(absl::StatusCode::kDataLoss, "\"\\x1b[31m\\x00\\x0a\""));
  for (const std::string& text :
       {std::string(4096, '\0'), "RIFF1234WAVEfmt "s, "BMW is a company of cars"s, "P"s, "\xFF"s,
        "\0\0\xFF\xD8\xFF\xE0"s, "PK\x03\x04"s}) {
    EXPECT_THAT(Recognised(text), IsBadSample(SampleReason::kNotAnImage)) << text;
  }
}

TEST(RegistryTest, KindsHaveNamesSentencesAndVersionsOfTheirOwn) {
  std::set<std::string_view> names;
  for (const DecoderKind* kind : DecoderKinds()) {
    names.insert(kind->name);
    EXPECT_TRUE(kind->sentence.ends_with(".")) << kind->name;
    EXPECT_FALSE(kind->build().empty()) << kind->name;
  }

  EXPECT_EQ(names.size(), DecoderKinds().size());
}

TEST(RegistryTest, TheFingerprintIs32HexadecimalDigitsAndStays) {
  const std::string fingerprint = DecoderFingerprint();

  EXPECT_EQ(fingerprint.size(), 32u);
  EXPECT_EQ(fingerprint.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(DecoderFingerprint(), fingerprint);
}

TEST(RegistryTest, ASetMakesOneDecoderOfAKindAndKeepsIt) {
  DecoderSet set;
  const ByteVector jpeg = EncodeJpeg({});
  const ByteVector png = EncodePng({});

  auto first = set.For(jpeg);
  auto other = set.For(png);
  auto again = set.For(jpeg);

  ASSERT_OK(first);
  ASSERT_OK(other);
  ASSERT_OK(again);
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  EXPECT_THAT(set.For(ByteVector()), IsBadSample(SampleReason::kEmpty));
}

}  // namespace
}  // namespace batchd
