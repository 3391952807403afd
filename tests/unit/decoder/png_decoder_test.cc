// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

void PutBigEndian32(uint32_t value, ByteVector* bytes) {
  for (int shift : {24, 16, 8, 0}) bytes->push_back(static_cast<uint8_t>(value >> shift));
}

ByteVector Chunk(const std::string& type, const ByteVector& data) {
  ByteVector chunk;
  PutBigEndian32(data.size(), &chunk);
  chunk.insert(chunk.end(), type.begin(), type.end());
  chunk.insert(chunk.end(), data.begin(), data.end());
  PutBigEndian32(crc32(0, chunk.data() + 4, chunk.size() - 4), &chunk);
  return chunk;
}

constexpr size_t kAfterHeader = 8 + 12 + 13;

ByteVector WithChunkAfterHeader(ByteVector png, const ByteVector& chunk) {
  png.insert(png.begin() + kAfterHeader, chunk.begin(), chunk.end());
  return png;
}

size_t FindChunk(const ByteVector& png, const std::string& type) {
  for (size_t at = 8; at + 12 <= png.size();) {
    if (std::string(png.begin() + at + 4, png.begin() + at + 8) == type) return at;
    at += 12 + (png[at] << 24 | png[at + 1] << 16 | png[at + 2] << 8 | png[at + 3]);
  }
  ADD_FAILURE() << "no chunk " << type;
  return 0;
}

// A PNG of these scanlines, each with its filter byte in front.
ByteVector PngOf(ImageSize size, int colour_type, int bit_depth, const ByteVector& scanlines,
                 const ByteVector& palette = {}) {
  ByteVector header;
  PutBigEndian32(size.width, &header);
  PutBigEndian32(size.height, &header);
  for (int value : {bit_depth, colour_type, 0, 0, 0}) header.push_back(value);
  uLongf size_bytes = compressBound(scanlines.size());
  ByteVector packed(size_bytes);
  EXPECT_EQ(compress(packed.data(), &size_bytes, scanlines.data(), scanlines.size()), Z_OK);
  packed.resize(size_bytes);
  ByteVector png = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  std::vector<ByteVector> chunks = {Chunk("IHDR", header)};
  if (!palette.empty()) chunks.push_back(Chunk("PLTE", palette));
  chunks.push_back(Chunk("IDAT", packed));
  chunks.push_back(Chunk("IEND", {}));
  for (const ByteVector& chunk : chunks) png.insert(png.end(), chunk.begin(), chunk.end());
  return png;
}

ByteVector Decoded(const ByteVector& png) {
  auto rgb = DecodeAnyWhole(png);
  EXPECT_OK(rgb);
  return rgb.ok() ? *rgb : ByteVector();
}

