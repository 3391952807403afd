// SPDX-License-Identifier: Apache-2.0
//
// The first picture of a GIF, through giflib's calls that read one line at a time: nothing is
// allocated for pixels there. As in Pillow it lies on the whole screen, and what it does not cover
// has the transparent colour, or else colour 0.

#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

bool Matches(Bytes bytes) {
  return bytes.size() >= 6 && std::memcmp(bytes.data(), "GIF8", 4) == 0 &&
         (bytes[4] == '7' || bytes[4] == '9') && bytes[5] == 'a';
}

int ReadForGif(GifFileType* file, GifByteType* out, int count) {
  auto* const rest = static_cast<Bytes*>(file->UserData);
  const size_t given = std::min(rest->size(), static_cast<size_t>(count));
  std::memcpy(out, rest->data(), given);
  *rest = rest->subspan(given);
  return static_cast<int>(given);
}

// One picture being read; giflib's object cannot be used again.
class GifReader {
 public:
  explicit GifReader(Bytes bytes) : size_bytes_(bytes.size()), rest_(bytes) {
    file_ = DGifOpen(&rest_, ReadForGif, &open_error_);
  }
  ~GifReader() {
    if (file_ != nullptr) DGifCloseFile(file_, nullptr);
  }
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;

  // Reads on to the first picture's lines.
  absl::Status ReadHeader() {
    if (file_ == nullptr) return ErrorOf(open_error_);
    while (true) {
      GifRecordType type = UNDEFINED_RECORD_TYPE;
      if (DGifGetRecordType(file_, &type) == GIF_ERROR) {
        // A stray byte between blocks is passed over, as Pillow does.
        if (file_->Error != D_GIF_ERR_WRONG_RECORD) return ErrorOf(file_->Error);
      } else if (type == IMAGE_DESC_RECORD_TYPE) {
        break;
      } else if (type == EXTENSION_RECORD_TYPE) {
        BATCHD_RETURN_IF_ERROR(ReadExtension());
      } else {
        return SampleErr(SampleReason::kCorrupt, "no picture before the end");
      }
    }
    if (DGifGetImageDesc(file_) == GIF_ERROR) return ErrorOf(file_->Error);
    const GifImageDesc& frame = file_->Image;
    if (frame.Width < 1 || frame.Height < 1) {
      return SampleErr(SampleReason::kCorrupt, "a first picture of {}x{} pixels (width x height)",
                       frame.Width, frame.Height);
    }
    return absl::OkStatus();
  }

  // The screen, or more where the picture reaches out of it.
  int64_t width() const { return std::max(file_->SWidth, file_->Image.Left + file_->Image.Width); }
  int64_t height() const {
    return std::max(file_->SHeight, file_->Image.Top + file_->Image.Height);
  }

