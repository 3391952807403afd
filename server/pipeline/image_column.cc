// SPDX-License-Identifier: Apache-2.0
//
// DecodeImage and what follows it. The geometry of a sample is known from its header and its draws,
// so only the box that the first stage needs is decoded; the last step writes the values into the
// row.

#include <algorithm>
#include <cstring>
#include <optional>

#include "server/base/check.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/image/orientation.h"
#include "server/image/row_pipeline.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;
constexpr int kProbesMax = 16;
constexpr double kPixelsMax = 4294836225.0;  // 65535 x 65535, the largest JPEG

// Scratch of one sample in bytes per pixel of DecodeImage's max_pixels, which also limits what each
// stage makes: a progressive JPEG's coefficients (up to four channels of 16 bits), the decoded box,
// the output of a stage, and what lies between the two passes of a resize, which is never more than
// the larger of the resize's input and output.
constexpr int64_t kCoefficientBytesPerPixel = 2 * 4;
constexpr int64_t kPictureBytesPerPixel = 3 * kChannels;
constexpr uint8_t kMissing = 128;  // rows that a damaged picture lacks, as libjpeg fills them
// Tables of a resize: at most 2 * 3 * 65535 + 5 * 65535 weights for each side, and the decoder's
// rows.
constexpr int64_t kTableBytes = int64_t{16} << 20;

const Schema& GetSchema() {
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
                  .choices = {"raise", "accept"}}}};
  return *schema;
}

// The end of a sample's rows: through the value table into the row of the batch.
class RowWriter final : public RowSink {
 public:
  RowWriter(const ValueTable& table, Layout layout, ImageSize size, uint8_t* out)
      : table_(table), layout_(layout), size_(size), out_(out) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    BATCHD_CHECK(rows_ + row_count <= size_.height);
    table_.WriteRows({rgb, row_count, size_.width, stride_bytes}, rows_, size_.height, layout_,
                     out_);
    rows_ += row_count;
  }
  bool done() const { return rows_ == size_.height; }

 private:
  const ValueTable& table_;
  const Layout layout_;
  const ImageSize size_;
  uint8_t* const out_;
  int rows_ = 0;
};

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

// A large picture's share of the scratch budget. What threads keep for small ones is not counted.
class ScratchShare {
 public:
  ScratchShare(ByteGate* gate, int64_t size_bytes)
      : gate_(size_bytes > static_cast<int64_t>(kScratchKeepBytes) ? gate : nullptr),
        size_bytes_(size_bytes) {
    if (gate_ != nullptr) gate_->Acquire(size_bytes_);
  }
  ~ScratchShare() {
    if (gate_ != nullptr) gate_->Release(size_bytes_);
  }
  ScratchShare(const ScratchShare&) = delete;
  ScratchShare& operator=(const ScratchShare&) = delete;

 private:
  ByteGate* const gate_;
  const int64_t size_bytes_;
};

struct Step {
  std::unique_ptr<Transform> transform;
  uint16_t op_id;
};

int64_t PixelsOf(ImageSize size) { return int64_t{size.height} * size.width; }

// A picture whose header has been read.
struct OpenedPicture {
  ImageDecoder* decoder;
  Bytes bytes;
  ImageSize stored;
  int orientation;  // 1 unless it is to be turned upright

  ImageSize size() const { return UprightSize(stored, orientation); }
};

class ImageColumn : public ColumnPlan {
 public:
  ImageColumn(std::string path, std::vector<Step> steps, const DecodeLimits& limits,
              int64_t encoded_bytes_max, bool upright)
      : path_(std::move(path)),
        steps_(std::move(steps)),
        limits_(limits),
        encoded_bytes_max_(encoded_bytes_max),
        upright_(upright) {}

  // Runs the operations' Prepare; `operations` are those of steps_, for their paths.
  absl::Status Prepare(const std::string& name, std::span<const CheckedOperation> operations);
  // Fixes the size of the rows, by looking at samples where it depends on the picture.
  absl::Status FixSize(const Dataset& dataset, DecodeIsolation* isolation);

  const ColumnShape& shape() const override { return shape_; }
  bool needs_bytes() const override { return true; }
  absl::Status MakeRow(const Dataset& dataset, Bytes bytes, const DrawKey& key, Worker* worker,
                       uint8_t* out) const override;
  void MakeSkippedRow(uint8_t* out) const override {
    std::memset(out, 0, static_cast<size_t>(shape_.row_size_bytes));
  }

 private:
  absl::StatusOr<OpenedPicture> Open(Bytes bytes, Worker* worker) const;
  absl::StatusOr<GeometryPlan> PlanGeometry(ImageSize picture, DrawKey key) const;
  absl::StatusOr<ImageSize> ProbeSample(const Dataset& dataset, int64_t ordinal,
                                        Worker* worker) const;
  absl::Status WrongSize(const Dataset& dataset, const DrawKey& key, ImageSize size) const;
  absl::Status DecodeAndTransform(const OpenedPicture& picture, const GeometryPlan& plan,
                                  Worker* worker, uint8_t* out) const;
  absl::Status AcceptDamage(const absl::Status& status, const Box& region, TimedSink* sink,
                            Worker* worker) const;

