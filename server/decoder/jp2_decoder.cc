// SPDX-License-Identifier: Apache-2.0
//
// JPEG 2000 through openjpeg, on one thread: JP2 files and bare codestreams.

#include <openjpeg.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/decoder.h"
#include "server/decoder/jp2_survey.h"
#include "server/decoder/size_limits.h"

namespace batchd {
namespace {

// What a picture may ask of openjpeg. It holds 4 bytes a sample, decodes some 20 million samples a
// second on one core, and the rest is there to keep what it holds besides below 300 MB.
constexpr int64_t kSamplesMax = int64_t{100} * 1000 * 1000;
constexpr int64_t kTilesMax = 1 << 14;
constexpr int64_t kPrecinctsMax = 1 << 18;
constexpr int64_t kCodeBlocksMax = 1 << 20;
constexpr int64_t kPacketsMax = 1 << 22;
constexpr int kChannelsMax = 4;

constexpr uint8_t kBoxed[12] = {0, 0, 0, 12, 'j', 'P', ' ', ' ', '\r', '\n', 0x87, '\n'};
constexpr uint8_t kBare[4] = {0xFF, 0x4F, 0xFF, 0x51};

bool Matches(Bytes bytes) {
  return (bytes.size() >= sizeof(kBoxed) &&
          std::memcmp(bytes.data(), kBoxed, sizeof(kBoxed)) == 0) ||
         (bytes.size() >= sizeof(kBare) && std::memcmp(bytes.data(), kBare, sizeof(kBare)) == 0);
}

// The bytes as openjpeg's file.
struct Input {
  Bytes bytes;
  size_t at = 0;
};

OPJ_SIZE_T OnRead(void* out, OPJ_SIZE_T count, void* user) {
  auto* const input = static_cast<Input*>(user);
  const size_t given = std::min<size_t>(count, input->bytes.size() - input->at);
  if (given == 0) return static_cast<OPJ_SIZE_T>(-1);  // the end
  std::memcpy(out, input->bytes.data() + input->at, given);
  input->at += given;
  return given;
}
OPJ_OFF_T OnSkip(OPJ_OFF_T count, void* user) {
  auto* const input = static_cast<Input*>(user);
  if (count < 0) return -1;
  const size_t left = input->bytes.size() - input->at;
  const size_t skipped = std::min(static_cast<size_t>(count), left);
  if (skipped == 0 && count > 0) return -1;
  input->at += skipped;
  return static_cast<OPJ_OFF_T>(skipped);
}
OPJ_BOOL OnSeek(OPJ_OFF_T to, void* user) {
  auto* const input = static_cast<Input*>(user);
  if (to < 0 || static_cast<size_t>(to) > input->bytes.size()) return OPJ_FALSE;
  input->at = static_cast<size_t>(to);
  return OPJ_TRUE;
}

void OnError(const char* text, void* user) {
  auto* const error = static_cast<std::string*>(user);
  if (!error->empty()) return;  // the first one says most
  *error = text;
  while (!error->empty() && error->back() == '\n') error->pop_back();
}

struct DestroyCodec {
  void operator()(opj_codec_t* codec) const { opj_destroy_codec(codec); }
};
struct DestroyStream {
  void operator()(opj_stream_t* stream) const { opj_stream_destroy(stream); }
};
struct DestroyImage {
  void operator()(opj_image_t* image) const { opj_image_destroy(image); }
};

absl::Status CheckKind(const Jp2Survey& survey, size_t size_bytes) {
  using enum SampleReason;
  if (!survey.has_size) {
    return SampleErr(survey.state == Jp2Survey::State::kTruncated ? kTruncated : kCorrupt,
                     "no picture size in {} bytes", size_bytes);
  }
  if (survey.channels < 1 || survey.channels > kChannelsMax ||
      survey.palette_channels > kChannelsMax) {
    return SampleErr(kUnsupported, "{} channels, {} of a palette; 1 to {} are handled",
                     survey.channels, survey.palette_channels, kChannelsMax);
  }
  if (survey.is_subsampled) return SampleErr(kUnsupported, "channels of fewer samples than pixels");
  return absl::OkStatus();
}

absl::Status CheckWork(const Jp2Survey& survey) {
  struct Limit {
    std::string_view what;
    double value;
    int64_t limit;
  };
  const int channels = std::max(survey.channels, survey.palette_channels);
  for (const Limit& l :
       {Limit{"samples", double(survey.width) * double(survey.height) * channels, kSamplesMax},
        Limit{"tiles", double(survey.tiles), kTilesMax},
        Limit{"precincts", survey.precincts, kPrecinctsMax},
        Limit{"code blocks", survey.code_blocks, kCodeBlocksMax},
        Limit{"packets", survey.packets, kPacketsMax}}) {
    if (l.value <= static_cast<double>(l.limit)) continue;
    return SampleErr(SampleReason::kTooLarge, "a JPEG 2000 of {:.0f} {}; the limit is {}", l.value,
                     l.what, l.limit);
  }
  return absl::OkStatus();
}

// A sample as 8 bits: more bits by the high byte, fewer scaled.
class Scale {
 public:
  explicit Scale(const opj_image_comp_t& channel)
      : data_(channel.data),
        offset_(channel.sgnd != 0 ? int64_t{1} << (channel.prec - 1) : 0),
        maximum_((int64_t{1} << channel.prec) - 1),
        shift_(static_cast<int>(channel.prec) - 8) {}