  absl::Status DecodeRows(const Box& region, Scratch* scratch, RowSink* sink) {
    FillPalette();
    const GifImageDesc& frame = file_->Image;
    const size_t rgb_bytes = (size_t{3} * region.width + 63) & ~size_t{63};
    const size_t line_bytes = static_cast<size_t>(frame.Width);
    const size_t line_count = frame.Interlace ? static_cast<size_t>(frame.Height) : 1;
    uint8_t* const rgb = scratch->Get(ScratchArea::kDecoder, rgb_bytes + line_bytes * line_count);
    uint8_t* const lines = rgb + rgb_bytes;
    if (frame.Interlace) BATCHD_RETURN_IF_ERROR(ReadInterlaced(lines));
    for (int y = 0; y < region.top + region.height; ++y) {
      const int line_number = y - frame.Top;
      const bool has_line = line_number >= 0 && line_number < frame.Height;
      uint8_t* const line = lines + (frame.Interlace && has_line ? line_number * line_bytes : 0);
      if (has_line && !frame.Interlace) BATCHD_RETURN_IF_ERROR(ReadLine(line));
      if (y < region.top) continue;
      for (int x = 0; x < region.width; ++x) {
        const int column = region.left + x - frame.Left;
        const bool inside = has_line && column >= 0 && column < frame.Width;
        std::memcpy(rgb + 3 * x, &palette_[3 * size_t{inside ? line[column] : fill_}], 3);
      }
      sink->PutRows(rgb, 0, 1);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadExtension() {
    int code = 0;
    GifByteType* block = nullptr;  // its length, then its bytes
    if (DGifGetExtension(file_, &code, &block) == GIF_ERROR) return ErrorOf(file_->Error);
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4 &&
        (block[1] & 1) != 0) {
      fill_ = block[4];
    }
    while (block != nullptr) {
      if (DGifGetExtensionNext(file_, &block) == GIF_ERROR) return ErrorOf(file_->Error);
    }
    return absl::OkStatus();
  }

  // Without a palette an index is a grey value; what a palette leaves out is black.
  void FillPalette() {
    const ColorMapObject* map =
        file_->Image.ColorMap != nullptr ? file_->Image.ColorMap : file_->SColorMap;
    for (int i = 0; i < 256; ++i) {
      uint8_t* const rgb = &palette_[3 * static_cast<size_t>(i)];
      if (map == nullptr) {
        std::memset(rgb, i, 3);
      } else if (i < map->ColorCount) {
        const GifColorType& colour = map->Colors[i];
        rgb[0] = colour.Red;
        rgb[1] = colour.Green;
        rgb[2] = colour.Blue;
      }
    }
  }

  absl::Status ReadLine(uint8_t* line) {
    return DGifGetLine(file_, line, file_->Image.Width) == GIF_ERROR ? ErrorOf(file_->Error)
                                                                     : absl::OkStatus();
  }

  absl::Status ReadInterlaced(uint8_t* lines) {
    struct Pass {
      int first;
      int step;
    };
    for (const Pass& pass : {Pass{0, 8}, {4, 8}, {2, 4}, {1, 2}}) {
      for (int y = pass.first; y < file_->Image.Height; y += pass.step) {
        BATCHD_RETURN_IF_ERROR(ReadLine(lines + int64_t{y} * file_->Image.Width));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ErrorOf(int code) const {
    const char* text = GifErrorString(code);
    if (text == nullptr) text = "a defect that giflib has no name for";
    switch (code) {
      case D_GIF_ERR_READ_FAILED:
      case D_GIF_ERR_EOF_TOO_SOON:
      case D_GIF_ERR_NO_SCRN_DSCR:  // the screen's size is cut
        return SampleErr(SampleReason::kTruncated, "{} (at byte {} of {})", text,
                         size_bytes_ - rest_.size(), size_bytes_);
      case D_GIF_ERR_NOT_ENOUGH_MEM:
        return Err(absl::StatusCode::kResourceExhausted, "no memory to decode a GIF");
      default:
        return SampleErr(SampleReason::kCorrupt, "{} (at byte {} of {})", text,
                         size_bytes_ - rest_.size(), size_bytes_);
    }
  }

  const size_t size_bytes_;
  Bytes rest_;
  int open_error_ = 0;
  GifFileType* file_ = nullptr;
  uint8_t fill_ = 0;
  std::array<uint8_t, 3 * 256> palette_ = {};
};

class GifDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    GifReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    return CheckedSize(reader.height(), reader.width(), limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    GifReader reader(bytes);
    BATCHD_RETURN_IF_ERROR(reader.ReadHeader());
    BATCHD_CHECK(
        LiesInside(region, {static_cast<int>(reader.height()), static_cast<int>(reader.width())}));
    return reader.DecodeRows(region, scratch, sink);
  }
};

}  // namespace

extern const DecoderKind kGifDecoder;
const DecoderKind kGifDecoder = {
    .name = "gif",
    .sentence = "The first picture of a GIF, interlaced too.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<GifDecoder>(); },
    .build =
        [] { return fmt::format("giflib {}.{}.{}", GIFLIB_MAJOR, GIFLIB_MINOR, GIFLIB_RELEASE); },
};

}  // namespace batchd
