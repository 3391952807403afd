// SPDX-License-Identifier: Apache-2.0
//
// As decoder_pictures.h, for the formats whose library a build may lack, and for BMP.

#pragma once

#include "tests/conformance/decoder_pictures.h"

#ifdef BATCHD_HAS_GIF
#include <gif_lib.h>
#endif
#ifdef BATCHD_HAS_WEBP
#include <webp/encode.h>
#endif
#ifdef BATCHD_HAS_TIFF
#include <tiffio.h>
#endif
#ifdef BATCHD_HAS_AVIF
#include <avif/avif.h>
#endif
#ifdef BATCHD_HAS_JP2
#include <openjpeg.h>
#endif

namespace batchd {

inline void PutLittle(uint64_t value, int count, ByteVector* bytes) {
  for (int i = 0; i < count; ++i) bytes->push_back(static_cast<uint8_t>(value >> (8 * i)));
}
inline void Append(const ByteVector& more, ByteVector* bytes) {
  bytes->insert(bytes->end(), more.begin(), more.end());
}

struct BmpOptions {
  ImageSize size = {9, 13};
  int bits = 24;
  int compression = 0;
  bool top_down = false;
  std::vector<uint32_t> masks = {};
  ByteVector pixels = {};  // Nothing: those of TestSamples.
};

inline ByteVector EncodeBmp(const BmpOptions& options) {
  const int row_bytes = (options.size.width * options.bits + 31) / 32 * 4;
  const ByteVector pixels =
      options.pixels.empty() ? TestSamples({options.size.height, row_bytes}, 1) : options.pixels;
  const uint32_t colours = options.bits <= 8 ? 1u << options.bits : 0;
  const uint32_t pixels_at = 14 + 40 + 4 * options.masks.size() + 4 * colours;
  ByteVector bytes = {'B', 'M'};
  PutLittle(pixels_at + pixels.size(), 4, &bytes);
  PutLittle(0, 4, &bytes);
  PutLittle(pixels_at, 4, &bytes);
  PutLittle(40, 4, &bytes);
  PutLittle(options.size.width, 4, &bytes);
  PutLittle(options.top_down ? -options.size.height : options.size.height, 4, &bytes);
  PutLittle(1, 2, &bytes);
  PutLittle(options.bits, 2, &bytes);
  PutLittle(options.compression, 4, &bytes);
  for (int i = 0; i < 5; ++i) PutLittle(0, 4, &bytes);
  for (uint32_t mask : options.masks) PutLittle(mask, 4, &bytes);
  for (uint32_t i = 0; i < colours; ++i) PutLittle(i * 0x050301 + 0x112233, 4, &bytes);
  Append(pixels, &bytes);
  return bytes;
}

inline std::vector<TestPicture> BmpPictures() {
  const ImageSize size = BmpOptions().size;
  std::vector<TestPicture> pictures;
  for (int bits : {1, 4, 8, 16, 24, 32}) {
    for (bool top_down : {false, true}) {
      pictures.push_back({fmt::format("{} bits{}", bits, top_down ? " top-down" : ""),
                          EncodeBmp({.bits = bits, .top_down = top_down}), size});
    }
  }
  pictures.push_back(
      {"565", EncodeBmp({.bits = 16, .compression = 3, .masks = {0xF800, 0x7E0, 31}}), size});
  pictures.push_back(
      {"RGBX", EncodeBmp({.bits = 32, .compression = 3, .masks = {0xFF, 0xFF00, 0xFF0000}}), size});
  const ByteVector rle8 = {5, 7, 0, 3, 1, 2, 3, 0, 0, 0, 4, 9, 0, 2, 3, 1, 6, 8, 0, 1};
  pictures.push_back(
      {"RLE8", EncodeBmp({.size = {4, 8}, .bits = 8, .compression = 1, .pixels = rle8}), {4, 8}});
  const ByteVector rle4 = {5, 0x73, 0, 3, 0x12, 0x30, 0, 0, 4, 0x9A, 0, 2, 3, 1, 6, 0x81, 0, 1};
  pictures.push_back(
      {"RLE4", EncodeBmp({.size = {4, 8}, .bits = 4, .compression = 2, .pixels = rle4}), {4, 8}});
  return pictures;
}

#ifdef BATCHD_HAS_GIF
struct GifOptions {
  ImageSize screen = {17, 23};
  Box frame = {0, 0, 17, 23};
  bool interlaced = false;
  int transparent = -1;
};

inline ByteVector EncodeGif(const GifOptions& options) {
  ByteVector bytes;
  const auto write = [](GifFileType* file, const GifByteType* data, int count) {
    auto* out = static_cast<ByteVector*>(file->UserData);
    out->insert(out->end(), data, data + count);
    return count;
  };
  GifFileType* file = EGifOpen(&bytes, write, nullptr);
  ColorMapObject* map = GifMakeMapObject(64, nullptr);
  for (int i = 0; i < 64; ++i) {
    map->Colors[i] = {static_cast<GifByteType>(4 * i), static_cast<GifByteType>(255 - i),
                      static_cast<GifByteType>(i * 7)};
  }
  EGifSetGifVersion(file, true);
  BATCHD_CHECK(EGifPutScreenDesc(file, options.screen.width, options.screen.height, 6, 0, map) ==
               GIF_OK);
  if (options.transparent >= 0) {
    const GifByteType control[4] = {1, 0, 0, static_cast<GifByteType>(options.transparent)};
    BATCHD_CHECK(EGifPutExtension(file, GRAPHICS_EXT_FUNC_CODE, 4, control) == GIF_OK);
  }
  const Box& frame = options.frame;
  BATCHD_CHECK(EGifPutImageDesc(file, frame.left, frame.top, frame.width, frame.height,
                                options.interlaced, nullptr) == GIF_OK);
  ByteVector indices = TestSamples({frame.height, frame.width}, 1);
  for (uint8_t& index : indices) index /= 4;
  for (int y = 0; y < frame.height; ++y) {  // in the order of the file, interlaced or not
    BATCHD_CHECK(EGifPutLine(file, indices.data() + y * frame.width, frame.width) == GIF_OK);
  }
  GifFreeMapObject(map);
  BATCHD_CHECK(EGifCloseFile(file, nullptr) == GIF_OK);
  return bytes;
}

inline std::vector<TestPicture> GifPictures() {
  const ImageSize size = GifOptions().screen;
  return {
      {"whole", EncodeGif({}), size},
      {"interlaced", EncodeGif({.interlaced = true}), size},
      {"a part of the screen", EncodeGif({.frame = {3, 5, 7, 9}}), size},
      {"transparent and interlaced",
       EncodeGif({.frame = {3, 5, 7, 9}, .interlaced = true, .transparent = 9}), size},
      {"outside of the screen", EncodeGif({.frame = {10, 20, 11, 13}}), {21, 33}},
      {"1x1", EncodeGif({.screen = {1, 1}, .frame = {0, 0, 1, 1}}), {1, 1}},
  };
}
#endif

#ifdef BATCHD_HAS_WEBP
struct WebpOptions {
  ImageSize size = {37, 45};
  bool lossless = false;
  bool has_alpha = false;
};

inline ByteVector EncodeWebp(const WebpOptions& options) {
  const int channels = options.has_alpha ? 4 : 3;
  const ByteVector samples = TestSamples(options.size, channels);
  WebPConfig config;
  WebPPicture picture;
  WebPMemoryWriter writer;
  BATCHD_CHECK(WebPConfigInit(&config) && WebPPictureInit(&picture));
  config.lossless = options.lossless;
  config.exact = 1;
  config.method = 2;
  picture.use_argb = options.lossless;
  picture.width = options.size.width;
  picture.height = options.size.height;
  WebPMemoryWriterInit(&writer);
  picture.writer = WebPMemoryWrite;
  picture.custom_ptr = &writer;
  const int stride = channels * options.size.width;
  BATCHD_CHECK(options.has_alpha ? WebPPictureImportRGBA(&picture, samples.data(), stride)
                                 : WebPPictureImportRGB(&picture, samples.data(), stride));
  BATCHD_CHECK(WebPEncode(&config, &picture));
  ByteVector bytes(writer.mem, writer.mem + writer.size);
  WebPMemoryWriterClear(&writer);
  WebPPictureFree(&picture);
  return bytes;
}

inline ByteVector WebpChunk(const std::string& name, const ByteVector& content) {
  ByteVector chunk(name.begin(), name.end());
  PutLittle(content.size(), 4, &chunk);
  Append(content, &chunk);
  if (content.size() % 2 != 0) chunk.push_back(0);
  return chunk;
}
inline ByteVector WebpFile(const std::vector<ByteVector>& chunks) {
  ByteVector content = {'W', 'E', 'B', 'P'};
  for (const ByteVector& chunk : chunks) Append(chunk, &content);
  return WebpChunk("RIFF", content);
}
inline ByteVector WebpHead(ImageSize canvas, uint8_t flags) {
  ByteVector content = {flags, 0, 0, 0};
  PutLittle(canvas.width - 1, 3, &content);
  PutLittle(canvas.height - 1, 3, &content);
  return WebpChunk("VP8X", content);
}
// Two frames of the same picture, which has no alpha; offsets are even.
inline ByteVector AnimateWebp(const ByteVector& still, ImageSize size, int top, int left,
                              ImageSize canvas) {
  ByteVector frame;
  for (int value : {left / 2, top / 2, size.width - 1, size.height - 1, 100}) {
    PutLittle(value, 3, &frame);
  }
  frame.push_back(0);
  frame.insert(frame.end(), still.begin() + 12, still.end());
  return WebpFile({WebpHead(canvas, 2), WebpChunk("ANIM", ByteVector(6, 255)),
                   WebpChunk("ANMF", frame), WebpChunk("ANMF", frame)});
}

inline std::vector<TestPicture> WebpPictures() {
  const ImageSize size = WebpOptions().size;
  return {
      {"lossy", EncodeWebp({}), size},
      {"lossless", EncodeWebp({.lossless = true}), size},
      {"lossy with alpha", EncodeWebp({.has_alpha = true}), size},
      {"lossless with alpha", EncodeWebp({.lossless = true, .has_alpha = true}), size},
      {"animated", AnimateWebp(EncodeWebp({}), size, 0, 0, size), size},
      {"animated, a part of the canvas",
       AnimateWebp(EncodeWebp({.lossless = true}), size, 6, 4, {50, 60}),
       {50, 60}},
      {"1x1", EncodeWebp({.size = {1, 1}}), {1, 1}},
  };
}
#endif

#ifdef BATCHD_HAS_TIFF
struct TiffOptions {
  ImageSize size = {19, 37};
  int bits = 8;
  int channels = 3;
  int photometric = PHOTOMETRIC_RGB;
  int compression = COMPRESSION_NONE;
  bool planes = false;
  int tile = 0;  // side, 0: strips of 5 rows
  int orientation = 1;
  bool big_endian = false;
};

// A file of libtiff's in memory.
struct TiffMemory {
  ByteVector bytes;
  size_t at = 0;
};

inline TIFF* OpenTiffForWriting(TiffMemory* memory, bool big_endian) {
  return TIFFClientOpen(
      "", big_endian ? "wb" : "wl", memory,
      [](thandle_t user, void* out, tmsize_t count) -> tmsize_t {
        auto* m = static_cast<TiffMemory*>(user);
        count = std::min<tmsize_t>(count, m->bytes.size() - m->at);
        std::memcpy(out, m->bytes.data() + m->at, count);
        m->at += count;
        return count;
      },
      [](thandle_t user, void* data, tmsize_t count) -> tmsize_t {
        auto* m = static_cast<TiffMemory*>(user);
        m->bytes.resize(std::max(m->bytes.size(), m->at + count));
        std::memcpy(m->bytes.data() + m->at, data, count);
        m->at += count;
        return count;
      },
      [](thandle_t user, toff_t offset, int whence) -> toff_t {
        auto* m = static_cast<TiffMemory*>(user);
        m->at = offset + (whence == SEEK_CUR ? m->at : whence == SEEK_END ? m->bytes.size() : 0);
        return m->at;
      },
      [](thandle_t) { return 0; },
      [](thandle_t user) -> toff_t { return static_cast<TiffMemory*>(user)->bytes.size(); },
      nullptr, nullptr);
}

inline void WriteTiffPixels(TIFF* tiff, const TiffOptions& options) {
  const int planes = options.planes ? options.channels : 1;
  for (int plane = 0; plane < planes; ++plane) {
    if (options.tile == 0) {
      const int row_bytes = static_cast<int>(TIFFScanlineSize(tiff));
      ByteVector samples = TestSamples({options.size.height, row_bytes}, 1);
      for (int y = 0; y < options.size.height; ++y) {
        BATCHD_CHECK(TIFFWriteScanline(tiff, samples.data() + y * row_bytes, y, plane) == 1);
      }
      continue;
    }
    ByteVector samples = TestSamples({options.tile, static_cast<int>(TIFFTileRowSize(tiff))}, 1);
    for (int y = 0; y < options.size.height; y += options.tile) {
      for (int x = 0; x < options.size.width; x += options.tile) {
        BATCHD_CHECK(TIFFWriteTile(tiff, samples.data(), x, y, 0, plane) > 0);
        samples[0] += 17;
      }
    }
  }
}

inline ByteVector EncodeTiff(const TiffOptions& options) {
  TiffMemory memory;
  TIFF* tiff = OpenTiffForWriting(&memory, options.big_endian);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, options.size.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, options.size.height);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, options.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, options.channels);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, options.photometric);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, options.compression);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, options.orientation);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG,
               options.planes ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  if (options.photometric == PHOTOMETRIC_YCBCR) {
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  }
  if (options.tile != 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, options.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, options.tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, options.compression == COMPRESSION_JPEG ? 16 : 5);
  }
  std::vector<uint16_t> colours(3 << options.bits);
  for (size_t i = 0; i < colours.size(); ++i) colours[i] = static_cast<uint16_t>(i * 321 + 77);
  if (options.photometric == PHOTOMETRIC_PALETTE) {
    const size_t count = size_t{1} << options.bits;
    TIFFSetField(tiff, TIFFTAG_COLORMAP, colours.data(), colours.data() + count,
                 colours.data() + 2 * count);
  }
  if (options.channels == 4 && options.photometric == PHOTOMETRIC_RGB) {
    uint16_t alpha = EXTRASAMPLE_UNASSALPHA;
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &alpha);
  }
  WriteTiffPixels(tiff, options);
  TIFFClose(tiff);
  return memory.bytes;
}