  const std::string path_;
  const std::vector<Step> steps_;
  const DecodeLimits limits_;
  const int64_t encoded_bytes_max_;
  const bool upright_;
  RowFormat format_;
  ValueTable table_;
  ImageSize size_;
  int64_t size_from_ordinal_ = -1;  // whose size it is; -1: that of the operations
  ColumnShape shape_;
};

absl::Status ImageColumn::Prepare(const std::string& name,
                                  std::span<const CheckedOperation> operations) {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const absl::Status prepared = steps_[i].transform->Prepare(&format_, &table_);
    if (!prepared.ok()) {
      return FieldErr(operations[i].path, "{}", std::string(prepared.message()));
    }
  }
  shape_.name = name;
  shape_.dtype = format_.dtype;
  return absl::OkStatus();
}

absl::Status ImageColumn::FixSize(const Dataset& dataset, DecodeIsolation* isolation) {
  // Any picture tells whether the operations fit into a plan at all.
  const absl::Status trial = PlanGeometry({743, 509}, DrawKey{}).status();
  if (trial.code() == absl::StatusCode::kFailedPrecondition) {
    return FieldErr(path_, "{}", std::string(trial.message()));
  }
  if (format_.size.has_value()) {
    size_ = *format_.size;
    if (PixelsOf(size_) > limits_.pixels_max) {
      return FieldErr(path_,
                      "a row of {}x{} (height x width) has more than max_pixels={}; make it "
                      "smaller or raise max_pixels of DecodeImage",
                      size_.height, size_.width, limits_.pixels_max);
    }
  } else {
    Worker worker(isolation);
    const auto probes = static_cast<int>(std::min<int64_t>(kProbesMax, dataset.num_samples()));
    absl::Status first_error;
    for (int i = 0; i < probes && size_from_ordinal_ < 0; ++i) {
      const auto size = ProbeSample(dataset, i, &worker);
      if (size.ok()) {
        size_ = *size;
        size_from_ordinal_ = i;
      } else if (!SampleReasonOf(size.status()).has_value()) {
        return Annotate(size.status(), dataset.NameOf(i));  // the storage, not the sample
      } else if (first_error.ok()) {
        first_error = Annotate(size.status(), dataset.NameOf(i));
      }
    }
    if (size_from_ordinal_ < 0) {
      return FieldErr(path_,
                      "the size of rows follows the pictures, and none of the first {} can be read "
                      "({}); add T.Resize((h, w)) or a crop",
                      probes, std::string(first_error.message()));
    }
  }
  shape_.shape = format_.layout == Layout::kHwc
                     ? std::vector<int64_t>{size_.height, size_.width, kChannels}
                     : std::vector<int64_t>{kChannels, size_.height, size_.width};
  shape_.row_size_bytes = PixelsOf(size_) * kChannels * DTypeSizeBytes(shape_.dtype);
  return absl::OkStatus();
}

absl::StatusOr<ImageSize> ImageColumn::ProbeSample(const Dataset& dataset, int64_t ordinal,
                                                   Worker* worker) const {
  dataset.Locate(ordinal, &worker->location);
  BATCHD_RETURN_IF_ERROR(dataset.source()->Read(
      worker->location, static_cast<size_t>(encoded_bytes_max_), &worker->encoded));
  BATCHD_ASSIGN_OR_RETURN(const OpenedPicture picture, Open(worker->encoded.bytes(), worker));
  // What is drawn at random has a fixed size, so that any seed gives this one.
  DrawKey key;
  key.ordinal = static_cast<uint64_t>(ordinal);
  BATCHD_ASSIGN_OR_RETURN(const GeometryPlan plan, PlanGeometry(picture.size(), key));
  return plan.output();
}

