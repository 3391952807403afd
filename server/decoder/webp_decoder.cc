// SPDX-License-Identifier: Apache-2.0
//
// WebP through libwebp. Of an animation the first frame, on a canvas of zeros as in Pillow. The
// chunks are walked here: libwebpdemux would list every frame of a long animation first.

#include <webp/decode.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/exif.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

constexpr size_t kRiffBytes = 12;         // "RIFF", size, "WEBP"
constexpr size_t kChunkHeadBytes = 8;     // name, size
constexpr size_t kFrameHeaderBytes = 16;  // of ANMF

// More pixels than the region on each side: chroma is smoothed over its neighbours. Even, since
// chroma has half the pixels.
constexpr int kMargin = 2;

bool Matches(Bytes bytes) {
  return bytes.size() >= kRiffBytes && std::memcmp(bytes.data(), "RIFF", 4) == 0 &&
         std::memcmp(bytes.data() + 8, "WEBP", 4) == 0;
}

uint32_t Little(const uint8_t* p, int count) {
  uint32_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | p[i];
  return value;
}

// The content of the first chunk of that name.
std::optional<Bytes> FindChunk(Bytes bytes, const char* name) {
  for (size_t at = kRiffBytes; at + kChunkHeadBytes <= bytes.size();) {
    const size_t size = Little(bytes.data() + at + 4, 4);
    const Bytes rest = bytes.subspan(at + kChunkHeadBytes);
    if (size > rest.size()) return std::nullopt;
    if (std::memcmp(bytes.data() + at, name, 4) == 0) return rest.first(size);
    at += kChunkHeadBytes + size + size % 2;
  }
  return std::nullopt;
}

absl::Status ErrorOf(VP8StatusCode code, Bytes bytes) {
  switch (code) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return SampleErr(SampleReason::kTruncated, "{} bytes end too early", bytes.size());
    case VP8_STATUS_OUT_OF_MEMORY:
      return Err(absl::StatusCode::kResourceExhausted, "no memory to decode a WebP");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return SampleErr(SampleReason::kUnsupported, "a feature that libwebp does not have");
    default:
      return SampleErr(SampleReason::kCorrupt, "not a valid WebP stream of {} bytes", bytes.size());
  }
}

// What is decoded, and where it lies on the canvas.
struct Frame {
  Bytes stream;
  Box box;
};

absl::StatusOr<WebPBitstreamFeatures> ReadFeatures(Bytes bytes) {
  WebPBitstreamFeatures features;
  const VP8StatusCode code = WebPGetFeatures(bytes.data(), bytes.size(), &features);
  if (code != VP8_STATUS_OK) return ErrorOf(code, bytes);
  return features;
}

absl::StatusOr<Frame> FindFrame(Bytes bytes, const WebPBitstreamFeatures& canvas) {
  if (canvas.has_animation == 0) return Frame{bytes, {0, 0, canvas.height, canvas.width}};
  const std::optional<Bytes> chunk = FindChunk(bytes, "ANMF");
  if (!chunk.has_value()) {
    return SampleErr(SampleReason::kTruncated, "{} bytes end before the first frame", bytes.size());
  }
  if (chunk->size() < kFrameHeaderBytes) {
    return SampleErr(SampleReason::kCorrupt, "a frame of {} bytes", chunk->size());
  }
  Frame frame;
  frame.stream = chunk->subspan(kFrameHeaderBytes);
  frame.box.left = static_cast<int>(2 * Little(chunk->data(), 3));
  frame.box.top = static_cast<int>(2 * Little(chunk->data() + 3, 3));
  BATCHD_ASSIGN_OR_RETURN(const WebPBitstreamFeatures features, ReadFeatures(frame.stream));
  frame.box.width = features.width;
  frame.box.height = features.height;
  if (features.has_animation != 0 || !LiesInside(frame.box, {canvas.height, canvas.width})) {
    return SampleErr(SampleReason::kCorrupt,
                     "a first frame of {}x{} at {},{} on a canvas of {}x{} (width x height)",
                     frame.box.width, frame.box.height, frame.box.left, frame.box.top, canvas.width,
                     canvas.height);
  }
  return frame;
}

// The part of the frame that lies in `region`, and the margin, in coordinates of the frame; and the
// pixels of it.
struct Part {
  Box box;  // height 0: nothing
  const uint8_t* rgb = nullptr;
  ptrdiff_t stride_bytes = 0;

