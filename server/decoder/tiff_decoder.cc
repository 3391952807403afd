// SPDX-License-Identifier: Apache-2.0
//
// The first page of a TIFF, through libtiff's decompression alone: what samples mean is decided
// here, since libtiff's own conversion to RGB multiplies colours by alpha.
//
// libtiff reads whatever a file lists, so what it lists is added up first.

#include <tiffio.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/exif.h"
#include "server/decoder/jpeg_scan.h"
#include "server/decoder/mask_row.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

// What a page may have decompressed, padding and unused channels included: 50 megapixels of four
// channels of 16 bits, and some more. Decompressing takes below 3 s then, on one core.
constexpr int64_t kDecompressedBytesMax = int64_t{448} << 20;
// Of JPEG inside of TIFF: pixels times scans, as in jpeg_decoder.cc.
constexpr int64_t kPixelScansMax = int64_t{12} << 26;
constexpr int kChannelsMax = 8;

bool Matches(Bytes bytes) {
  return bytes.size() >= 4 &&
         (std::memcmp(bytes.data(), "II*\0", 4) == 0 || std::memcmp(bytes.data(), "MM\0*", 4) == 0);
}

// The bytes as libtiff's file, and where it says what is wrong.
struct Input {
  Bytes bytes;
  size_t at = 0;
  char text[160] = {};  // the first error
  // A strip or tile is a JPEG of another size. libtiff goes on, and leaves what is missing as it
  // was.
  bool is_misfit = false;
};

tmsize_t OnRead(thandle_t handle, void* out, tmsize_t count) {
  auto* const input = static_cast<Input*>(handle);
  if (count <= 0 || input->at >= input->bytes.size()) return 0;
  const size_t given = std::min(static_cast<size_t>(count), input->bytes.size() - input->at);
  std::memcpy(out, input->bytes.data() + input->at, given);
  input->at += given;
  return static_cast<tmsize_t>(given);
}
tmsize_t OnWrite(thandle_t, void*, tmsize_t) { return 0; }
toff_t OnSeek(thandle_t handle, toff_t offset, int whence) {
  auto* const input = static_cast<Input*>(handle);
  if (whence == SEEK_CUR) offset += input->at;
  if (whence == SEEK_END) offset += input->bytes.size();
  input->at = static_cast<size_t>(offset);
  return offset;
}
int OnClose(thandle_t) { return 0; }
toff_t OnSize(thandle_t handle) { return static_cast<Input*>(handle)->bytes.size(); }
int OnMap(thandle_t handle, void** base, toff_t* size) {
  const Bytes bytes = static_cast<Input*>(handle)->bytes;
  *base = const_cast<uint8_t*>(bytes.data());  // opened for reading
  *size = bytes.size();
  return 1;
}
void OnUnmap(thandle_t, void*, toff_t) {}

int OnError(TIFF*, void* user, const char*, const char* format, std::va_list arguments) {
  auto* const input = static_cast<Input*>(user);
  if (input->text[0] == 0) std::vsnprintf(input->text, sizeof(input->text), format, arguments);
  return 1;
}
int OnWarning(TIFF*, void* user, const char*, const char* format, std::va_list) {
  auto* const input = static_cast<Input*>(user);
  input->is_misfit |= std::strstr(format, "Improper JPEG strip/tile size") != nullptr;
  return 1;
}

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
struct FreeOptions {
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
};

// How the samples of a page lie and what they mean.
struct Layout {
  uint32_t width = 0;
  uint32_t height = 0;
  uint16_t bits = 1;      // of a sample
  uint16_t channels = 1;  // stored
  uint16_t photometric = PHOTOMETRIC_MINISBLACK;
  uint16_t compression = COMPRESSION_NONE;
  bool planes = false;  // each channel by itself
  bool tiled = false;
  int used_channels = 1;  // of those stored: 1, 3 or 4 (CMYK)
};

bool IsCompressionKnown(uint16_t compression) {
  switch (compression) {
    case COMPRESSION_NONE:
    case COMPRESSION_CCITTRLE:
    case COMPRESSION_CCITTFAX3:
    case COMPRESSION_CCITTFAX4:
    case COMPRESSION_LZW:
    case COMPRESSION_JPEG:
    case COMPRESSION_ADOBE_DEFLATE:
    case COMPRESSION_DEFLATE:
    case COMPRESSION_PACKBITS:
    case COMPRESSION_ZSTD:
      return TIFFIsCODECConfigured(compression) != 0;
    default:
      return false;
  }
}

