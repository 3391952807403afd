// SPDX-License-Identifier: Apache-2.0
//
// PNG through libspng.
//
// libspng is shown the critical chunks only. What else a PNG may hold (profiles, gamma, texts, a
// transparent colour) must not change pixels here, so it must not be able to break a picture
// either, nor cost memory: a text chunk may inflate to any size.

#include <spng.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/exif.h"
#include "server/decoder/mask_row.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

constexpr std::array<uint8_t, 8> kSignature = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr size_t kFrameBytes = 12;  // Length, type and checksum around the data of a chunk.

// Columns of a row of the file.
struct Pass {
  size_t first;
  size_t step;
};
constexpr Pass kOnePass = {0, 1};
constexpr Pass kPasses[] = {{0, 8}, {4, 8}, {0, 4}, {2, 4}, {0, 2}, {1, 2}, {0, 1}};  // Adam7

// Also a cut-off signature: that is a truncated PNG.
bool Matches(Bytes bytes) {
  const size_t count = std::min(bytes.size(), kSignature.size());
  return count >= 4 && std::memcmp(bytes.data(), kSignature.data(), count) == 0;
}

uint32_t BigEndian32(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// Gives libspng the signature and the critical chunks. A chunk is checked as a whole before the
// first byte of it is given: a row that has been handed on cannot be taken back.
class ChunkReader {
 public:
  ChunkReader(Bytes bytes, bool goes_on_over_damage)
      : bytes_(bytes),
        goes_on_over_damage_(goes_on_over_damage),
        given_until_(std::min(bytes.size(), kSignature.size())) {}

  // Copies the next `size` bytes; false once there is nothing more to give, see failure().
  bool Read(uint8_t* out, size_t size) {
    while (size > 0) {
      if (at_ == given_until_ && !EnterNextChunk()) return false;
      const size_t count = std::min(size, given_until_ - at_);
      std::memcpy(out, bytes_.data() + at_, count);
      at_ += count;
      out += count;
      size -= count;
    }
    return true;
  }

  // The first thing that was wrong.
  const std::optional<absl::Status>& failure() const { return failure_; }

 private:
  bool Fail(const absl::Status& status) {
    if (!failure_.has_value()) failure_ = status;
    return false;
  }

  // Moves to the next critical chunk and checks it.
  bool EnterNextChunk() {
    while (true) {
      const size_t left = bytes_.size() - at_;
      const uint8_t* chunk = bytes_.data() + at_;
      if (left < kFrameBytes || BigEndian32(chunk) > left - kFrameBytes) {
        Fail(SampleErr(SampleReason::kTruncated, "{} bytes end in the chunk at byte {}",
                       bytes_.size(), at_));
        given_until_ = bytes_.size();
        return goes_on_over_damage_ && left > kFrameBytes && (chunk[4] & 0x20) == 0;
      }
      const size_t length = BigEndian32(chunk);
      const bool is_critical = (chunk[4] & 0x20) == 0;
      if (!is_critical) {
        at_ += kFrameBytes + length;
        continue;
      }
      const uint8_t* type = chunk + 4;
      const uint32_t checksum = crc32(0, type, static_cast<uInt>(4 + length));
      if (checksum != BigEndian32(type + 4 + length)) {
        Fail(SampleErr(SampleReason::kCorrupt,
                       "the chunk at byte {} has the checksum {:08x}, not {:08x}", at_, checksum,
                       BigEndian32(type + 4 + length)));
        if (!goes_on_over_damage_) return false;
      }
      given_until_ = at_ + kFrameBytes + length;
      return true;
    }
  }

  const Bytes bytes_;
  const bool goes_on_over_damage_;
  size_t at_ = 0;
  size_t given_until_;
  std::optional<absl::Status> failure_;
};

int ReadForSpng(spng_ctx*, void* user, void* out, size_t size) {
  return static_cast<ChunkReader*>(user)->Read(static_cast<uint8_t*>(out), size) ? SPNG_OK
                                                                                 : SPNG_IO_EOF;
}

// One picture being read; a context of libspng cannot be used again.
class PngReader {
 public:
  explicit PngReader(Bytes bytes, bool goes_on_over_damage = false)
      : chunks_(bytes, goes_on_over_damage), context_(spng_ctx_new(0)) {}

  absl::Status ReadHeader() {
    if (context_ == nullptr) return ErrorOf(SPNG_EMEM);
    // Checksums have been verified when libspng sees a chunk.
    spng_set_crc_action(context_.get(), SPNG_CRC_USE, SPNG_CRC_USE);
    int code = spng_set_png_stream(context_.get(), ReadForSpng, &chunks_);
    if (code == SPNG_OK) code = spng_get_ihdr(context_.get(), &header_);
    return code == SPNG_OK ? absl::OkStatus() : ErrorOf(code);
  }

  const spng_ihdr& header() const { return header_; }

  // libspng reads one byte of the next row along with each row.
  absl::Status DecodeByRows(const Box& region, Scratch* scratch, RowSink* sink) {
    int code =
        spng_decode_image(context_.get(), nullptr, 0, SPNG_FMT_RGB8, SPNG_DECODE_PROGRESSIVE);
    if (code != SPNG_OK) return ErrorOf(code);
    const size_t row_bytes = size_t{3} * header_.width;
    uint8_t* row = scratch->Get(ScratchArea::kDecoder, row_bytes);
    for (int y = 0; y < region.top + region.height; ++y) {
      code = spng_decode_row(context_.get(), row, row_bytes);
      if (code != SPNG_OK && code != SPNG_EOI) return ErrorOf(code);
      if (y >= region.top) sink->PutRows(row + size_t{3} * region.left, 0, 1);
    }
    return chunks_.failure().value_or(absl::OkStatus());
  }

  // Whether the pixels have an index or a grey level of 8 bits at most.
  bool is_mask() const {
    return header_.color_type == SPNG_COLOR_TYPE_INDEXED ||
           (header_.color_type == SPNG_COLOR_TYPE_GRAYSCALE && header_.bit_depth <= 8);
  }

  // The samples as they are stored, of 1 to 8 bits, by the rows of the file: those of the passes,
  // if it is interlaced (libspng would not put samples of less than 8 bits in their places).
  absl::Status DecodeMask(const Box& region, Scratch* scratch, RowSink* sink) {
    int code = spng_decode_image(context_.get(), nullptr, 0, SPNG_FMT_RAW, SPNG_DECODE_PROGRESSIVE);
    if (code != SPNG_OK) return ErrorOf(code);
    const bool is_interlaced = header_.interlace_method != SPNG_INTERLACE_NONE;
    const size_t width = header_.width;
    const size_t packed_bytes = (width * header_.bit_depth + 7) / 8;
    const size_t value_bytes = is_interlaced ? width * header_.height : width;
    uint8_t* const rgb = scratch->Get(
        ScratchArea::kDecoder, size_t{3} * size_t(region.width) + packed_bytes + value_bytes);
    uint8_t* const packed = rgb + size_t{3} * size_t(region.width);
    uint8_t* const values = packed + packed_bytes;
    const auto put = [&](const uint8_t* row) {
      TripleRow(row + region.left, region.width, rgb);
      sink->PutRows(rgb, 0, 1);
    };
    const int end = region.top + region.height;
    for (bool more = true; more;) {
      spng_row_info row = {};
      code = spng_get_row_info(context_.get(), &row);
      if (code == SPNG_OK) code = spng_decode_scanline(context_.get(), packed, packed_bytes);
      if (code != SPNG_OK && code != SPNG_EOI) return ErrorOf(code);
      const int y = static_cast<int>(row.row_num);
      const Pass& pass = is_interlaced ? kPasses[row.pass] : kOnePass;
      uint8_t* const to = is_interlaced ? values + static_cast<size_t>(y) * width : values;
      for (size_t x = pass.first, i = 0; x < width; x += pass.step, ++i) {
        to[x] = MaskValue(PackedValue(packed, static_cast<int64_t>(i), header_.bit_depth));
      }
      if (!is_interlaced && y >= region.top) put(values);
      more = code == SPNG_OK && (is_interlaced || y + 1 < end);
    }
    if (is_interlaced) {
      for (int y = region.top; y < end; ++y) put(values + static_cast<size_t>(y) * width);
    }
    return chunks_.failure().value_or(absl::OkStatus());
  }

  // An interlaced picture has its last row's pixels in all passes.
  absl::Status DecodeWhole(const Box& region, Scratch* scratch, RowSink* sink) {
    const size_t row_bytes = size_t{3} * header_.width;
    const size_t size_bytes = row_bytes * header_.height;
    uint8_t* picture = scratch->Get(ScratchArea::kDecoder, size_bytes);
    const int code = spng_decode_image(context_.get(), picture, size_bytes, SPNG_FMT_RGB8, 0);
    if (code != SPNG_OK) return ErrorOf(code);
    sink->PutRows(picture + region.top * row_bytes + size_t{3} * region.left,
                  static_cast<ptrdiff_t>(row_bytes), region.height);
    return chunks_.failure().value_or(absl::OkStatus());
  }

 private:
  // Grey levels of 2 and 4 bits are spread over 0 to 255, those of 1 bit stay: as Pillow has them.
  uint8_t MaskValue(uint8_t sample) const {
    const bool is_grey = header_.color_type == SPNG_COLOR_TYPE_GRAYSCALE;
    if (is_grey && header_.bit_depth == 2) return static_cast<uint8_t>(sample * 85);
    if (is_grey && header_.bit_depth == 4) return static_cast<uint8_t>(sample * 17);
    return sample;
  }

  absl::Status ErrorOf(int code) const {
    if (chunks_.failure().has_value()) return *chunks_.failure();
    switch (code) {
      case SPNG_EMEM:
        return Err(absl::StatusCode::kResourceExhausted, "no memory to decode a PNG");
      case SPNG_EIDAT_TOO_SHORT:
        return SampleErr(SampleReason::kTruncated, "the pixel data end too early");
      case SPNG_ECHUNK_UNKNOWN_CRITICAL:
        return SampleErr(SampleReason::kUnsupported, "an unknown critical chunk");
      case SPNG_EOVERFLOW:
        return SampleErr(SampleReason::kTooLarge, "{}x{} pixels (width x height)", header_.width,
                         header_.height);
      default:
        return SampleErr(SampleReason::kCorrupt, "{}", spng_strerror(code));
    }
  }

  struct FreeContext {
    void operator()(spng_ctx* context) const { spng_ctx_free(context); }
  };

  ChunkReader chunks_;
  std::unique_ptr<spng_ctx, FreeContext> context_;
  spng_ihdr header_ = {};
};

// The content of the eXIf chunk, empty if there is none. Its checksum does not matter: what is
// wrong in there is no orientation.
Bytes FindExif(Bytes bytes) {
  for (size_t at = kSignature.size(); at + kFrameBytes <= bytes.size();) {
    const size_t length = BigEndian32(bytes.data() + at);
    if (length > bytes.size() - at - kFrameBytes) return {};
    if (std::memcmp(bytes.data() + at + 4, "eXIf", 4) == 0) return bytes.subspan(at + 8, length);
    at += kFrameBytes + length;
  }
  return {};
}

// Holds nothing of a picture: every call reads the header, which costs little next to the pixels.
class PngDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    goes_on_over_damage_ = limits.goes_on_over_damage;
    as_mask_ = limits.as_mask;
    PngReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    if (as_mask_ && !reader.is_mask()) {
      return SampleErr(SampleReason::kUnsupported,
                       "a PNG of colour type {} and {} bits as a mask; masks have a palette or are "
                       "grey, of 8 bits at most",
                       reader.header().color_type, reader.header().bit_depth);
    }
    return CheckedSize(reader.header().height, reader.header().width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    PngReader reader(bytes, goes_on_over_damage_);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    const spng_ihdr& header = reader.header();
    BATCHD_CHECK(
        LiesInside(region, {static_cast<int>(header.height), static_cast<int>(header.width)}));
    if (as_mask_) return reader.DecodeMask(region, scratch, sink);
    return header.interlace_method == SPNG_INTERLACE_NONE
               ? reader.DecodeByRows(region, scratch, sink)
               : reader.DecodeWhole(region, scratch, sink);
  }

  int Orientation(Bytes bytes) override { return ExifOrientation(FindExif(bytes)); }

 private:
  bool goes_on_over_damage_ = false;
  bool as_mask_ = false;
};

}  // namespace

extern const DecoderKind kPngDecoder;
const DecoderKind kPngDecoder = {
    .name = "png",
    .sentence = "PNG of every colour type and depth, interlaced too.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<PngDecoder>(); },
    .build = [] { return fmt::format("libspng {}", spng_version_string()); },
    .has_masks = true,
};

}  // namespace batchd