  const uint8_t* At(int row, int column) const {
    return rgb + (row - box.top) * stride_bytes + ptrdiff_t{3} * (column - box.left);
  }
};

Box PartOf(const Box& frame, const Box& region) {
  const int top = std::max(region.top - frame.top, 0);
  const int left = std::max(region.left - frame.left, 0);
  const int bottom = std::min(region.top + region.height - frame.top, frame.height);
  const int right = std::min(region.left + region.width - frame.left, frame.width);
  if (bottom <= top || right <= left) return {};
  Box part;
  part.top = std::max(top - kMargin, 0) & ~1;
  part.left = std::max(left - kMargin, 0) & ~1;
  part.height = std::min(bottom + kMargin, frame.height) - part.top;
  part.width = std::min(right + kMargin, frame.width) - part.left;
  return part;
}

// Decodes `box` of the frame to `rgb`.
absl::StatusOr<Part> DecodePart(const Frame& frame, const Box& box, uint8_t* rgb) {
  Part part = {box, rgb, ptrdiff_t{3} * box.width};
  if (box.height == 0) return part;
  WebPDecoderConfig config;
  BATCHD_CHECK(WebPInitDecoderConfig(&config) != 0);
  config.options.use_cropping = 1;
  config.options.crop_left = box.left;
  config.options.crop_top = box.top;
  config.options.crop_width = box.width;
  config.options.crop_height = box.height;
  config.output.colorspace = MODE_RGB;  // alpha is neither blended nor multiplied in
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = rgb;
  config.output.u.RGBA.stride = static_cast<int>(part.stride_bytes);
  config.output.u.RGBA.size = static_cast<size_t>(part.stride_bytes) * box.height;
  const VP8StatusCode code = WebPDecode(frame.stream.data(), frame.stream.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (code != VP8_STATUS_OK) return ErrorOf(code, frame.stream);
  return part;
}

class WebpDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    BATCHD_ASSIGN_OR_RETURN(const WebPBitstreamFeatures canvas, ReadFeatures(bytes));
    return CheckedSize(canvas.height, canvas.width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    BATCHD_ASSIGN_OR_RETURN(const WebPBitstreamFeatures canvas, ReadFeatures(bytes));
    BATCHD_CHECK(LiesInside(region, {canvas.height, canvas.width}));
    BATCHD_ASSIGN_OR_RETURN(const Frame frame, FindFrame(bytes, canvas));
    const Box box = PartOf(frame.box, region);
    const size_t row_bytes = (size_t{3} * region.width + 63) & ~size_t{63};
    uint8_t* const row =
        scratch->Get(ScratchArea::kDecoder, row_bytes + size_t{3} * box.width * box.height);
    BATCHD_ASSIGN_OR_RETURN(const Part part, DecodePart(frame, box, row + row_bytes));
    if (frame.box.height == canvas.height && frame.box.width == canvas.width) {
      sink->PutRows(part.At(region.top, region.left), part.stride_bytes, region.height);
      return absl::OkStatus();
    }
    // The frame is a part of the canvas, and the rest is black.
    const int left = std::clamp(frame.box.left - region.left, 0, region.width);
    const int right =
        std::clamp(frame.box.left + frame.box.width - region.left, left, region.width);
    for (int y = region.top; y < region.top + region.height; ++y) {
      std::memset(row, 0, row_bytes);
      const bool inside = y >= frame.box.top && y < frame.box.top + frame.box.height;
      if (inside && right > left) {
        std::memcpy(row + ptrdiff_t{3} * left,
                    part.At(y - frame.box.top, region.left + left - frame.box.left),
                    size_t{3} * (right - left));
      }
      sink->PutRows(row, 0, 1);
    }
    return absl::OkStatus();
  }

  int Orientation(Bytes bytes) override {
    const std::optional<Bytes> exif = FindChunk(bytes, "EXIF");
    return exif.has_value() ? ExifOrientation(*exif) : 1;
  }
};

}  // namespace

extern const DecoderKind kWebpDecoder;
const DecoderKind kWebpDecoder = {
    .name = "webp",
    .sentence = "WebP, lossy and lossless; of an animation the first frame.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<WebpDecoder>(); },
    .build =
        [] {
          const int version = WebPGetDecoderVersion();
          return fmt::format("libwebp {}.{}.{}", version >> 16, version >> 8 & 255, version & 255);
        },
};

}  // namespace batchd
