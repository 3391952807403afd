// SPDX-License-Identifier: Apache-2.0
//
// Binary PGM (P5) and PPM (P6): the simplest decoder, and the one to read first.

#include <array>
#include <memory>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/mask_row.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

bool IsSpace(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool Matches(Bytes bytes) {
  return bytes.size() >= 3 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
         (IsSpace(bytes[2]) || bytes[2] == '#');
}

struct Header {
  int channels = 0;  // 1 or 3
  int64_t width = 0;
  int64_t height = 0;
  int64_t maximum = 0;  // The sample value of full brightness.
  size_t pixels_at = 0;

  int bytes_per_sample() const { return maximum > 255 ? 2 : 1; }
};

// Reads the next number from `*at` on, over white space and comments. Numbers stop growing at
// 2^40: that is above every limit, and cannot overflow.
absl::StatusOr<int64_t> ReadNumber(Bytes bytes, size_t* at) {
  while (*at < bytes.size() && (IsSpace(bytes[*at]) || bytes[*at] == '#')) {
    if (bytes[*at] == '#') {
      while (*at < bytes.size() && bytes[*at] != '\n' && bytes[*at] != '\r') ++*at;
    } else {
      ++*at;
    }
  }
  int64_t number = 0;
  const size_t first = *at;
  for (; *at < bytes.size() && bytes[*at] >= '0' && bytes[*at] <= '9'; ++*at) {
    if (number < int64_t{1} << 40) number = number * 10 + (bytes[*at] - '0');
  }
  // The last digit may be missing too, so a number ends only where something follows.
  if (*at == bytes.size()) {
    return SampleErr(SampleReason::kTruncated, "ends in the header, after {} bytes", bytes.size());
  }
  if (*at == first) {
    return SampleErr(SampleReason::kCorrupt, "byte 0x{:02x} in the header where a number is due",
                     bytes[*at]);
  }
  return number;
}

absl::StatusOr<Header> ReadPnmHeader(Bytes bytes) {
  Header header;
  const char type = static_cast<char>(bytes[1]);
  if (type != '5' && type != '6') {
    return SampleErr(SampleReason::kUnsupported, "P{} is not in this build; P5 and P6 are", type);
  }
  header.channels = type == '5' ? 1 : 3;
  size_t at = 2;
  BATCHD_ASSIGN_OR_RETURN(header.width, ReadNumber(bytes, &at));
  BATCHD_ASSIGN_OR_RETURN(header.height, ReadNumber(bytes, &at));
  BATCHD_ASSIGN_OR_RETURN(header.maximum, ReadNumber(bytes, &at));
  if (header.maximum < 1 || header.maximum > 65535) {
    return SampleErr(SampleReason::kCorrupt, "a maximum sample value of {}; 1 to 65535 are allowed",
                     header.maximum);
  }
  if (!IsSpace(bytes[at])) {
    return SampleErr(SampleReason::kCorrupt, "byte 0x{:02x} after the header where a space is due",
                     bytes[at]);
  }
  header.pixels_at = at + 1;
  return header;
}

// 16 bits by the high byte, as in every format; a maximum of neither 255 nor 65535 is scaled.
uint8_t To8Bits(const uint8_t* sample, const Header& header) {
  if (header.maximum == 255 || header.maximum == 65535) return sample[0];
  const int64_t value = header.bytes_per_sample() == 2 ? sample[0] << 8 | sample[1] : sample[0];
  if (value >= header.maximum) return 255;
  return static_cast<uint8_t>((value * 255 + header.maximum / 2) / header.maximum);
}

void ConvertRow(const uint8_t* in, const Header& header, int width, uint8_t* rgb) {
  const int step = header.bytes_per_sample();
  const int second = header.channels == 3 ? step : 0;  // Grey: the same sample three times.
  for (int x = 0; x < width; ++x, in += header.channels * step, rgb += 3) {
    rgb[0] = To8Bits(in, header);
    rgb[1] = To8Bits(in + second, header);
    rgb[2] = To8Bits(in + 2 * second, header);
  }
}

class PnmDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    BATCHD_ASSIGN_OR_RETURN(const Header header, ReadPnmHeader(bytes));
    as_mask_ = limits.as_mask;
    if (as_mask_ && (header.channels != 1 || header.maximum > 255)) {
      return SampleErr(SampleReason::kUnsupported,
                       "a PNM of {} channels with samples up to {} as a mask; masks have one "
                       "channel, and 255 at most",
                       header.channels, header.maximum);
    }
    return CheckedSize(header.height, header.width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    BATCHD_ASSIGN_OR_RETURN(const Header header, ReadPnmHeader(bytes));
    BATCHD_CHECK(
        LiesInside(region, {static_cast<int>(header.height), static_cast<int>(header.width)}));
    const int64_t pixel_bytes = header.channels * header.bytes_per_sample();
    const int64_t row_bytes = header.width * pixel_bytes;
    uint8_t* rgb = scratch->Get(ScratchArea::kDecoder, size_t{3} * region.width);
    for (int64_t y = region.top; y < region.top + region.height; ++y) {
      const int64_t row_at = header.pixels_at + y * row_bytes;
      if (row_at + row_bytes > static_cast<int64_t>(bytes.size())) {
        // The same row whatever the region.
        const int64_t rows = (static_cast<int64_t>(bytes.size()) - header.pixels_at) / row_bytes;
        return SampleErr(SampleReason::kTruncated, "{} bytes end in row {} of {}", bytes.size(),
                         rows, header.height);
      }
      if (as_mask_) {
        TripleRow(bytes.data() + row_at + region.left, region.width, rgb);
        sink->PutRows(rgb, 0, 1);
        continue;
      }
      ConvertRow(bytes.data() + row_at + region.left * pixel_bytes, header, region.width, rgb);
      sink->PutRows(rgb, 0, 1);
    }
    return absl::OkStatus();
  }

 private:
  bool as_mask_ = false;
};

}  // namespace

extern const DecoderKind kPnmDecoder;
const DecoderKind kPnmDecoder = {
    .name = "pnm",
    .sentence = "Binary PGM and PPM of 8 and 16 bits.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<PnmDecoder>(); },
    .build = [] { return std::string("batchd 1"); },
    .has_masks = true,
};

}  // namespace batchd