  uint8_t At(size_t i) const {
    const int64_t value = std::clamp<int64_t>(data_[i] + offset_, 0, maximum_);
    return static_cast<uint8_t>(shift_ >= 0 ? value >> shift_ : value * 255 / maximum_);
  }

 private:
  const OPJ_INT32* const data_;
  const int64_t offset_;
  const int64_t maximum_;
  const int shift_;
};

absl::Status PutImage(const opj_image_t& image, const Box& region, Scratch* scratch,
                      RowSink* sink) {
  if (image.color_space == OPJ_CLRSPC_SYCC || image.color_space == OPJ_CLRSPC_EYCC ||
      image.color_space == OPJ_CLRSPC_CMYK) {
    return SampleErr(SampleReason::kUnsupported,
                     "a JPEG 2000 of colour space {}; grey and RGB are "
                     "handled",
                     static_cast<int>(image.color_space));
  }
  const OPJ_UINT32 used = image.numcomps >= 3 ? 3 : 1;
  for (OPJ_UINT32 c = 0; c < used; ++c) {
    const opj_image_comp_t& channel = image.comps[c];
    if (channel.data == nullptr || channel.w != static_cast<OPJ_UINT32>(region.width) ||
        channel.h != static_cast<OPJ_UINT32>(region.height) || channel.prec < 1 ||
        channel.prec > 31) {
      return SampleErr(SampleReason::kCorrupt, "channel {} has {}x{} samples of {} bits", c,
                       channel.w, channel.h, channel.prec);
    }
  }
  const Scale channels[3] = {Scale(image.comps[0]), Scale(image.comps[used == 3 ? 1 : 0]),
                             Scale(image.comps[used == 3 ? 2 : 0])};
  const size_t width = static_cast<size_t>(region.width);
  uint8_t* const rgb = scratch->Get(ScratchArea::kDecoder, 3 * width);
  for (size_t y = 0; y < static_cast<size_t>(region.height); ++y) {
    for (size_t x = 0; x < width; ++x) {
      for (size_t c = 0; c < 3; ++c) rgb[3 * x + c] = channels[c].At(y * width + x);
    }
    sink->PutRows(rgb, 0, 1);
  }
  return absl::OkStatus();
}

class Jp2Decoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    const Jp2Survey survey = SurveyJp2(bytes);
    BATCHD_RETURN_IF_ERROR(CheckKind(survey, bytes.size()));
    return CheckedSize(survey.height, survey.width, limits);
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch* scratch, RowSink* sink) override {
    const Jp2Survey survey = SurveyJp2(bytes);
    BATCHD_RETURN_IF_ERROR(CheckKind(survey, bytes.size()));
    BATCHD_CHECK(
        LiesInside(region, {static_cast<int>(survey.height), static_cast<int>(survey.width)}));
    if (survey.state == Jp2Survey::State::kTruncated) {
      return SampleErr(SampleReason::kTruncated, "{} bytes end inside of a tile", bytes.size());
    }
    if (survey.state == Jp2Survey::State::kCorrupt) {
      return SampleErr(SampleReason::kCorrupt, "not a valid JPEG 2000 stream of {} bytes",
                       bytes.size());
    }
    BATCHD_RETURN_IF_ERROR(CheckWork(survey));
    return DecodeArea(bytes, survey, region, scratch, sink);
  }