TEST(PngDecoderTest, EveryColourTypeBecomesRgbWithoutBlendingOrScalingByAlpha) {
  const ImageSize two = {1, 2};

  EXPECT_EQ(Decoded(PngOf(two, 0, 8, {0, 7, 200})), (ByteVector{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(Decoded(PngOf(two, 0, 1, {0, 0x40})), (ByteVector{0, 0, 0, 255, 255, 255}));
  EXPECT_EQ(Decoded(PngOf(two, 0, 2, {0, 0x60})), (ByteVector{85, 85, 85, 170, 170, 170}));
  EXPECT_EQ(Decoded(PngOf(two, 0, 4, {0, 0x1F})), (ByteVector{17, 17, 17, 255, 255, 255}));
  EXPECT_EQ(Decoded(PngOf(two, 0, 16, {0, 7, 255, 200, 0})), (ByteVector{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(Decoded(PngOf(two, 2, 8, {0, 1, 2, 3, 4, 5, 6})), (ByteVector{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Decoded(PngOf(two, 2, 16, {0, 1, 255, 2, 255, 3, 255, 4, 0, 5, 0, 6, 0})),
            (ByteVector{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(Decoded(PngOf(two, 3, 4, {0, 0x10}, {9, 8, 7, 6, 5, 4})),
            (ByteVector{6, 5, 4, 9, 8, 7}));
  EXPECT_EQ(Decoded(PngOf(two, 4, 8, {0, 7, 0, 200, 128})), (ByteVector{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(Decoded(PngOf(two, 6, 8, {0, 1, 2, 3, 0, 4, 5, 6, 128})),
            (ByteVector{1, 2, 3, 4, 5, 6}));
}

TEST(PngDecoderTest, InterlacingDoesNotChangePixels) {
  for (int colour_type : {0, 2, 4, 6}) {
    const ByteVector plain = Decoded(EncodePng({.colour_type = colour_type}));
    EXPECT_EQ(Decoded(EncodePng({.colour_type = colour_type, .interlaced = true})), plain);
  }
}

TEST(PngDecoderTest, ChunksThatAreNotPixelsCannotBreakOrChangeThem) {
  const ByteVector png = EncodePng({});
  const ByteVector expected = Decoded(png);
  ByteVector bad_checksum = Chunk("tEXt", {'a', 0, 'b'});
  bad_checksum.back() ^= 1;

  for (const ByteVector& chunk :
       {Chunk("gAMA", {0, 0, 0, 0}), Chunk("gAMA", {0, 0, 0xB1, 0x8F}), Chunk("iCCP", {1, 2, 3}),
        Chunk("tRNS", {0, 1, 0, 2, 0, 3}), Chunk("zTXt", {}), Chunk("sRGB", {77}),
        Chunk("tEXt", ByteVector(1 << 20, 'x')), bad_checksum}) {
    EXPECT_EQ(Decoded(WithChunkAfterHeader(png, chunk)), expected);
  }
}

TEST(PngDecoderTest, AnyBitOfADamagedChunkIsFound) {
  const ByteVector png = EncodePng({});
  const ByteVector expected = Decoded(png);
  for (size_t bit = 0; bit < png.size() * 8; bit += 3) {
    ByteVector damaged = png;
    damaged[bit / 8] ^= 1 << (bit % 8);

    auto rgb = DecodeAnyWhole(damaged, {.pixels_max = 1 << 20});

    if (rgb.ok()) {
      EXPECT_EQ(*rgb, expected) << "bit " << bit;
    }
  }
}

// The rows come from the front of the chunk, but its checksum tells only of the chunk as a whole.
TEST(PngDecoderTest, DamageInTheChunkOfTheRowsIsCorruptThoughTheRowsComeBeforeIt) {
  ByteVector scanlines;
  for (int y = 0; y < 300; ++y) scanlines.insert(scanlines.end(), 301, y == 0 ? 0 : y % 5);
  ByteVector png = PngOf({300, 300}, 0, 8, scanlines);
  png[FindChunk(png, "IEND") - 5] ^= 1;
  auto decoder = (*RecogniseImage(png))->make();
  ASSERT_OK(decoder->ReadHeader(png, {}));
  Scratch scratch;
  CollectingSink sink(300);

  const absl::Status status = decoder->Decode(png, {0, 0, 1, 300}, &scratch, &sink);

  EXPECT_THAT(status, IsBadSample(SampleReason::kCorrupt));
  EXPECT_TRUE(sink.rgb().empty());
}

TEST(PngDecoderTest, AMissingEndChunkAndTrailingBytesAreHarmless) {
  const ByteVector png = EncodePng({});
  const ByteVector expected = Decoded(png);
  ByteVector cut = png;
  cut.resize(FindChunk(png, "IEND"));
  ByteVector longer = png;
  longer.push_back(0);

  EXPECT_EQ(Decoded(cut), expected);
  EXPECT_EQ(Decoded(longer), expected);
}

TEST(PngDecoderTest, RowsThatAreNotThereAreTruncatedButNotTheRowsAbove) {
  const ByteVector png = PngOf({3, 1}, 0, 8, {0, 10, 0, 20});
  auto decoder = (*RecogniseImage(png))->make();
  Scratch scratch;
  CollectingSink sink(1);

  EXPECT_THAT(DecodeAnyWhole(png), IsBadSample(SampleReason::kTruncated));
  EXPECT_OK(decoder->Decode(png, {0, 0, 1, 1}, &scratch, &sink));
  EXPECT_EQ(sink.rgb(), (ByteVector{10, 10, 10}));
}

TEST(PngDecoderTest, AnUnknownCriticalChunkIsUnsupported) {
  const ByteVector png = WithChunkAfterHeader(EncodePng({}), Chunk("ABCD", {1}));

  EXPECT_THAT(DecodeAnyWhole(png), IsBadSample(SampleReason::kUnsupported));
}

TEST(PngDecoderTest, AHugeHeaderIsTooLarge) {
  EXPECT_THAT(DecodeAnyWhole(PngOf({65500, 65500}, 2, 8, {0})),
              IsBadSample(SampleReason::kTooLarge));
  EXPECT_THAT(DecodeAnyWhole(PngOf({1, 40'000'000}, 2, 8, {0})),
              IsBadSample(SampleReason::kTooLarge));
}

TEST(PngDecoderTest, ACutSignatureIsTruncated) {
  EXPECT_THAT(DecodeAnyWhole(ByteVector{0x89, 'P', 'N', 'G', '\r'}),
              IsBadSample(SampleReason::kTruncated));
}

}  // namespace
}  // namespace batchd