inline std::vector<TestPicture> TiffPictures() {
  const ImageSize size = TiffOptions().size;
  const auto of = [&](const std::string& name, const TiffOptions& options) {
    return TestPicture{name, EncodeTiff(options), size};
  };
  constexpr int kGrey = PHOTOMETRIC_MINISBLACK;
  return {
      of("RGB", {}),
      of("LZW", {.compression = COMPRESSION_LZW}),
      of("Deflate, MM", {.compression = COMPRESSION_ADOBE_DEFLATE, .big_endian = true}),
      of("PackBits, planes", {.compression = COMPRESSION_PACKBITS, .planes = true}),
      of("RGBA", {.channels = 4}),
      of("16 bits, MM", {.bits = 16, .big_endian = true}),
      of("tiles", {.compression = COMPRESSION_LZW, .tile = 16}),
      of("tiles, planes", {.planes = true, .tile = 16}),
      of("CMYK", {.channels = 4, .photometric = PHOTOMETRIC_SEPARATED}),
      of("CMYK, planes", {.channels = 4, .photometric = PHOTOMETRIC_SEPARATED, .planes = true}),
      of("grey of 1 bit", {.bits = 1, .channels = 1, .photometric = PHOTOMETRIC_MINISWHITE}),
      of("fax",
         {.bits = 1, .channels = 1, .photometric = kGrey, .compression = COMPRESSION_CCITTFAX4}),
      of("grey of 4 bits", {.bits = 4, .channels = 1, .photometric = kGrey}),
      of("grey of 16 bits", {.bits = 16, .channels = 1, .photometric = kGrey}),
      of("grey and alpha", {.channels = 2, .photometric = kGrey}),
      of("palette of 8 bits", {.channels = 1, .photometric = PHOTOMETRIC_PALETTE}),
      of("palette of 2 bits", {.bits = 2, .channels = 1, .photometric = PHOTOMETRIC_PALETTE}),
      of("JPEG", {.photometric = PHOTOMETRIC_YCBCR, .compression = COMPRESSION_JPEG}),
      of("JPEG, tiles",
         {.photometric = PHOTOMETRIC_YCBCR, .compression = COMPRESSION_JPEG, .tile = 32}),
  };
}
#endif

