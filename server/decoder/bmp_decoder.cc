// SPDX-License-Identifier: Apache-2.0
//
// Windows and OS/2 BMP, read as Pillow reads it: no library of Debian serves only this.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/mask_row.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr size_t kCoreHeaderBytes = 12;  // OS/2's: 16-bit sides, palette entries of 3 bytes

enum Compression : uint32_t { kRaw = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3 };

uint32_t Little(const uint8_t* p, int count) {
  uint32_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | p[i];
  return value;
}

bool IsHeaderSize(uint32_t size) {
  constexpr uint32_t kSizes[] = {kCoreHeaderBytes, 40, 52, 56, 64, 108, 124};
  return std::find(std::begin(kSizes), std::end(kSizes), size) != std::end(kSizes);
}

// "BM" alone also begins words, so the size of the second header is looked at too.
bool Matches(Bytes bytes) {
  return bytes.size() >= kFileHeaderBytes + 4 && bytes[0] == 'B' && bytes[1] == 'M' &&
         IsHeaderSize(Little(bytes.data() + kFileHeaderBytes, 4));
}

// Where a colour lies in a pixel, and its bits: 8, or 5 and 6 in 16-bit pixels.
struct Channel {
  int shift = 0;
  uint32_t maximum = 255;
};

struct Header {
  int64_t width = 0;
  int64_t height = 0;
  bool top_down = false;
  int bits = 0;  // of a pixel
  uint32_t compression = kRaw;
  size_t pixels_at = 0;
  std::array<Channel, 3> channels = {{{16, 255}, {8, 255}, {0, 255}}};
  std::array<uint8_t, 3 * 256> palette = {};  // what the file leaves out is black

  bool is_rle() const { return compression == kRle8 || compression == kRle4; }
  int64_t row_bytes() const { return (width * bits + 31) / 32 * 4; }
};

absl::Status Truncated(Bytes bytes, std::string_view where) {
  return SampleErr(SampleReason::kTruncated, "{} bytes end in the {}", bytes.size(), where);
}

absl::StatusOr<Channel> ChannelOf(uint32_t mask, int bits) {
  if (bits >= 24) {
    for (int shift = 0; shift < bits; shift += 8) {
      if (mask == uint32_t{0xFF} << shift) return Channel{shift, 255};
    }
  } else {
    for (const Channel& channel : {Channel{11, 31}, {10, 31}, {5, 63}, {5, 31}, {0, 31}}) {
      if (mask == channel.maximum << channel.shift) return channel;
    }
  }
  return SampleErr(SampleReason::kUnsupported, "a colour mask of {:08x} in {} bits", mask, bits);
}

// `at` is the byte behind the header.
absl::Status ReadMasks(Bytes bytes, size_t header_bytes, size_t* at, Header* header) {
  // Headers of 52 bytes and more hold the masks, shorter ones are followed by them.
  size_t masks_at = kFileHeaderBytes + 40;
  if (header_bytes < 52) {
    masks_at = *at;
    *at += 12;
  }
  if (masks_at + 12 > bytes.size()) return Truncated(bytes, "header");
  uint32_t masks[3];
  for (int c = 0; c < 3; ++c) masks[c] = Little(bytes.data() + masks_at + 4 * c, 4);
  if (header->bits == 32 && masks[0] == 0 && masks[1] == 0 && masks[2] == 0) {
    return absl::OkStatus();
  }
  for (int c = 0; c < 3; ++c) {
    BATCHD_ASSIGN_OR_RETURN(header->channels[c], ChannelOf(masks[c], header->bits));
  }
  return absl::OkStatus();
}

absl::Status ReadPalette(Bytes bytes, size_t at, uint32_t colours, int entry_bytes,
                         Header* header) {
  if (colours > 65536) {
    return SampleErr(SampleReason::kCorrupt, "a palette of {} colours", colours);
  }
  for (uint32_t i = 0; i < std::min(colours, 256u); ++i, at += entry_bytes) {
    if (at + 3 > bytes.size()) return Truncated(bytes, "palette");
    for (int c = 0; c < 3; ++c) header->palette[3 * i + c] = bytes[at + 2 - c];
  }
  return absl::OkStatus();
}

