// SPDX-License-Identifier: Apache-2.0
//
// Pictures for the tests of decoders: encoded here, for every kind, and what collects their rows.

#pragma once

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t.
#include <jpeglib.h>
// clang-format on
#include <spng.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"

namespace batchd {

using ByteVector = std::vector<uint8_t>;

struct TestPicture {
  std::string name;
  ByteVector bytes;
  ImageSize size;
};

// Keeps all rows.
class CollectingSink final : public RowSink {
 public:
  explicit CollectingSink(int width) : row_bytes_(3 * width) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    for (int y = 0; y < row_count; ++y, rgb += stride_bytes) {
      rgb_.insert(rgb_.end(), rgb, rgb + row_bytes_);
    }
  }
  const ByteVector& rgb() const { return rgb_; }

 private:
  const int row_bytes_;
  ByteVector rgb_;
};

inline Box WholeOf(ImageSize size) { return {0, 0, size.height, size.width}; }

inline ByteVector CutOut(const ByteVector& rgb, ImageSize size, const Box& box) {
  ByteVector cut;
  for (int y = box.top; y < box.top + box.height; ++y) {
    const auto first = rgb.begin() + (y * size.width + box.left) * 3;
    cut.insert(cut.end(), first, first + box.width * 3);
  }
  return cut;
}

// The header and then all pixels.
inline absl::StatusOr<ByteVector> DecodeWhole(ImageDecoder* decoder, Bytes bytes,
                                              const DecodeLimits& limits = {}) {
  BATCHD_ASSIGN_OR_RETURN(const ImageSize size, decoder->ReadHeader(bytes, limits));
  Scratch scratch;
  CollectingSink sink(size.width);
  BATCHD_RETURN_IF_ERROR(decoder->Decode(bytes, WholeOf(size), &scratch, &sink));
  return sink.rgb();
}

// As DecodeWhole, with whatever decoder the bytes ask for.
inline absl::StatusOr<ByteVector> DecodeAnyWhole(Bytes bytes, const DecodeLimits& limits = {}) {
  BATCHD_ASSIGN_OR_RETURN(const DecoderKind* kind, RecogniseImage(bytes));
  return DecodeWhole(kind->make().get(), bytes, limits);
}

// Smooth colours with some noise, so that all tables of an encoder are used.
inline ByteVector TestSamples(ImageSize size, int channels) {
  ByteVector samples;
  uint32_t noise = 12345;
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      for (int c = 0; c < channels; ++c) {
        noise = noise * 1664525 + 1013904223;
        const int smooth = 128 + (c + 1) * (x - y) + (c == 1 ? 3 * x : -2 * y);
        samples.push_back(static_cast<uint8_t>(smooth + static_cast<int>(noise >> 28)));
      }
    }
  }
  return samples;
}

struct JpegOptions {
  ImageSize size = {33, 47};
  int channels = 3;  // 1, 3 or 4
  int h_factor = 2;  // Of the first channel: 2x2 is 4:2:0.
  int v_factor = 2;
  J_COLOR_SPACE stored = JCS_UNKNOWN;  // Unknown: libjpeg's choice.
  bool progressive = false;
  bool arithmetic = false;
  bool separate_scans = false;  // One scan for each channel.
  int scans_kept = 0;           // Progressive with these first ones of its scans alone; 0: all.
  bool optimised = false;
  bool adobe_marker = true;
  int restart_rows = 0;
  int quality = 85;
  ByteVector extra_segment = {};  // Content of an APP1.
};