absl::StatusOr<OpenedPicture> ImageColumn::Open(Bytes bytes, Worker* worker) const {
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

absl::StatusOr<GeometryPlan> ImageColumn::PlanGeometry(ImageSize picture, DrawKey key) const {
  GeometryPlan plan(picture);
  for (const Step& step : steps_) {
    key.op_id = step.op_id;
    Draws draws(key);
    BATCHD_RETURN_IF_ERROR(step.transform->Plan(&plan, &draws));
  }
  for (int i = 0; i < plan.stage_count(); ++i) {
    const ImageSize size = plan.stage(i).output();
    if (PixelsOf(size) <= limits_.pixels_max) continue;
    return SampleErr(
        SampleReason::kTooLarge,
        "the operations make {}x{} (height x width) of a picture of {}x{}; max_pixels is {}",
        size.height, size.width, picture.height, picture.width, limits_.pixels_max);
  }
  return plan;
}

absl::Status ImageColumn::WrongSize(const Dataset& dataset, const DrawKey& key,
                                    ImageSize size) const {
  BATCHD_CHECK(size_from_ordinal_ >= 0);  // else the operations have promised the size
  return FieldErr(path_,
                  "sample {} makes rows of {}x{} (height x width), but sample {} made them {}x{}, "
                  "and all rows of a column have one size; add T.Resize((h, w)) or a crop",
                  dataset.NameOf(static_cast<int64_t>(key.ordinal)), size.height, size.width,
                  dataset.NameOf(size_from_ordinal_), size_.height, size_.width);
}

absl::Status ImageColumn::MakeRow(const Dataset& dataset, Bytes bytes, const DrawKey& key,
                                  Worker* worker, uint8_t* out) const {
  BATCHD_ASSIGN_OR_RETURN(const OpenedPicture picture, Open(bytes, worker));
  BATCHD_ASSIGN_OR_RETURN(const GeometryPlan plan, PlanGeometry(picture.size(), key));
  if (plan.output() != size_) return WrongSize(dataset, key, plan.output());
  int64_t pixels = PixelsOf(picture.stored);
  for (int i = 0; i < plan.stage_count(); ++i) {
    pixels = std::max(pixels, PixelsOf(plan.stage(i).output()));
  }
  const ScratchShare share(worker->scratch_gate,
                           pixels * (kCoefficientBytesPerPixel + kPictureBytesPerPixel));
  const absl::Status made = DecodeAndTransform(picture, plan, worker, out);
  worker->scratch.ReleaseLarge();
  return made;
}

absl::Status ImageColumn::DecodeAndTransform(const OpenedPicture& picture, const GeometryPlan& plan,
                                             Worker* worker, uint8_t* out) const {
  const TimePoint started = Clock::Real()->Now();
  Duration transform_time(0);
  RowWriter writer(table_, format_.layout, size_, out);
  RowPipeline pipeline(plan, &writer, &worker->scratch);
  std::optional<UprightRows> turned;
  if (picture.orientation != 1) {
    turned.emplace(picture.orientation, picture.stored, pipeline.region(), &pipeline,
                   &worker->scratch);
  }
  const Box& region = turned.has_value() ? turned->region() : pipeline.region();
  TimedSink sink(turned.has_value() ? static_cast<RowSink*>(&*turned) : &pipeline, &transform_time);
  transform_time += Clock::Real()->Now() - started;
  absl::Status decoded = picture.decoder->Decode(picture.bytes, region, &worker->scratch, &sink);
  if (!decoded.ok()) decoded = AcceptDamage(decoded, region, &sink, worker);
  worker->transform_time += transform_time;
  worker->decode_time += Clock::Real()->Now() - started - transform_time;
  BATCHD_RETURN_IF_ERROR(decoded);
  BATCHD_CHECK(writer.done());
  return absl::OkStatus();
}

// The rows that have not come, in grey; the error stays if it is no damage, or not one row is good.
absl::Status ImageColumn::AcceptDamage(const absl::Status& status, const Box& region,
                                       TimedSink* sink, Worker* worker) const {
  if (!limits_.goes_on_over_damage || !IsDamage(status) || sink->rows() == 0) return status;
  const size_t row_bytes = size_t{kChannels} * region.width;
  uint8_t* const grey = worker->scratch.Get(ScratchArea::kDecoder, row_bytes);
  std::memset(grey, kMissing, row_bytes);
  while (sink->rows() < region.height) sink->PutRows(grey, 0, 1);
  ++worker->damaged_count;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Step>> MakeSteps(std::span<const CheckedOperation> operations) {
  std::vector<Step> steps;
  for (const CheckedOperation& operation : operations) {
    auto transform = operation.kind->make(operation.arguments);
    if (!transform.ok()) {
      // The field is relative to the operation, and the message begins with it.
      const std::string field = FieldOf(transform.status());
      const std::string message(transform.status().message());
      return MakeFieldError(operation.path + "." + field, message.substr(field.size() + 2));
    }
    steps.push_back({std::move(*transform), operation.op_id});
  }
  return steps;
}

absl::StatusOr<MadeColumn> Make(const CheckedColumn& column, const Dataset& dataset,
                                DecodeIsolation* isolation) {
  const Json& arguments = column.operations[0].arguments;
  const DecodeLimits limits = {.pixels_max = arguments["max_pixels"].get<int64_t>(),
                               .goes_on_over_damage = arguments["damaged"] == "accept"};
  MadeColumn made;
  made.encoded_bytes_max = arguments["max_encoded_bytes"].get<int64_t>();
  made.scratch_bytes_max =
      limits.pixels_max * (kCoefficientBytesPerPixel + kPictureBytesPerPixel) + kTableBytes;
  const auto operations = std::span(column.operations).subspan(1);
  BATCHD_ASSIGN_OR_RETURN(std::vector<Step> steps, MakeSteps(operations));
  auto plan =
      std::make_unique<ImageColumn>(column.path, std::move(steps), limits, made.encoded_bytes_max,
                                    arguments["orientation"] == "upright");
  BATCHD_RETURN_IF_ERROR(plan->Prepare(column.name, operations));
  BATCHD_RETURN_IF_ERROR(plan->FixSize(dataset, isolation));
  made.plan = std::move(plan);
  return made;
}

}  // namespace

const ColumnSource kDecodeImage = {&GetSchema, &Make};

}  // namespace batchd