absl::Status CheckCoding(const Header& header) {
  constexpr int kDepths[] = {1, 4, 8, 16, 24, 32};
  if (std::find(std::begin(kDepths), std::end(kDepths), header.bits) == std::end(kDepths)) {
    return SampleErr(SampleReason::kUnsupported, "{} bits for a pixel", header.bits);
  }
  const bool fits = header.compression == kRaw ||
                    (header.compression == kBitFields && header.bits >= 16) ||
                    (header.compression == kRle8 && header.bits == 8) ||
                    (header.compression == kRle4 && header.bits == 4);
  if (!fits) {
    return SampleErr(SampleReason::kUnsupported, "compression {} of {} bits for a pixel",
                     header.compression, header.bits);
  }
  return absl::OkStatus();
}

absl::StatusOr<Header> ReadBmpHeader(Bytes bytes) {
  const uint32_t header_bytes = Little(bytes.data() + kFileHeaderBytes, 4);
  size_t at = kFileHeaderBytes + header_bytes;
  if (at > bytes.size()) return Truncated(bytes, "header");
  const uint8_t* const second = bytes.data() + kFileHeaderBytes;
  const bool is_core = header_bytes == kCoreHeaderBytes;
  Header header;
  uint32_t colours = 0;
  if (is_core) {
    header.width = Little(second + 4, 2);
    header.height = Little(second + 6, 2);
    header.bits = static_cast<int>(Little(second + 10, 2));
  } else {
    header.width = Little(second + 4, 4);
    // A negative height says that the first row is at the top; told by the top byte, as Pillow
    // does.
    header.top_down = second[11] == 0xFF;
    header.height = header.top_down ? (int64_t{1} << 32) - Little(second + 8, 4)
                                    : int64_t{Little(second + 8, 4)};
    header.bits = static_cast<int>(Little(second + 14, 2));
    header.compression = Little(second + 16, 4);
    colours = Little(second + 32, 4);
  }
  BATCHD_RETURN_IF_ERROR(CheckCoding(header));
  if (header.bits == 16) header.channels = {{{10, 31}, {5, 31}, {0, 31}}};
  if (header.compression == kBitFields) {
    BATCHD_RETURN_IF_ERROR(ReadMasks(bytes, header_bytes, &at, &header));
  }
  header.pixels_at = Little(bytes.data() + 10, 4);
  if (header.bits <= 8) {
    if (colours == 0) colours = 1u << header.bits;
    const int entry_bytes = is_core ? 3 : 4;
    BATCHD_RETURN_IF_ERROR(ReadPalette(bytes, at, colours, entry_bytes, &header));
    at += size_t{colours} * entry_bytes;
    // Some writers point at the palette.
    if (header.pixels_at == kFileHeaderBytes + header_bytes) header.pixels_at = at;
  }
  if (header.pixels_at == 0) header.pixels_at = at;
  return header;
}

void ConvertRow(const uint8_t* row, const Header& header, bool as_mask, const Box& region,
                uint8_t* rgb) {
  const int pixel_bytes = header.bits / 8;
  for (int64_t x = region.left; x < region.left + region.width; ++x, rgb += 3) {
    if (as_mask) {
      rgb[0] = rgb[1] = rgb[2] = PackedValue(row, x, header.bits);
      continue;
    }
    if (header.bits <= 8) {
      std::memcpy(rgb, &header.palette[3 * size_t{PackedValue(row, x, header.bits)}], 3);
      continue;
    }
    const uint32_t pixel = Little(row + x * pixel_bytes, pixel_bytes);
    for (int c = 0; c < 3; ++c) {
      const Channel& channel = header.channels[c];
      rgb[c] =
          static_cast<uint8_t>((pixel >> channel.shift & channel.maximum) * 255 / channel.maximum);
    }
  }
}

// Run-length coding: bytes or nibbles, row after row from the bottom, with jumps over pixels of
// index 0. Writes one index a pixel; what lies outside the picture is dropped. What Pillow makes
// of runs that end in another row is kept.
class RleReader {
 public:
  RleReader(Bytes bytes, const Header& header, uint8_t* indices)
      : bytes_(bytes),
        at_(header.pixels_at),
        nibbles_(header.compression == kRle4),
        width_(header.width),
        end_(header.width * header.height),
        indices_(indices) {}