inline ByteVector EncodeJpeg(const JpegOptions& options) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  errors.emit_message = [](j_common_ptr, int) {};  // Warns of coarse tables, which are wanted.
  jpeg_create_compress(&info);
  uint8_t* out = nullptr;
  unsigned long out_size = 0;
  jpeg_mem_dest(&info, &out, &out_size);
  info.image_height = options.size.height;
  info.image_width = options.size.width;
  info.input_components = options.channels;
  info.in_color_space =
      options.channels == 1 ? JCS_GRAYSCALE : (options.channels == 3 ? JCS_RGB : JCS_CMYK);
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, /*force_baseline=*/FALSE);
  if (options.stored != JCS_UNKNOWN) jpeg_set_colorspace(&info, options.stored);
  info.comp_info[0].h_samp_factor = options.h_factor;
  info.comp_info[0].v_samp_factor = options.v_factor;
  info.arith_code = options.arithmetic;
  info.optimize_coding = options.optimised;
  info.restart_in_rows = options.restart_rows;
  if (!options.adobe_marker) info.write_Adobe_marker = FALSE;
  static const jpeg_scan_info kSeparate[] = {
      {1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (options.progressive) jpeg_simple_progression(&info);
  if (options.scans_kept > 0) info.num_scans = options.scans_kept;
  if (options.separate_scans) {
    info.scan_info = kSeparate;
    info.num_scans = 3;
  }
  jpeg_start_compress(&info, TRUE);
  if (!options.extra_segment.empty()) {
    jpeg_write_marker(&info, JPEG_APP0 + 1, options.extra_segment.data(),
                      options.extra_segment.size());
  }
  ByteVector samples = TestSamples(options.size, options.channels);
  while (info.next_scanline < info.image_height) {
    uint8_t* row = samples.data() + info.next_scanline * options.size.width * options.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  ByteVector bytes(out, out + out_size);
  jpeg_destroy_compress(&info);
  std::free(out);
  return bytes;
}

struct PngOptions {
  ImageSize size = {21, 35};
  int colour_type = SPNG_COLOR_TYPE_TRUECOLOR;
  int bit_depth = 8;
  bool interlaced = false;
};

inline int PngChannels(int colour_type) {
  switch (colour_type) {
    case SPNG_COLOR_TYPE_TRUECOLOR:
      return 3;
    case SPNG_COLOR_TYPE_GRAYSCALE_ALPHA:
      return 2;
    case SPNG_COLOR_TYPE_TRUECOLOR_ALPHA:
      return 4;
    default:
      return 1;
  }
}

// The samples are those of TestSamples, packed; 16-bit ones are pairs of them.
inline ByteVector EncodePng(const PngOptions& options) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header = {};
  header.width = options.size.width;
  header.height = options.size.height;
  header.color_type = options.colour_type;
  header.bit_depth = options.bit_depth;
  header.interlace_method = options.interlaced ? 1 : 0;
  BATCHD_CHECK(spng_set_ihdr(context, &header) == 0);
  if (options.colour_type == SPNG_COLOR_TYPE_INDEXED) {
    spng_plte palette = {};
    palette.n_entries = 1u << options.bit_depth;
    for (uint32_t i = 0; i < palette.n_entries; ++i) {
      palette.entries[i] = {static_cast<uint8_t>(i * 37), static_cast<uint8_t>(255 - i),
                            static_cast<uint8_t>(i * 11), 255};
    }
    BATCHD_CHECK(spng_set_plte(context, &palette) == 0);
  }
  const int bits = PngChannels(options.colour_type) * options.bit_depth;
  const int row_bytes = (options.size.width * bits + 7) / 8;
  ByteVector image = TestSamples({options.size.height, row_bytes}, 1);
  BATCHD_CHECK(spng_encode_image(context, image.data(), image.size(), SPNG_FMT_RAW,
                                 SPNG_ENCODE_FINALIZE) == 0);
  size_t size = 0;
  int error = 0;
  void* out = spng_get_png_buffer(context, &size, &error);
  BATCHD_CHECK(out != nullptr && error == 0);
  const auto* first = static_cast<const uint8_t*>(out);
  ByteVector bytes(first, first + size);
  std::free(out);
  spng_ctx_free(context);
  return bytes;
}

inline ByteVector EncodePnm(ImageSize size, int channels, int maximum) {
  const std::string header = "P" + std::string(channels == 1 ? "5" : "6") + "\n# a comment 12\n" +
                             std::to_string(size.width) + " " + std::to_string(size.height) + "\n" +
                             std::to_string(maximum) + "\n";
  ByteVector bytes(header.begin(), header.end());
  const ByteVector samples = TestSamples(size, channels * (maximum > 255 ? 2 : 1));
  bytes.insert(bytes.end(), samples.begin(), samples.end());
  return bytes;
}

inline std::vector<TestPicture> JpegPictures() {
  const ImageSize size = JpegOptions().size;
  const ImageSize one = {1, 1};
  return {
      {"4:2:0", EncodeJpeg({}), size},
      {"4:4:4", EncodeJpeg({.h_factor = 1, .v_factor = 1, .optimised = true}), size},
      {"4:2:2 with restarts", EncodeJpeg({.v_factor = 1, .restart_rows = 1}), size},
      {"4:4:0", EncodeJpeg({.h_factor = 1}), size},
      {"4:1:1", EncodeJpeg({.h_factor = 4, .v_factor = 1}), size},
      {"grey", EncodeJpeg({.channels = 1}), size},
      {"progressive", EncodeJpeg({.progressive = true}), size},
      {"progressive grey", EncodeJpeg({.channels = 1, .progressive = true}), size},
      {"progressive, first scan only",
       EncodeJpeg({.size = {57, 150}, .progressive = true, .scans_kept = 1}),
       {57, 150}},
      {"arithmetic", EncodeJpeg({.arithmetic = true}), size},
      {"arithmetic progressive", EncodeJpeg({.progressive = true, .arithmetic = true}), size},
      {"separate scans", EncodeJpeg({.separate_scans = true}), size},
      {"RGB", EncodeJpeg({.h_factor = 1, .v_factor = 1, .stored = JCS_RGB}), size},
      {"CMYK", EncodeJpeg({.channels = 4, .h_factor = 1, .v_factor = 1}), size},
      {"YCCK", EncodeJpeg({.channels = 4, .stored = JCS_YCCK}), size},
      {"quality 1", EncodeJpeg({.quality = 1}), size},
      {"1x1", EncodeJpeg({.size = one}), one},
      {"1x1 progressive", EncodeJpeg({.size = one, .progressive = true}), one},
  };
}

inline std::vector<TestPicture> PngPictures() {
  struct Type {
    int colour_type;
    std::vector<int> depths;
  };
  const Type types[] = {{SPNG_COLOR_TYPE_GRAYSCALE, {1, 2, 4, 8, 16}},
                        {SPNG_COLOR_TYPE_TRUECOLOR, {8, 16}},
                        {SPNG_COLOR_TYPE_INDEXED, {1, 2, 4, 8}},
                        {SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, {8, 16}},
                        {SPNG_COLOR_TYPE_TRUECOLOR_ALPHA, {8, 16}}};
  std::vector<TestPicture> pictures;
  for (const ImageSize size : {PngOptions().size, ImageSize{1, 1}}) {
    for (const Type& type : types) {
      for (int depth : type.depths) {
        for (bool interlaced : {false, true}) {
          pictures.push_back({fmt::format("{}x{} type {} depth {}{}", size.width, size.height,
                                          type.colour_type, depth, interlaced ? " Adam7" : ""),
                              EncodePng({size, type.colour_type, depth, interlaced}), size});
        }
      }
    }
  }
  return pictures;
}

inline std::vector<TestPicture> PnmPictures() {
  std::vector<TestPicture> pictures;
  for (const ImageSize size : {ImageSize{9, 14}, ImageSize{1, 1}}) {
    for (int channels : {1, 3}) {
      for (int maximum : {255, 65535, 15, 1000}) {
        pictures.push_back(
            {fmt::format("{}x{} of {} channels to {}", size.width, size.height, channels, maximum),
             EncodePnm(size, channels, maximum), size});
      }
    }
  }
  return pictures;
}

}  // namespace batchd