class TiffReader {
 public:
  explicit TiffReader(Bytes bytes) { input_.bytes = bytes; }
  TiffReader(const TiffReader&) = delete;
  TiffReader& operator=(const TiffReader&) = delete;

  absl::Status ReadHeader() {
    const std::optional<TiffFolder> folder = ReadTiffFolder(input_.bytes);
    const int64_t size_bytes = input_.bytes.size();
    if (!folder.has_value() || folder->pixel_tags_end > size_bytes) {
      return SampleErr(SampleReason::kTruncated, "{} bytes end in the tags of the first page",
                       size_bytes);
    }
    if (folder->values_bytes > size_bytes) {
      return SampleErr(SampleReason::kCorrupt, "tags with {} bytes of values in {} bytes",
                       folder->values_bytes, size_bytes);
    }
    const std::unique_ptr<TIFFOpenOptions, FreeOptions> options(TIFFOpenOptionsAlloc());
    if (options == nullptr) return NoMemory();
    TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kDecompressedBytesMax);
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), OnError, &input_);
    TIFFOpenOptionsSetWarningHandlerExtR(options.get(), OnWarning, &input_);
    // c: one long strip stays one.
    tiff_.reset(TIFFClientOpenExt("", "rc", &input_, OnRead, OnWrite, OnSeek, OnClose, OnSize,
                                  OnMap, OnUnmap, options.get()));
    if (tiff_ == nullptr) return Corrupt();
    return ReadLayout();
  }

  const Layout& layout() const { return layout_; }

  // Whether a pixel is one index or one grey level, of 8 bits at most and stored without loss.
  bool is_mask() const {
    return layout_.channels == 1 && layout_.bits <= 8 && layout_.compression != COMPRESSION_JPEG;
  }

  // The samples of the region, 8 bits each and used_channels together, then as rows of RGB or, of
  // a mask, of numbers.
  absl::Status Decode(const Box& region, bool as_mask, Scratch* scratch, RowSink* sink) {
    BATCHD_RETURN_IF_ERROR(CheckCost());
    BATCHD_RETURN_IF_ERROR(ReadPalette());
    const int64_t unit_bytes = layout_.tiled ? TIFFTileSize64(tiff_.get()) : ScanlineBytes();
    const size_t rgb_bytes = Rounded(size_t{3} * region.width);
    const size_t samples_bytes =
        Rounded(size_t(layout_.used_channels) * region.width * region.height);
    uint8_t* const rgb = scratch->Get(ScratchArea::kDecoder,
                                      rgb_bytes + samples_bytes + static_cast<size_t>(unit_bytes));
    samples_ = rgb + rgb_bytes;
    unit_ = samples_ + samples_bytes;
    region_ = region;
    const int plane_count = layout_.planes ? layout_.used_channels : 1;
    int good_rows = region.height;
    absl::Status status;
    for (int plane = 0; plane < plane_count; ++plane) {
      int rows = 0;
      const absl::Status read =
          layout_.tiled ? ReadTiles(plane, unit_bytes, &rows) : ReadStrips(plane, &rows);
      good_rows = std::min(good_rows, rows);
      if (status.ok()) status = read;
    }
    for (int y = 0; y < good_rows; ++y) {
      uint8_t* const samples = samples_ + size_t(y) * region.width * layout_.used_channels;
      if (as_mask) {
        for (int x = 0; x < region.width; ++x) samples[x] = MaskValue(samples[x]);
        TripleRow(samples, region.width, rgb);
      } else {
        ConvertRow(samples, rgb);
      }
      sink->PutRows(rgb, 0, 1);
    }
    return status;
  }

 private:
  static size_t Rounded(size_t size_bytes) { return (size_bytes + 63) & ~size_t{63}; }

  static absl::Status NoMemory() {
    return Err(absl::StatusCode::kResourceExhausted, "no memory to decode a TIFF");
  }

  absl::Status Corrupt() const {
    if (input_.is_misfit) {
      return SampleErr(SampleReason::kCorrupt, "a strip or tile is a JPEG of another size");
    }
    return SampleErr(SampleReason::kCorrupt, "{}",
                     input_.text[0] != 0 ? input_.text : "not a valid TIFF");
  }

  int64_t ScanlineBytes() const { return static_cast<int64_t>(TIFFScanlineSize64(tiff_.get())); }

  uint16_t Short(uint32_t tag) const {
    uint16_t value = 0;
    TIFFGetFieldDefaulted(tiff_.get(), tag, &value);
    return value;
  }

  absl::Status ReadLayout() {
    TIFF* const tiff = tiff_.get();
    TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &layout_.width);
    TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &layout_.height);
    layout_.bits = Short(TIFFTAG_BITSPERSAMPLE);
    layout_.channels = Short(TIFFTAG_SAMPLESPERPIXEL);
    layout_.compression = Short(TIFFTAG_COMPRESSION);
    layout_.planes = layout_.channels > 1 && Short(TIFFTAG_PLANARCONFIG) == PLANARCONFIG_SEPARATE;
    layout_.tiled = TIFFIsTiled(tiff) != 0;
    if (TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &layout_.photometric) == 0) {
      layout_.photometric = PHOTOMETRIC_MINISBLACK;
    }
    if (!IsCompressionKnown(layout_.compression)) {
      return SampleErr(SampleReason::kUnsupported, "a TIFF of compression {}", layout_.compression);
    }
    if (layout_.compression == COMPRESSION_JPEG && layout_.photometric == PHOTOMETRIC_YCBCR &&
        !layout_.planes) {
      TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
      layout_.photometric = PHOTOMETRIC_RGB;
    }
    switch (layout_.photometric) {
      case PHOTOMETRIC_MINISWHITE:
      case PHOTOMETRIC_MINISBLACK:
      case PHOTOMETRIC_PALETTE:
        layout_.used_channels = 1;
        break;
      case PHOTOMETRIC_RGB:
        layout_.used_channels = 3;
        break;
      case PHOTOMETRIC_SEPARATED:
        layout_.used_channels = 4;
        break;
      default:
        return SampleErr(SampleReason::kUnsupported, "a TIFF of colour space {}",
                         layout_.photometric);
    }
    return CheckSamples();
  }

  absl::Status CheckSamples() const {
    const uint16_t format = Short(TIFFTAG_SAMPLEFORMAT);
    const uint16_t bits = layout_.bits;
    const bool is_palette = layout_.photometric == PHOTOMETRIC_PALETTE;
    const bool bits_fit = bits == 8 || (bits == 16 && !is_palette) ||
                          (layout_.used_channels == 1 && (bits == 1 || bits == 2 || bits == 4));
    if (!bits_fit || (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID)) {
      return SampleErr(SampleReason::kUnsupported,
                       "samples of {} bits, format {}; unsigned ones of 1, 2, 4, 8 and 16 bits are "
                       "handled",
                       bits, format);
    }
    if (layout_.channels < layout_.used_channels || layout_.channels > kChannelsMax) {
      return SampleErr(SampleReason::kUnsupported, "{} channels of colour space {}",
                       layout_.channels, layout_.photometric);
    }
    return absl::OkStatus();
  }

  // What is told from the tags: strips that lie in the file once, and what they would become.
  absl::Status CheckCost() const {
    TIFF* const tiff = tiff_.get();
    const uint32_t count = layout_.tiled ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff);
    const auto unit_bytes =
        static_cast<double>(layout_.tiled ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff));
    const double planes = layout_.planes ? layout_.channels : 1;
    const double total = layout_.tiled
                             ? unit_bytes * count
                             : static_cast<double>(ScanlineBytes()) * layout_.height * planes;
    if (unit_bytes < 1) return Corrupt();
    if (total > kDecompressedBytesMax) {
      return SampleErr(SampleReason::kTooLarge,
                       "{} strips or tiles of {} bytes in all; the limit is {}", count,
                       static_cast<int64_t>(total), kDecompressedBytesMax);
    }
    const int64_t pixels_each = int64_t{layout_.width} * layout_.height / std::max(count, 1u) + 1;
    uint64_t stored_bytes = 0;
    int64_t pixel_scans = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t size = TIFFGetStrileByteCount(tiff, i);
      stored_bytes += std::min<uint64_t>(size, uint64_t{1} << 40);
      if (stored_bytes > 2 * input_.bytes.size()) {
        return SampleErr(SampleReason::kCorrupt, "strips of more bytes than the file's {}",
                         input_.bytes.size());
      }
      const uint64_t at = TIFFGetStrileOffset(tiff, i);
      if (layout_.compression != COMPRESSION_JPEG || at > input_.bytes.size()) continue;
      const Bytes rest = input_.bytes.subspan(at);
      const Bytes strip = rest.first(std::min<uint64_t>(size, rest.size()));
      const int64_t unit_pixels = layout_.tiled ? static_cast<int64_t>(unit_bytes) : pixels_each;
      pixel_scans += SurveyJpegScans(strip).count * unit_pixels;
    }
    if (pixel_scans > kPixelScansMax) {
      return SampleErr(SampleReason::kTooLarge,
                       "JPEG scans over {} pixels; the limit is {} over all scans", pixel_scans,
                       kPixelScansMax);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPalette() {
    if (layout_.photometric != PHOTOMETRIC_PALETTE) return absl::OkStatus();
    uint16_t* channels[3] = {};
    if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &channels[0], &channels[1], &channels[2]) ==
        0) {
      return SampleErr(SampleReason::kCorrupt, "a palette picture without a palette");
    }
    for (size_t i = 0; i < size_t{1} << layout_.bits; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        palette_[3 * i + c] = static_cast<uint8_t>(channels[c][i] >> 8);
      }
    }
    return absl::OkStatus();
  }

  // Of a strip or tile that could not be read.
  absl::Status ErrorAt(uint32_t unit) const {
    const uint64_t at = TIFFGetStrileOffset(tiff_.get(), unit);
    const uint64_t size = TIFFGetStrileByteCount(tiff_.get(), unit);
    const uint64_t file = input_.bytes.size();
    if (at > file || size > file - at) {
      return SampleErr(SampleReason::kTruncated, "{} bytes end in strip or tile {}, at byte {}",
                       file, unit, at);
    }
    return Corrupt();
  }

  // Line by line, from the first line of the strip that the region begins in.
  absl::Status ReadStrips(int plane, int* good_rows) {
    uint32_t rows_per_strip = layout_.height;
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &rows_per_strip);
    rows_per_strip = std::clamp(rows_per_strip, 1u, layout_.height);
    const auto top = static_cast<uint32_t>(region_.top);
    const auto sample = static_cast<uint16_t>(plane);
    const int64_t line_bytes = ScanlineBytes();
    for (uint32_t y = top / rows_per_strip * rows_per_strip; y < top + region_.height; ++y) {
      // Not all that is damaged is an error to libtiff, and what it leaves out must not be what an
      // earlier picture has left.
      std::memset(unit_, 0, static_cast<size_t>(line_bytes));
      if (TIFFReadScanline(tiff_.get(), unit_, y, sample) < 0 || input_.is_misfit) {
        return ErrorAt(TIFFComputeStrip(tiff_.get(), y, sample));
      }
      if (y < top) continue;
      Unpack(unit_, 0, static_cast<int>(y) - region_.top, plane, 0, region_.width);
      ++*good_rows;
    }
    return absl::OkStatus();
  }

  absl::Status ReadTiles(int plane, int64_t tile_bytes, int* good_rows) {
    uint32_t width = 0;
    uint32_t height = 0;
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &width);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &height);
    if (width < 1 || height < 1) return Corrupt();
    const int64_t bottom = region_.top + region_.height;
    const int64_t right = region_.left + region_.width;
    for (int64_t y = region_.top / height * height; y < bottom; y += height) {
      const int64_t first = std::max<int64_t>(y, region_.top);
      const int64_t last = std::min<int64_t>(y + height, bottom);
      for (int64_t x = region_.left / width * width; x < right; x += width) {
        const uint32_t tile =
            TIFFComputeTile(tiff_.get(), static_cast<uint32_t>(x), static_cast<uint32_t>(y), 0,
                            static_cast<uint16_t>(plane));
        std::memset(unit_, 0, static_cast<size_t>(tile_bytes));
        // Less than a whole tile is an error, too.
        if (TIFFReadEncodedTile(tiff_.get(), tile, unit_, tile_bytes) != tile_bytes ||
            input_.is_misfit) {
          return ErrorAt(tile);
        }
        const auto begin = static_cast<int>(std::max<int64_t>(x, region_.left) - region_.left);
        const auto end = static_cast<int>(std::min<int64_t>(x + width, right) - region_.left);
        for (int64_t row = first; row < last; ++row) {
          const uint8_t* line = unit_ + (row - y) * (tile_bytes / height);
          Unpack(line, x, static_cast<int>(row) - region_.top, plane, begin, end);
        }
      }
      *good_rows += static_cast<int>(last - first);
    }
    return absl::OkStatus();
  }

  // Columns [begin, end) of row `row` of the region, from a line whose first pixel is column
  // `line_left` of the picture. 16 bits by the high byte; libtiff has them in the machine's order.
  void Unpack(const uint8_t* line, int64_t line_left, int row, int plane, int begin, int end) {
    const int used = layout_.used_channels;
    const int stored = layout_.planes ? 1 : layout_.channels;
    const int copied = layout_.planes ? 1 : used;
    uint8_t* out = samples_ + (int64_t{row} * region_.width + begin) * used + plane;
    for (int column = begin; column < end; ++column, out += used) {
      const int64_t first = (region_.left + column - line_left) * stored;
      for (int c = 0; c < copied; ++c) out[c] = Sample(line, first + c);
    }
  }

  uint8_t Sample(const uint8_t* line, int64_t i) const {
    const int bits = layout_.bits;
    if (bits == 8) return line[i];
    if (bits == 16) {
      uint16_t value;
      std::memcpy(&value, line + 2 * i, 2);
      return static_cast<uint8_t>(value >> 8);
    }
    return PackedValue(line, i, bits);
  }

  // As in a PNG: grey levels of 2 and 4 bits are spread over 0 to 255, those of 1 bit are 0 and 1.
  uint8_t MaskValue(uint8_t sample) const {
    if (layout_.photometric == PHOTOMETRIC_PALETTE) return sample;
    const int step = layout_.bits == 2 ? 85 : layout_.bits == 4 ? 17 : 1;
    const int white = layout_.bits == 1 ? 1 : 255;
    const int level = sample * step;
    return static_cast<uint8_t>(layout_.photometric == PHOTOMETRIC_MINISWHITE ? white - level
                                                                              : level);
  }

  void ConvertRow(const uint8_t* in, uint8_t* rgb) const {
    const int maximum = layout_.bits >= 8 ? 255 : (1 << layout_.bits) - 1;
    for (int x = 0; x < region_.width; ++x, in += layout_.used_channels, rgb += 3) {
      switch (layout_.photometric) {
        case PHOTOMETRIC_RGB:
          std::memcpy(rgb, in, 3);
          break;
        case PHOTOMETRIC_SEPARATED:
          for (int c = 0; c < 3; ++c) {  // Pillow's: 255 - K - (255 - K) * C / 255, rounding
            const int light = 255 - in[3];
            const int product = in[c] * light + 128;
            rgb[c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8));
          }
          break;
        case PHOTOMETRIC_PALETTE:
          std::memcpy(rgb, &palette_[3 * size_t{in[0]}], 3);
          break;
        default: {
          const int grey = in[0] * (255 / maximum);
          std::memset(rgb, layout_.photometric == PHOTOMETRIC_MINISWHITE ? 255 - grey : grey, 3);
        }
      }
    }
  }

  Input input_;
  std::unique_ptr<TIFF, CloseTiff> tiff_;
  Layout layout_;
  std::array<uint8_t, 3 * 256> palette_ = {};
  Box region_;
  uint8_t* samples_ = nullptr;  // of the region
  uint8_t* unit_ = nullptr;     // a line or a tile as libtiff gives it
};

class TiffDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    as_mask_ = limits.as_mask;
    TiffReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    if (as_mask_ && !reader.is_mask()) {
      return SampleErr(
          SampleReason::kUnsupported,
          "a TIFF of {} channels, {} bits and compression {} as a mask; masks have one "
          "channel, 8 bits at most, and no compression by JPEG",
          reader.layout().channels, reader.layout().bits, reader.layout().compression);
    }
    return CheckedSize(reader.layout().height, reader.layout().width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    TiffReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    BATCHD_CHECK(LiesInside(region, {static_cast<int>(reader.layout().height),
                                     static_cast<int>(reader.layout().width)}));
    return reader.Decode(region, as_mask_, scratch, sink);
  }

  int Orientation(Bytes bytes) override { return ExifOrientation(bytes); }

 private:
  bool as_mask_ = false;
};

// "LIBTIFF, Version 4.5.0", and then the copyright.
std::string Build() {
  std::string text = TIFFGetVersion();
  return text.substr(0, text.find('\n'));
}

}  // namespace

extern const DecoderKind kTiffDecoder;
const DecoderKind kTiffDecoder = {
    .name = "tiff",
    .sentence = "The first page of a TIFF: grey, palette, RGB and CMYK of 1 to 16 bits.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<TiffDecoder>(); },
    .build = Build,
    .has_masks = true,
};

}  // namespace batchd
