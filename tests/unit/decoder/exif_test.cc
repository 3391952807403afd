// SPDX-License-Identifier: Apache-2.0

#include "server/decoder/exif.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/conformance/format_pictures.h"

namespace batchd {
namespace {

// A TIFF header and one folder; numbers in the byte order asked for.
ByteVector ExifOf(int orientation, bool big_endian, int type = 3, int count = 1) {
  ByteVector exif = big_endian ? ByteVector{'M', 'M'} : ByteVector{'I', 'I'};
  const auto put = [&](uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) {
      exif.push_back(static_cast<uint8_t>(value >> (8 * (big_endian ? bytes - 1 - i : i))));
    }
  };
  put(42, 2);
  put(8, 4);
  put(2, 2);                                           // entries
  for (uint32_t value : {0x010Fu, 2u}) put(value, 2);  // a text far outside
  for (uint32_t value : {0x7FFFFFFFu, 0xFFFFFFF0u}) put(value, 4);
  for (uint32_t value : {0x0112, type}) put(value, 2);
  put(count, 4);
  put(orientation, 2);
  put(0, 2);
  put(0xFFFFFFFF, 4);  // the next folder
  return exif;
}

ByteVector WithPrefix(const ByteVector& exif) {
  ByteVector bytes = {'E', 'x', 'i', 'f', 0, 0};
  Append(exif, &bytes);
  return bytes;
}

int OrientationOf(const ByteVector& picture) {
  auto decoder = (*RecogniseImage(picture))->make();
  EXPECT_TRUE(decoder->ReadHeader(picture, {}).ok());
  return decoder->Orientation(picture);
}

TEST(ExifTest, OrientationsOfBothByteOrders) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(ExifOrientation(ExifOf(orientation, false)), orientation);
    EXPECT_EQ(ExifOrientation(ExifOf(orientation, true)), orientation);
    EXPECT_EQ(ExifOrientation(WithPrefix(ExifOf(orientation, true))), orientation);
  }
}

TEST(ExifTest, WhatIsWrongIs1) {
  for (int orientation : {0, 9, 255, 65535}) {
    EXPECT_EQ(ExifOrientation(ExifOf(orientation, false)), 1);
  }
  EXPECT_EQ(ExifOrientation(ExifOf(6, false, 4)), 1);     // of another type
  EXPECT_EQ(ExifOrientation(ExifOf(6, false, 3, 2)), 1);  // two of them
  EXPECT_EQ(ExifOrientation(ByteVector()), 1);
  ByteVector exif = ExifOf(6, false);
  exif[4] = exif[5] = exif[6] = exif[7] = 0xFF;  // the folder
  EXPECT_EQ(ExifOrientation(exif), 1);
}

TEST(ExifTest, CutOrChangedAtAnyByteItIsANumberFrom1To8) {
  const ByteVector exif = WithPrefix(ExifOf(6, true));
  for (size_t i = 0; i < exif.size(); ++i) {
    const ByteVector cut(exif.begin(), exif.begin() + i);
    EXPECT_GE(ExifOrientation(cut), 1);
    EXPECT_LE(ExifOrientation(cut), 8);
    for (int value = 0; value < 256; ++value) {
      ByteVector changed = exif;
      changed[i] = static_cast<uint8_t>(value);
      EXPECT_GE(ExifOrientation(changed), 1);
      EXPECT_LE(ExifOrientation(changed), 8);
    }
  }
}

TEST(ExifTest, OfAJpegTheFirstExifSegmentBeforeTheScan) {
  EXPECT_EQ(OrientationOf(EncodeJpeg({})), 1);
  EXPECT_EQ(OrientationOf(EncodeJpeg({.extra_segment = WithPrefix(ExifOf(6, false))})), 6);
  EXPECT_EQ(OrientationOf(EncodeJpeg({.extra_segment = ExifOf(6, false)})), 1);  // no "Exif"
  EXPECT_EQ(OrientationOf(EncodeJpeg({.extra_segment = WithPrefix({})})), 1);
}

TEST(ExifTest, OfAPngTheExifChunk) {
  const ByteVector exif = ExifOf(8, true);
  ByteVector chunk = {0, 0, 0, static_cast<uint8_t>(exif.size()), 'e', 'X', 'I', 'f'};
  Append(exif, &chunk);
  const uint32_t sum = crc32(0, chunk.data() + 4, chunk.size() - 4);
  for (int shift : {24, 16, 8, 0}) chunk.push_back(static_cast<uint8_t>(sum >> shift));
  ByteVector png = EncodePng({});
  png.insert(png.begin() + 33, chunk.begin(), chunk.end());

  EXPECT_EQ(OrientationOf(EncodePng({})), 1);
  EXPECT_EQ(OrientationOf(png), 8);
}

#ifdef BATCHD_HAS_WEBP
TEST(ExifTest, OfAWebpTheExifChunk) {
  const ByteVector still = EncodeWebp({});
  const ByteVector stream(still.begin() + 12, still.end());
  const ByteVector webp = WebpFile(
      {WebpHead(WebpOptions().size, 8), stream, WebpChunk("EXIF", WithPrefix(ExifOf(5, false)))});

  EXPECT_EQ(OrientationOf(still), 1);
  EXPECT_EQ(OrientationOf(webp), 5);
}
#endif

#ifdef BATCHD_HAS_TIFF
TEST(ExifTest, OfATiffItsTag) {
  EXPECT_EQ(OrientationOf(EncodeTiff({})), 1);
  EXPECT_EQ(OrientationOf(EncodeTiff({.orientation = 7})), 7);
  EXPECT_EQ(OrientationOf(EncodeTiff({.orientation = 3, .big_endian = true})), 3);
}
#endif

}  // namespace
}  // namespace batchd
