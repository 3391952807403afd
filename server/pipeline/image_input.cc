// SPDX-License-Identifier: Apache-2.0

#include "server/pipeline/image_input.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/base/clock.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;
constexpr double kPixelsMax = 4294836225.0;  // 65535 x 65535, the largest JPEG
constexpr uint8_t kMissing = 128;  // rows that a damaged picture lacks, as libjpeg fills them

// Where a decoder's rows arrive: adds up the time that is spent behind it, and counts them.
class TimedSink final : public RowSink {
 public:
  TimedSink(RowSink* next, Duration* spent) : next_(next), spent_(spent) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    const TimePoint started = Clock::Real()->Now();
    next_->PutRows(rgb, stride_bytes, row_count);
    *spent_ += Clock::Real()->Now() - started;
    rows_ += row_count;
  }
  int rows() const { return rows_; }

 private:
  RowSink* const next_;
  Duration* const spent_;
  int rows_ = 0;
};

// Whether what is wrong with a picture may leave good rows.
bool IsDamage(const absl::Status& status) {
  const std::optional<SampleReason> reason = SampleReasonOf(status);
  return reason == SampleReason::kTruncated || reason == SampleReason::kCorrupt;
}

// What both kinds have.
std::vector<Param> PictureParams() {
  return {{.name = "max_pixels",
           .type = ParamType::kInt,
           .sentence = "The most pixels a picture may have, as stored and after each operation; "
                       "above it is too_large.",
           .default_value = 50000000,
           .min = 1,
           .max = kPixelsMax},
          {.name = "max_encoded_bytes",
           .type = ParamType::kInt,
           .sentence = "The most bytes a sample may have; above it is too_large.",
           .default_value = 67108864,
           .min = 1,
           .max = 4294967296.0},
          {.name = "orientation",
           .type = ParamType::kString,
           .sentence = "Pixels as they are stored, or turned upright as EXIF says.",
           .default_value = "stored",
           .choices = {"stored", "upright"}}};
}

Param GeometryParam() {
  return {.name = "geometry",
          .type = ParamType::kString,
          .sentence =
              "A name that columns have in common whose pictures are to be cut, flipped and "
              "turned alike; empty: alike with none.",
          .default_value = ""};
}

