// SPDX-License-Identifier: Apache-2.0
//
// AVIF through libavif and dav1d, on one thread. Of a sequence the first frame.
//
// An AV1 stream may hold any number of frames that are decoded and not shown, each as large as the
// picture and of a few bytes. So libavif reads through a file of ours, which counts the frames of
// what it is asked for.

#include <avif/avif.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

// Pixels over all frames that are decoded, of colour and alpha; below 5 s on one core.
constexpr int64_t kFramePixelsMax = int64_t{110} * 1000 * 1000;

bool HasAt(Bytes bytes, size_t offset, std::string_view text) {
  return bytes.size() >= offset + text.size() &&
         std::memcmp(bytes.data() + offset, text.data(), text.size()) == 0;
}

uint32_t BigEndian32(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// The brand, or one of those that it is compatible with.
bool Matches(Bytes bytes) {
  if (!HasAt(bytes, 4, "ftyp") || bytes.size() < 12) return false;
  if (HasAt(bytes, 8, "avif") || HasAt(bytes, 8, "avis")) return true;
  if (!HasAt(bytes, 8, "mif1") && !HasAt(bytes, 8, "msf1")) return false;
  const size_t end = std::min<size_t>(BigEndian32(bytes.data()), bytes.size());
  for (size_t at = 16; at + 4 <= end; at += 4) {
    if (HasAt(bytes, at, "avif") || HasAt(bytes, at, "avis")) return true;
  }
  return false;
}

// Bits from the most significant one on; zeros behind the end.
class BitReader {
 public:
  explicit BitReader(Bytes bytes) : bytes_(bytes) {}
  uint32_t Read(int count) {
    uint32_t value = 0;
    for (; count > 0; --count, ++at_) {
      const size_t byte = at_ / 8;
      value = value << 1 | (byte < bytes_.size() ? bytes_[byte] >> (7 - at_ % 8) & 1u : 0u);
    }
    return value;
  }

 private:
  const Bytes bytes_;
  size_t at_ = 0;
};

// The most pixels that a frame of this AV1 sequence can have, `pixels_max` if that is not told.
int64_t FramePixels(Bytes sequence_header, int64_t pixels_max) {
  BitReader bits(sequence_header);
  bits.Read(3 + 1);  // profile, still picture
  const bool is_reduced = bits.Read(1) != 0;
  if (is_reduced) {
    bits.Read(5);  // level
  } else {
    if (bits.Read(1) != 0) return pixels_max;  // timing, which no still picture has
    const bool has_delay = bits.Read(1) != 0;
    const int point_count = static_cast<int>(bits.Read(5)) + 1;
    for (int i = 0; i < point_count; ++i) {
      bits.Read(12);
      if (bits.Read(5) > 7) bits.Read(1);
      if (has_delay && bits.Read(1) != 0) bits.Read(4);
    }
  }
  const int width_bits = static_cast<int>(bits.Read(4)) + 1;
  const int height_bits = static_cast<int>(bits.Read(4)) + 1;
  const int64_t width = int64_t{bits.Read(width_bits)} + 1;
  const int64_t height = int64_t{bits.Read(height_bits)} + 1;
  // A frame may state a larger size of its own in as many bits. Encoders take no more than needed.
  const bool is_tight = 2 * width > int64_t{1} << width_bits && 2 * height > int64_t{1}
                                                                                 << height_bits;
  return is_tight ? std::min(pixels_max, width * height) : pixels_max;
}

// Pixels over all frames of a run of AV1's units (OBU), where a frame has at most pixels_max. -1 if
// the bytes are no such run.
int64_t CountFramePixels(Bytes stream, int64_t pixels_max) {
  constexpr int kSequenceHeader = 1;
  constexpr int kFrameHeader = 3;
  constexpr int kFrame = 6;
  int64_t frame_pixels = pixels_max;
  int64_t pixels = 0;
  while (!stream.empty()) {
    const uint8_t head = stream[0];
    const int type = head >> 3 & 15;
    size_t at = (head & 4) != 0 ? 2 : 1;
    uint64_t size = stream.size() - std::min(at, stream.size());
    if ((head & 2) != 0) {
      size = 0;
      for (int shift = 0; shift < 56; shift += 7) {
        if (at >= stream.size()) return -1;
        const uint8_t byte = stream[at++];
        size |= uint64_t{byte & 127u} << shift;
        if (byte < 128) break;
      }
    }
    if (at > stream.size() || size > stream.size() - at) return -1;
    if (type == kSequenceHeader) frame_pixels = FramePixels(stream.subspan(at, size), pixels_max);
    if (type == kFrameHeader || type == kFrame) pixels += frame_pixels;
    stream = stream.subspan(at + size);
  }
  return pixels;
}

// The bytes as libavif's file. `io` comes first: libavif gives its address back.
struct Input {
  avifIO io = {};
  Bytes bytes;
  int64_t pixels_max = 0;    // of one frame; 0 until whole pictures are read
  int64_t frame_pixels = 0;  // over all frames that have been read
  bool is_malformed = false;
};

avifResult OnRead(avifIO* io, uint32_t, uint64_t offset, size_t size, avifROData* out) {
  auto* const input = reinterpret_cast<Input*>(io);
  if (offset > input->bytes.size()) return AVIF_RESULT_IO_ERROR;
  const Bytes rest = input->bytes.subspan(offset);
  const Bytes part = rest.first(std::min(size, rest.size()));
  out->data = part.data();
  out->size = part.size();
  if (input->pixels_max == 0 || part.size() < size) return AVIF_RESULT_OK;
  const int64_t pixels = CountFramePixels(part, input->pixels_max);
  input->is_malformed = pixels < 0;
  if (input->is_malformed) return AVIF_RESULT_BMFF_PARSE_FAILED;
  input->frame_pixels += pixels;
  return input->frame_pixels > kFramePixelsMax ? AVIF_RESULT_NOT_IMPLEMENTED : AVIF_RESULT_OK;
}

struct DestroyDecoder {
  void operator()(avifDecoder* decoder) const { avifDecoderDestroy(decoder); }
};

// One picture being read.
class AvifReader {
 public:
  explicit AvifReader(Bytes bytes) : decoder_(avifDecoderCreate()) {
    input_.io.read = OnRead;
    input_.io.sizeHint = bytes.size();
    input_.io.persistent = AVIF_TRUE;
    input_.bytes = bytes;
  }
  AvifReader(const AvifReader&) = delete;
  AvifReader& operator=(const AvifReader&) = delete;

  absl::Status ReadHeader() {
    if (decoder_ == nullptr) return ErrorOf(AVIF_RESULT_OUT_OF_MEMORY);
    decoder_->maxThreads = 1;
    decoder_->ignoreExif = AVIF_TRUE;
    decoder_->ignoreXMP = AVIF_TRUE;
    // Pillow takes these two faults as well.
    decoder_->strictFlags =
        AVIF_STRICT_ENABLED & ~uint32_t{AVIF_STRICT_CLAP_VALID | AVIF_STRICT_PIXI_REQUIRED};
    avifDecoderSetIO(decoder_.get(), &input_.io);
    const avifResult result = avifDecoderParse(decoder_.get());
    return result == AVIF_RESULT_OK ? absl::OkStatus() : ErrorOf(result);
  }

  avifImage& image() { return *decoder_->image; }

  absl::Status Decode(const Box& region, Scratch* scratch, RowSink* sink) {
    const int64_t width = image().width;
    const int64_t height = image().height;
    // A grid's cell may be larger than what is seen of it, but not much.
    constexpr int64_t kCellPixels = 1 << 16;
    const int64_t pixels_max = std::max(width * height, kCellPixels);
    decoder_->imageSizeLimit =
        static_cast<uint32_t>(std::min<int64_t>(pixels_max, AVIF_DEFAULT_IMAGE_SIZE_LIMIT));
    // So that the limit is seen. Where the container does not tell the colours, this looks at the
    // first bytes of the stream as well.
    avifResult result = avifDecoderReset(decoder_.get());
    input_.pixels_max = pixels_max;
    if (result == AVIF_RESULT_OK) result = avifDecoderNextImage(decoder_.get());
    if (result != AVIF_RESULT_OK) return ErrorOf(result);
    if (image().width != width || image().height != height) {
      return SampleErr(SampleReason::kCorrupt, "the stream has {}x{} pixels, the header {}x{}",
                       image().width, image().height, width, height);
    }
    avifRGBImage rgb;
    avifRGBImageSetDefaults(&rgb, &image());
    rgb.depth = 8;
    // Without room for alpha libavif would multiply the colours by it.
    const bool has_alpha = image().alphaPlane != nullptr;
    rgb.format = has_alpha ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
    const size_t pixel_bytes = has_alpha ? 4 : 3;
    rgb.rowBytes = static_cast<uint32_t>(pixel_bytes * image().width);
    rgb.pixels = scratch->Get(ScratchArea::kDecoder, size_t{rgb.rowBytes} * image().height);
    const avifResult converted = avifImageYUVToRGB(&image(), &rgb);
    if (converted != AVIF_RESULT_OK) return ErrorOf(converted);
    uint8_t* const first = rgb.pixels + size_t{rgb.rowBytes} * region.top;
    if (has_alpha) DropAlpha(first, region.height, rgb.rowBytes);
    sink->PutRows(first + ptrdiff_t{3} * region.left, rgb.rowBytes, region.height);
    return absl::OkStatus();
  }

  // As EXIF counts. AVIF has transforms of its own, and EXIF inside of it does not count.
  int Orientation() {
    const avifTransformFlags flags = image().transformFlags;
    const int angle = (flags & AVIF_TRANSFORM_IROT) != 0 ? image().irot.angle & 3 : 0;
    // Turned against the clock first, then mirrored: 0 top to bottom, 1 left to right.
    constexpr int kTurned[4] = {1, 8, 3, 6};
    constexpr int kMirrored[2][4] = {{4, 5, 2, 7}, {2, 7, 4, 5}};
    return (flags & AVIF_TRANSFORM_IMIR) != 0 ? kMirrored[MirrorAxis()][angle] : kTurned[angle];
  }

 private:
  int MirrorAxis() {
#if AVIF_VERSION_MAJOR >= 1
    return image().imir.axis & 1;
#else
    return image().imir.mode & 1;
#endif
  }

  static void DropAlpha(uint8_t* rows, int row_count, uint32_t row_bytes) {
    for (int y = 0; y < row_count; ++y, rows += row_bytes) {
      uint8_t* out = rows;
      for (const uint8_t* in = rows; in < rows + row_bytes; in += 4, out += 3) {
        std::memmove(out, in, 3);
      }
    }
  }

  absl::Status ErrorOf(avifResult result) const {
    const size_t size_bytes = input_.bytes.size();
    if (input_.frame_pixels > kFramePixelsMax) {
      return SampleErr(SampleReason::kTooLarge, "frames of {} pixels in all; the limit is {}",
                       input_.frame_pixels, kFramePixelsMax);
    }
    if (input_.is_malformed) return SampleErr(SampleReason::kCorrupt, "not whole units of AV1");
    switch (result) {
      case AVIF_RESULT_TRUNCATED_DATA:
      case AVIF_RESULT_IO_ERROR:
      case AVIF_RESULT_NO_CONTENT:
        return SampleErr(SampleReason::kTruncated, "{} bytes end too early", size_bytes);
      case AVIF_RESULT_OUT_OF_MEMORY:
        return Err(absl::StatusCode::kResourceExhausted, "no memory to decode an AVIF");
      case AVIF_RESULT_NOT_IMPLEMENTED:
      case AVIF_RESULT_UNSUPPORTED_DEPTH:
      case AVIF_RESULT_NO_CODEC_AVAILABLE:
        return SampleErr(SampleReason::kUnsupported, "{}", avifResultToString(result));
      default: {
        const std::string_view detail = decoder_->diag.error;
        // libavif's own limits, which are above those of a plan.
        const bool is_large = detail.find("too large") != detail.npos;
        return SampleErr(is_large ? SampleReason::kTooLarge : SampleReason::kCorrupt, "{}",
                         detail.empty() ? avifResultToString(result) : detail);
      }
    }
  }

  Input input_;
  std::unique_ptr<avifDecoder, DestroyDecoder> decoder_;
};

class AvifDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    AvifReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    return CheckedSize(reader.image().height, reader.image().width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    AvifReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    BATCHD_CHECK(LiesInside(
        region, {static_cast<int>(reader.image().height), static_cast<int>(reader.image().width)}));
    return reader.Decode(region, scratch, sink);
  }

  int Orientation(Bytes bytes) override {
    AvifReader reader(bytes);
    return reader.ReadHeader().ok() ? reader.Orientation() : 1;
  }
};

std::string Build() {
  char codecs[256];
  avifCodecVersions(codecs);
  return fmt::format("libavif {}, {}, libyuv {}", avifVersion(), codecs, avifLibYUVVersion());
}

}  // namespace

extern const DecoderKind kAvifDecoder;
const DecoderKind kAvifDecoder = {
    .name = "avif",
    .sentence = "AVIF of 8 to 12 bits; of a sequence the first frame.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<AvifDecoder>(); },
    .build = Build,
};

}  // namespace batchd
