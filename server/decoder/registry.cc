// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <memory>
#include <string>

#include "server/base/hash.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"

namespace batchd {

extern const DecoderKind kJpegDecoder;
extern const DecoderKind kPngDecoder;
extern const DecoderKind kPnmDecoder;
extern const DecoderKind kBmpDecoder;
extern const DecoderKind kGifDecoder;
extern const DecoderKind kWebpDecoder;
extern const DecoderKind kTiffDecoder;
extern const DecoderKind kAvifDecoder;
extern const DecoderKind kJp2Decoder;

namespace {

constexpr auto kKinds = std::to_array<const DecoderKind*>({
    &kJpegDecoder,
    &kPngDecoder,
    &kPnmDecoder,
    &kBmpDecoder,
// What CMake has found a library for.
#ifdef BATCHD_HAS_GIF
    &kGifDecoder,
#endif
#ifdef BATCHD_HAS_WEBP
    &kWebpDecoder,
#endif
#ifdef BATCHD_HAS_TIFF
    &kTiffDecoder,
#endif
#ifdef BATCHD_HAS_AVIF
    &kAvifDecoder,
#endif
#ifdef BATCHD_HAS_JP2
    &kJp2Decoder,
#endif
});

using namespace std::string_view_literals;

// Formats that no kind of this build makes; so that the error can name them.
struct KnownFormat {
  std::string_view name;
  size_t offset;
  std::string_view magic;
};
constexpr KnownFormat kKnownFormats[] = {
    {"GIF", 0, "GIF87a"sv},
    {"GIF", 0, "GIF89a"sv},
    {"WebP", 8, "WEBP"sv},
    {"TIFF", 0, "II*\0"sv},
    {"TIFF", 0, "MM\0*"sv},
    {"BigTIFF", 0, "II+\0"sv},
    {"BigTIFF", 0, "MM\0+"sv},
    {"AVIF", 4, "ftypavif"sv},
    {"AVIF", 4, "ftypavis"sv},
    {"HEIF", 4, "ftypheic"sv},
    {"HEIF", 4, "ftypheix"sv},
    {"HEIF", 4, "ftyphevc"sv},
    {"HEIF", 4, "ftypmif1"sv},
    {"HEIF", 4, "ftypmsf1"sv},
    {"JPEG 2000", 0, "\0\0\0\x0CjP  \r\n\x87\n"sv},
    {"JPEG 2000", 0, "\xFF\x4F\xFF\x51"sv},
    {"JPEG XL", 0, "\0\0\0\x0CJXL \r\n\x87\n"sv},
    {"JPEG XL", 0, "\xFF\x0A"sv},
    {"JPEG XR", 0, "II\xBC"sv},
    {"MNG", 0, "\x8AMNG\r\n\x1A\n"sv},
    {"JNG", 0, "\x8BJNG\r\n\x1A\n"sv},
    {"Photoshop", 0, "8BPS"sv},
    {"OpenEXR", 0, "\x76\x2F\x31\x01"sv},
    {"QOI", 0, "qoif"sv},
    {"PDF", 0, "%PDF-"sv},
};

bool HasAt(std::string_view text, size_t offset, std::string_view magic) {
  return text.size() >= offset && text.substr(offset).starts_with(magic);
}

// The name of a known format, or "".
std::string_view KnownFormatName(std::string_view text) {
  for (const KnownFormat& format : kKnownFormats) {
    if (HasAt(text, format.offset, format.magic)) return format.name;
  }
  // Markup may begin with a declaration and comments of any length; a picture's first tag comes
  // early.
  constexpr size_t kMarkupBytes = 1024;
  if (text.starts_with('<') && text.substr(0, kMarkupBytes).find("<svg") != text.npos) return "SVG";
  return "";
}

// The first bytes, for people: printable ASCII as it is, the rest as \xNN.
std::string ShownStart(std::string_view text) {
  constexpr size_t kShownBytes = 16;
  std::string shown;
  for (char c : text.substr(0, kShownBytes)) {
    const bool plain = c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
    shown += plain ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
  }
  return shown;
}

std::string KindNames() {
  std::string names;
  for (const DecoderKind* kind : kKinds) {
    if (!names.empty()) names += ", ";
    names += kind->name;
  }
  return names;
}

// The place in kKinds.
absl::StatusOr<size_t> Recognise(Bytes bytes) {
  if (bytes.empty()) return SampleErr(SampleReason::kEmpty, "no bytes");
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i]->matches(bytes)) return i;
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string_view format = KnownFormatName(text);
  if (!format.empty()) {
    return SampleErr(SampleReason::kUnsupported, "{} is not in this build; it has {}", format,
                     KindNames());
  }
  return SampleErr(SampleReason::kNotAnImage, "{} bytes that begin with \"{}\"; known are {}",
                   bytes.size(), ShownStart(text), KindNames());
}

}  // namespace

std::span<const DecoderKind* const> DecoderKinds() { return kKinds; }

std::string DecoderFingerprint() {
  Fingerprinter fingerprinter;
  for (const DecoderKind* kind : kKinds) {
    fingerprinter.Add(kind->name);
    fingerprinter.Add(kind->build());
  }
  return fingerprinter.Hex();
}

absl::StatusOr<const DecoderKind*> RecogniseImage(Bytes bytes) {
  BATCHD_ASSIGN_OR_RETURN(const size_t index, Recognise(bytes));
  return kKinds[index];
}

DecoderSet::DecoderSet(std::unique_ptr<ImageDecoder> for_all)
    : for_all_(std::move(for_all)),
      decoders_(std::make_unique<std::unique_ptr<ImageDecoder>[]>(kKinds.size())) {}

DecoderSet::~DecoderSet() = default;

absl::StatusOr<ImageDecoder*> DecoderSet::For(Bytes bytes) {
  BATCHD_ASSIGN_OR_RETURN(const size_t index, Recognise(bytes));
  if (for_all_ != nullptr) return for_all_.get();
  if (decoders_[index] == nullptr) decoders_[index] = kKinds[index]->make();
  return decoders_[index].get();
}

}  // namespace batchd