 private:
  static absl::Status DecodeArea(Bytes bytes, const Jp2Survey& survey, const Box& region,
                                 Scratch* scratch, RowSink* sink) {
    Input input = {bytes};
    std::string error;
    const std::unique_ptr<opj_codec_t, DestroyCodec> codec(
        opj_create_decompress(survey.is_boxed ? OPJ_CODEC_JP2 : OPJ_CODEC_J2K));
    const std::unique_ptr<opj_stream_t, DestroyStream> stream(
        opj_stream_create(OPJ_J2K_STREAM_CHUNK_SIZE, OPJ_TRUE));
    if (codec == nullptr || stream == nullptr) {
      return Err(absl::StatusCode::kResourceExhausted, "no memory to decode a JPEG 2000");
    }
    opj_set_error_handler(codec.get(), OnError, &error);
    opj_stream_set_read_function(stream.get(), OnRead);
    opj_stream_set_skip_function(stream.get(), OnSkip);
    opj_stream_set_seek_function(stream.get(), OnSeek);
    opj_stream_set_user_data(stream.get(), &input, nullptr);
    opj_stream_set_user_data_length(stream.get(), bytes.size());
    opj_dparameters_t parameters;
    opj_set_default_decoder_parameters(&parameters);
    opj_image_t* made = nullptr;
    const bool has_header = opj_setup_decoder(codec.get(), &parameters) != OPJ_FALSE &&
                            opj_decoder_set_strict_mode(codec.get(), OPJ_TRUE) != OPJ_FALSE &&
                            opj_read_header(stream.get(), codec.get(), &made) != OPJ_FALSE;
    const std::unique_ptr<opj_image_t, DestroyImage> image(made);
    if (!has_header) return Corrupt(error);
    const auto left = static_cast<OPJ_INT32>(image->x0) + region.left;
    const auto top = static_cast<OPJ_INT32>(image->y0) + region.top;
    if (opj_set_decode_area(codec.get(), image.get(), left, top, left + region.width,
                            top + region.height) == OPJ_FALSE ||
        opj_decode(codec.get(), stream.get(), image.get()) == OPJ_FALSE) {
      return Corrupt(error);
    }
    return PutImage(*image, region, scratch, sink);
  }

  static absl::Status Corrupt(const std::string& error) {
    return SampleErr(SampleReason::kCorrupt, "{}",
                     error.empty() ? "not a valid JPEG 2000 stream" : error);
  }
};

}  // namespace

extern const DecoderKind kJp2Decoder;
const DecoderKind kJp2Decoder = {
    .name = "jp2",
    .sentence = "JPEG 2000, as JP2 and as a bare codestream: grey and RGB.",
    .matches = Matches,
    .make = []() -> std::unique_ptr<ImageDecoder> { return std::make_unique<Jp2Decoder>(); },
    .build = [] { return fmt::format("openjpeg {}", opj_version()); },
};

}  // namespace batchd
