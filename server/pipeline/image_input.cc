// SPDX-License-Identifier: Apache-2.0

#include "server/pipeline/image_input.h"

#include <algorithm>
#include <cstring>
#include <optional>

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

}  // namespace

const Schema& ImageInput::GetSchema() {
  static const auto* const schema = new Schema{
      .name = "DecodeImage",
      .sentence = "Decodes the sample's picture to 8-bit RGB, height x width x channels.",
      .params = {{.name = "max_pixels",
                  .type = ParamType::kInt,
                  .sentence = "The most pixels a picture may have, as stored and after each "
                              "operation; above it is too_large.",
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
                  .choices = {"stored", "upright"}},
                 {.name = "damaged",
                  .type = ParamType::kString,
                  .sentence = "What a truncated or corrupt picture is: a bad sample, or one whose "
                              "good rows are taken and the rest is grey, and counted.",
                  .default_value = "raise",
                  .choices = {"raise", "accept"}},
                 {.name = "decode",
                  .type = ParamType::kString,
                  .sentence = "Pillow's pixels, or less exact ones where that is faster: a JPEG's "
                              "chroma is repeated, and a box that is made smaller by half or more "
                              "is decoded at a half, quarter or eighth of its size.",
                  .default_value = "exact",
                  .choices = {"exact", "fast"}}}};
  return *schema;
}

ImageInput::ImageInput(const Json& arguments)
    : limits_{.pixels_max = arguments["max_pixels"].get<int64_t>(),
              .goes_on_over_damage = arguments["damaged"] == "accept",
              .is_fast = arguments["decode"] == "fast"},
      encoded_bytes_max_(arguments["max_encoded_bytes"].get<int64_t>()),
      upright_(arguments["orientation"] == "upright") {}

absl::StatusOr<OpenedPicture> ImageInput::Open(Bytes bytes, Worker* worker) const {
  // The plan's limit on bytes in flight is that of its most generous column.
  if (static_cast<int64_t>(bytes.size()) > encoded_bytes_max_) {
    return SampleErr(SampleReason::kTooLarge,
                     "{} bytes; at most {} (max_encoded_bytes of DecodeImage)", bytes.size(),
                     encoded_bytes_max_);
  }
  OpenedPicture picture = {.bytes = bytes, .orientation = 1};
  BATCHD_ASSIGN_OR_RETURN(picture.decoder, worker->decoders.For(bytes));
  BATCHD_ASSIGN_OR_RETURN(picture.stored, picture.decoder->ReadHeader(bytes, limits_));
  if (upright_) picture.orientation = picture.decoder->Orientation(bytes);
  return picture;
}

void ImageInput::Reduce(const OpenedPicture& picture, std::span<PicturePlan> plans) const {
  // A turned picture's rounded-up side would be at its other end.
  if (!limits_.is_fast || picture.orientation != 1) return;
  int reduction = kReductionMax;
  for (const PicturePlan& plan : plans) reduction = std::min(reduction, plan.ReductionMax());
  if (reduction == 1 || !picture.decoder->Reduce(reduction)) return;
  for (PicturePlan& plan : plans) plan.Reduce(reduction);
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