#ifdef BATCHD_HAS_AVIF
struct AvifOptions {
  ImageSize size = {29, 43};
  avifPixelFormat format = AVIF_PIXEL_FORMAT_YUV444;
  int depth = 8;
  bool has_alpha = false;
  int frames = 1;
  int rotation = 0;
};

inline ByteVector EncodeAvif(const AvifOptions& options) {
  avifImage* image =
      avifImageCreate(options.size.width, options.size.height, options.depth, options.format);
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, image);
  rgb.depth = 8;
  rgb.format = options.has_alpha ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
  const int channels = options.has_alpha ? 4 : 3;
  ByteVector samples = TestSamples(options.size, channels);
  rgb.pixels = samples.data();
  rgb.rowBytes = channels * options.size.width;
  BATCHD_CHECK(avifImageRGBToYUV(image, &rgb) == AVIF_RESULT_OK);
  if (options.rotation != 0) {
    image->transformFlags = AVIF_TRANSFORM_IROT;
    image->irot.angle = options.rotation;
  }
  avifEncoder* encoder = avifEncoderCreate();
  encoder->speed = 10;
  encoder->maxThreads = 1;
  avifRWData out = AVIF_DATA_EMPTY;
  const avifAddImageFlags flags =
      options.frames == 1 ? AVIF_ADD_IMAGE_FLAG_SINGLE : AVIF_ADD_IMAGE_FLAG_NONE;
  for (int i = 0; i < options.frames; ++i) {
    BATCHD_CHECK(avifEncoderAddImage(encoder, image, 1, flags) == AVIF_RESULT_OK);
  }
  BATCHD_CHECK(avifEncoderFinish(encoder, &out) == AVIF_RESULT_OK);
  ByteVector bytes(out.data, out.data + out.size);
  avifRWDataFree(&out);
  avifEncoderDestroy(encoder);
  avifImageDestroy(image);
  return bytes;
}