// The kinds that have masks.
std::string MaskKindNames() {
  std::vector<std::string_view> names;
  for (const DecoderKind* kind : DecoderKinds()) {
    if (kind->has_masks) names.push_back(kind->name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

const Schema& ImageInput::ImageSchema() {
  static const auto* const schema = [] {
    auto* const made = new Schema{
        .name = "DecodeImage",
        .sentence = "Decodes the sample's picture to 8-bit RGB, height x width x channels.",
        .params = PictureParams()};
    made->params.push_back(
        {.name = "damaged",
         .type = ParamType::kString,
         .sentence = "What a truncated or corrupt picture is: a bad sample, or one whose good rows "
                     "are taken and the rest is grey, and counted.",
         .default_value = "raise",
         .choices = {"raise", "accept"}});
    made->params.push_back(
        {.name = "decode",
         .type = ParamType::kString,
         .sentence = "Pillow's pixels, or less exact ones where that is faster: a JPEG's chroma is "
                     "repeated, and a box that is made smaller by half or more is decoded at a "
                     "half, quarter or eighth of its size.",
         .default_value = "exact",
         .choices = {"exact", "fast"}});
    made->params.push_back(GeometryParam());
    return made;
  }();
  return *schema;
}

const Schema& ImageInput::MaskSchema() {
  static const auto* const schema = [] {
    auto* const made = new Schema{
        .name = "DecodeMask",
        .sentence =
            "Decodes the sample's picture to class numbers, height x width: indices of a "
            "palette, or grey levels. PNG, TIFF, BMP and PGM of 8 bits at most. Only crops, "
            "flips, turns and resizes may follow, and all take the nearest pixel.",
        .params = PictureParams()};
    made->params.push_back({.name = "dtype",
                            .type = ParamType::kString,
                            .sentence = "The type of the values; torch's losses want int64.",
                            .default_value = "uint8",
                            .choices = {"uint8", "int64"}});
    made->params.push_back(GeometryParam());
    return made;
  }();
  return *schema;
}

ImageInput::ImageInput(const Schema& schema, const Json& arguments)
    : schema_(schema),
      limits_{.pixels_max = arguments["max_pixels"].get<int64_t>(),
              .goes_on_over_damage = arguments.value("damaged", "raise") == "accept",
              .is_fast = arguments.value("decode", "exact") == "fast",
              .as_mask = &schema == &MaskSchema()},
      encoded_bytes_max_(arguments["max_encoded_bytes"].get<int64_t>()),
      upright_(arguments["orientation"] == "upright") {}

absl::StatusOr<OpenedPicture> ImageInput::Open(Bytes bytes, Worker* worker) const {
  // The plan's limit on bytes in flight is that of its most generous column.
  if (static_cast<int64_t>(bytes.size()) > encoded_bytes_max_) {
    return SampleErr(SampleReason::kTooLarge, "{} bytes; at most {} (max_encoded_bytes of {})",
                     bytes.size(), encoded_bytes_max_, schema_.name);
  }
  if (is_mask()) {
    BATCHD_ASSIGN_OR_RETURN(const DecoderKind* const kind, RecogniseImage(bytes));
    if (!kind->has_masks) {
      return SampleErr(SampleReason::kUnsupported, "masks are read from {}; this is {}",
                       MaskKindNames(), kind->name);
    }
  }
  OpenedPicture picture = {.bytes = bytes, .orientation = 1};
  BATCHD_ASSIGN_OR_RETURN(picture.decoder, worker->decoders.For(bytes));
  BATCHD_ASSIGN_OR_RETURN(picture.stored, picture.decoder->ReadHeader(bytes, limits_));
  if (upright_) picture.orientation = picture.decoder->Orientation(bytes);
  return picture;
}

bool ImageInput::Reduce(const OpenedPicture& picture, std::span<PicturePlan> plans) const {
  // A turned picture's rounded-up side would be at its other end.
  if (!limits_.is_fast || picture.orientation != 1) return true;
  const int reduction = plans[0].ReductionMax();
  const bool is_one = std::all_of(plans.begin(), plans.end(), [&](const PicturePlan& plan) {
    return plan.ReductionMax() == reduction;
  });
  if (!is_one) return !picture.decoder->Reduce(kReductionMax);
  if (reduction == 1 || !picture.decoder->Reduce(reduction)) return true;
  for (PicturePlan& plan : plans) plan.Reduce(reduction);
  return true;
}

absl::Status ImageInput::Decode(const OpenedPicture& picture, const Box& region, int good_rows_min,
                                RowSink* sink, Worker* worker) const {
  const TimePoint started = Clock::Real()->Now();
  std::optional<UprightRows> turned;
  if (picture.orientation != 1) {
    turned.emplace(picture.orientation, picture.stored, region, sink, &worker->scratch);
    sink = &*turned;
  }
  const Box part = picture.StoredPart(region);
  Duration sink_time(0);
  TimedSink timed(sink, &sink_time);
  absl::Status decoded = picture.decoder->Decode(picture.bytes, part, &worker->scratch, &timed);
  if (limits_.goes_on_over_damage && IsDamage(decoded) && timed.rows() >= good_rows_min) {
    const size_t row_bytes = size_t{kChannels} * static_cast<size_t>(part.width);
    uint8_t* const grey = worker->scratch.Get(ScratchArea::kDecoder, row_bytes);
    std::memset(grey, kMissing, row_bytes);
    while (timed.rows() < part.height) timed.PutRows(grey, 0, 1);
    ++worker->damaged_count;
    decoded = absl::OkStatus();
  }
  worker->decode_time += Clock::Real()->Now() - started - sink_time;
  worker->transform_time += sink_time;
  return decoded;
}

}  // namespace batchd