  // Returns how many pixels there are from the first on; the rest is index 0.
  int64_t Read() {
    while (out_ < end_) {
      if (at_ + 2 > bytes_.size()) return out_;
      const uint8_t count = bytes_[at_];
      const uint8_t value = bytes_[at_ + 1];
      at_ += 2;
      if (count > 0) {
        Run(count, value);
      } else if (value == 0) {
        Zeros((width_ - out_ % width_) % width_);
        x_ = 0;
      } else if (value == 1) {
        return end_;  // the end, and rows that are left out are 0
      } else if (value == 2) {
        if (at_ + 2 > bytes_.size()) return out_;
        Zeros(bytes_[at_] + bytes_[at_ + 1] * width_);
        at_ += 2;
        x_ = out_ % width_;
      } else if (!Literal(value)) {
        return out_;
      }
    }
    return out_;
  }

 private:
  void Zeros(int64_t count) { out_ = std::min(out_ + count, end_); }

  void Put(uint8_t index) {
    if (out_ < end_) indices_[out_++] = index;
  }

  void Run(int64_t count, uint8_t value) {
    count = std::clamp<int64_t>(width_ - x_, 0, count);
    for (int64_t i = 0; i < count; ++i) {
      Put(!nibbles_ ? value : i % 2 == 0 ? value >> 4 : value & 15);
    }
    x_ += count;
  }

  bool Literal(int64_t count) {
    for (int64_t i = 0; i < count && out_ < end_; ++i) {
      const size_t byte = at_ + static_cast<size_t>(nibbles_ ? i / 2 : i);
      if (byte >= bytes_.size()) return false;
      Put(!nibbles_ ? bytes_[byte] : i % 2 == 0 ? bytes_[byte] >> 4 : bytes_[byte] & 15);
    }
    at_ += static_cast<size_t>(nibbles_ ? (count + 1) / 2 : count);
    at_ += at_ % 2;
    x_ += count;
    return true;
  }

  const Bytes bytes_;
  size_t at_;
  const bool nibbles_;
  const int64_t width_;
  const int64_t end_;
  uint8_t* const indices_;
  int64_t out_ = 0;  // the next pixel
  int64_t x_ = 0;    // of the row as the file counts it
};

class BmpDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    BATCHD_ASSIGN_OR_RETURN(const Header header, ReadBmpHeader(bytes));
    as_mask_ = limits.as_mask;
    if (as_mask_ && header.bits > 8) {
      return SampleErr(SampleReason::kUnsupported,
                       "a BMP of {} bits as a mask; masks have a palette, of 8 bits at most",
                       header.bits);
    }
    return CheckedSize(header.height, header.width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    BATCHD_ASSIGN_OR_RETURN(Header header, ReadBmpHeader(bytes));
    BATCHD_CHECK(
        LiesInside(region, {static_cast<int>(header.height), static_cast<int>(header.width)}));
    Bytes pixels = bytes.subspan(std::min(header.pixels_at, bytes.size()));
    const size_t rgb_bytes = Rounded(size_t{3} * region.width);
    const size_t index_bytes =
        header.is_rle() ? static_cast<size_t>(header.width * header.height) : 0;
    uint8_t* const rgb = scratch->Get(ScratchArea::kDecoder, rgb_bytes + index_bytes);
    int64_t row_bytes = header.row_bytes();
    if (header.is_rle()) {
      uint8_t* const indices = rgb + rgb_bytes;
      std::memset(indices, 0, index_bytes);
      const int64_t count = RleReader(bytes, header, indices).Read();
      pixels = Bytes(indices, static_cast<size_t>(count));
      header.bits = 8;
      row_bytes = header.width;
    }
    for (int64_t y = region.top; y < region.top + region.height; ++y) {
      const int64_t row = header.top_down ? y : header.height - 1 - y;
      // The padding behind the last row may be missing.
      const int64_t used_bytes = (header.width * header.bits + 7) / 8;
      if (row * row_bytes + used_bytes > static_cast<int64_t>(pixels.size())) {
        return SampleErr(SampleReason::kTruncated, "{} bytes have no row {} of {}", bytes.size(), y,
                         header.height);
      }
      ConvertRow(pixels.data() + row * row_bytes, header, as_mask_, region, rgb);
      sink->PutRows(rgb, 0, 1);
    }
    return absl::OkStatus();
  }

 private:
  static size_t Rounded(size_t size_bytes) { return (size_bytes + 63) & ~size_t{63}; }

  bool as_mask_ = false;
};

}  // namespace

extern const DecoderKind kBmpDecoder;
const DecoderKind kBmpDecoder = {
    .name = "bmp",
    .sentence = "BMP of 1 to 32 bits, run-length coded too.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<BmpDecoder>(); },
    .build = [] { return std::string("batchd 1"); },
    .has_masks = true,
};

}  // namespace batchd