inline std::vector<TestPicture> AvifPictures() {
  const ImageSize size = AvifOptions().size;
  return {
      {"4:4:4", EncodeAvif({}), size},
      {"4:2:0", EncodeAvif({.format = AVIF_PIXEL_FORMAT_YUV420}), size},
      {"grey", EncodeAvif({.format = AVIF_PIXEL_FORMAT_YUV400}), size},
      {"10 bits with alpha", EncodeAvif({.depth = 10, .has_alpha = true}), size},
      {"sequence", EncodeAvif({.format = AVIF_PIXEL_FORMAT_YUV420, .frames = 2}), size},
  };
}
#endif

#ifdef BATCHD_HAS_JP2
struct Jp2Options {
  ImageSize size = {31, 47};
  int channels = 3;
  int bits = 8;
  bool boxed = true;
  bool lossy = false;
  int tile = 0;  // side, 0: none
  int layers = 1;
  int block = 64;  // side
};

inline ByteVector EncodeJp2(const Jp2Options& options) {
  std::vector<opj_image_cmptparm_t> parameters(options.channels);
  for (opj_image_cmptparm_t& p : parameters) {
    p = {};
    p.dx = p.dy = 1;
    p.w = options.size.width;
    p.h = options.size.height;
    p.prec = options.bits;
  }
  opj_image_t* image = opj_image_create(options.channels, parameters.data(),
                                        options.channels >= 3 ? OPJ_CLRSPC_SRGB : OPJ_CLRSPC_GRAY);
  image->x1 = options.size.width;
  image->y1 = options.size.height;
  const ByteVector samples = TestSamples(options.size, options.channels);
  for (size_t i = 0; i < samples.size(); ++i) {
    const int value = options.bits > 8 ? samples[i] << (options.bits - 8) | samples[i] >> 2
                                       : samples[i] >> (8 - options.bits);
    image->comps[i % options.channels].data[i / options.channels] = value;
  }
  opj_cparameters_t encoding;
  opj_set_default_encoder_parameters(&encoding);
  encoding.tcp_numlayers = options.layers;
  for (int i = 0; i < options.layers; ++i) {
    encoding.tcp_rates[i] = options.lossy ? 4.0f * (options.layers - i) : 0;
  }
  encoding.cp_disto_alloc = 1;
  encoding.irreversible = options.lossy;
  encoding.numresolution = options.size.width == 1 ? 1 : 4;
  encoding.cblockw_init = encoding.cblockh_init = options.block;
  encoding.tcp_mct = options.channels >= 3;
  if (options.tile != 0) {
    encoding.tile_size_on = OPJ_TRUE;
    encoding.cp_tdx = encoding.cp_tdy = options.tile;
  }
  struct Memory {
    ByteVector bytes;
    size_t at = 0;
  } memory;
  opj_codec_t* codec = opj_create_compress(options.boxed ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K);
  opj_stream_t* stream = opj_stream_create(1 << 16, OPJ_FALSE);
  opj_stream_set_user_data(stream, &memory, nullptr);
  opj_stream_set_write_function(stream, [](void* data, OPJ_SIZE_T count, void* user) {
    auto* m = static_cast<Memory*>(user);
    m->bytes.resize(std::max(m->bytes.size(), m->at + count));
    std::memcpy(m->bytes.data() + m->at, data, count);
    m->at += count;
    return count;
  });
  opj_stream_set_skip_function(stream, [](OPJ_OFF_T count, void* user) {
    static_cast<Memory*>(user)->at += count;
    return count;
  });
  opj_stream_set_seek_function(stream, [](OPJ_OFF_T to, void* user) -> OPJ_BOOL {
    static_cast<Memory*>(user)->at = to;
    return OPJ_TRUE;
  });
  BATCHD_CHECK(opj_setup_encoder(codec, &encoding, image) &&
               opj_start_compress(codec, image, stream) && opj_encode(codec, stream) &&
               opj_end_compress(codec, stream));
  opj_stream_destroy(stream);
  opj_destroy_codec(codec);
  opj_image_destroy(image);
  return memory.bytes;
}

inline std::vector<TestPicture> Jp2Pictures() {
  const ImageSize size = Jp2Options().size;
  return {
      {"lossless", EncodeJp2({}), size},
      {"grey, bare", EncodeJp2({.channels = 1, .boxed = false}), size},
      {"RGBA", EncodeJp2({.channels = 4}), size},
      {"16 bits", EncodeJp2({.channels = 1, .bits = 16}), size},
      {"4 bits", EncodeJp2({.channels = 1, .bits = 4}), size},
      {"tiles", EncodeJp2({.tile = 20, .block = 16}), size},
      {"lossy, layers", EncodeJp2({.lossy = true, .layers = 3}), size},
      {"1x1", EncodeJp2({.size = {1, 1}, .channels = 1}), {1, 1}},
  };
}
#endif

}  // namespace batchd
