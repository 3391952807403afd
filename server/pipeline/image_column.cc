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
#include "server/image/picture_run.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;
constexpr int kProbesMax = 16;
constexpr double kPixelsMax = 4294836225.0;  // 65535 x 65535, the largest JPEG

// Scratch of one sample in bytes per pixel of DecodeImage's max_pixels, which also limits what each
// operation makes: a progressive JPEG's coefficients (up to four channels of 16 bits), and three
// pictures. These are, while the rows come, what turns them upright, what flips them vertically and
// what the first step works on; after that, when the decoder's memory is given back, the two
// pictures of the steps and what flips.
constexpr int64_t kBytesPerPixel = 2 * 4 + 3 * kChannels;
// What a step takes beside, at most, of a small picture.
constexpr int64_t kStepBytesPerPixel = 4 * kChannels;
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
  ImageColumn(std::string path, std::vector<Operation> operations, const DecodeLimits& limits,
              int64_t encoded_bytes_max, bool upright)
      : path_(std::move(path)),
        operations_(std::move(operations)),
        limits_(limits),
        encoded_bytes_max_(encoded_bytes_max),
        upright_(upright) {}

  // Runs the operations' Prepare.
  absl::Status Prepare(const std::string& name);
  // Fixes the size of the rows, by looking at samples where it depends on the picture.
  absl::Status FixSize(const Dataset& dataset);
  // The most scratch that a sample may take, in bytes.
  int64_t scratch_bytes_max() const {
    return limits_.pixels_max * kBytesPerPixel + kTableBytes + format_.step_bytes;
  }

  const ColumnShape& shape() const override { return shape_; }
  bool needs_bytes() const override { return true; }
  absl::Status MakeRow(const Dataset& dataset, Bytes bytes, const DrawKey& key, Worker* worker,
                       uint8_t* out) const override;
  void MakeSkippedRow(uint8_t* out) const override {
    std::memset(out, 0, static_cast<size_t>(shape_.row_size_bytes));
  }

 private:
  absl::StatusOr<OpenedPicture> Open(Bytes bytes, Worker* worker) const;
  absl::Status PlanPicture(ImageSize picture, const DrawKey& key, PicturePlan* plan) const;
  absl::StatusOr<ImageSize> ProbeSample(const Dataset& dataset, int64_t ordinal,
                                        Worker* worker) const;
  absl::Status WrongSize(const Dataset& dataset, const DrawKey& key, ImageSize size) const;
  absl::Status DecodeAndTransform(const OpenedPicture& picture, const PicturePlan& plan,
                                  Worker* worker, uint8_t* out) const;
  absl::Status AcceptDamage(const absl::Status& status, const Box& region, TimedSink* sink,
                            Worker* worker) const;

  const std::string path_;
  const std::vector<Operation> operations_;
  const DecodeLimits limits_;
  const int64_t encoded_bytes_max_;
  const bool upright_;
  RowFormat format_;
  ValueTable table_;
  ImageSize size_;
  int64_t size_from_ordinal_ = -1;  // whose size it is; -1: that of the operations
  ColumnShape shape_;
};

absl::Status ImageColumn::Prepare(const std::string& name) {
  BATCHD_RETURN_IF_ERROR(PrepareOperations(operations_, &format_, &table_));
  shape_.name = name;
  shape_.dtype = format_.dtype;
  return absl::OkStatus();
}

absl::Status ImageColumn::FixSize(const Dataset& dataset) {
  if (format_.size.has_value()) {
    size_ = *format_.size;
    if (PixelsOf(size_) > limits_.pixels_max) {
      return FieldErr(path_,
                      "a row of {}x{} (height x width) has more than max_pixels={}; make it "
                      "smaller or raise max_pixels of DecodeImage",
                      size_.height, size_.width, limits_.pixels_max);
    }
  } else {
    Worker worker;
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
                     ? std::vector<int64_t>{size_.height, size_.width, format_.channels}
                     : std::vector<int64_t>{format_.channels, size_.height, size_.width};
  shape_.row_size_bytes = PixelsOf(size_) * format_.channels * DTypeSizeBytes(shape_.dtype);
  return absl::OkStatus();
}

absl::StatusOr<ImageSize> ImageColumn::ProbeSample(const Dataset& dataset, int64_t ordinal,
                                                   Worker* worker) const {
  dataset.Locate(ordinal, &worker->location);
  BATCHD_RETURN_IF_ERROR(dataset.source()->Read(
      worker->location, static_cast<size_t>(encoded_bytes_max_), &worker->encoded));
  BATCHD_ASSIGN_OR_RETURN(const OpenedPicture picture, Open(worker->encoded.bytes(), worker));
  // Any seed: where the size depends on draws, it is refused with the first row that differs.
  const DrawKey key = {.ordinal = static_cast<uint64_t>(ordinal)};
  BATCHD_RETURN_IF_ERROR(PlanPicture(picture.size(), key, &worker->picture_plan));
  return worker->picture_plan.output();
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

absl::Status ImageColumn::PlanPicture(ImageSize picture, const DrawKey& key,
                                      PicturePlan* plan) const {
  plan->Begin(picture);
  BATCHD_RETURN_IF_ERROR(PlanOperations(operations_, key, plan));
  const ImageSize size = plan->largest();
  if (PixelsOf(size) <= limits_.pixels_max) return absl::OkStatus();
  return SampleErr(
      SampleReason::kTooLarge,
      "the operations make {}x{} (height x width) of a picture of {}x{}; max_pixels is {}",
      size.height, size.width, picture.height, picture.width, limits_.pixels_max);
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
  PicturePlan& plan = worker->picture_plan;
  const absl::Status planned = PlanPicture(picture.size(), key, &plan);
  if (absl::IsInvalidArgument(planned)) {
    return Annotate(planned, "sample " + dataset.NameOf(static_cast<int64_t>(key.ordinal)));
  }
  BATCHD_RETURN_IF_ERROR(planned);
  if (plan.output() != size_) return WrongSize(dataset, key, plan.output());
  const int64_t pixels = std::max(PixelsOf(picture.stored), PixelsOf(plan.largest()));
  const int64_t step_bytes = std::min(format_.step_bytes, pixels * kStepBytesPerPixel);
  const ScratchShare share(worker->scratch_gate, pixels * kBytesPerPixel + step_bytes);
  const absl::Status made = DecodeAndTransform(picture, plan, worker, out);
  worker->scratch.ReleaseLarge();
  return made;
}

absl::Status ImageColumn::DecodeAndTransform(const OpenedPicture& picture, const PicturePlan& plan,
                                             Worker* worker, uint8_t* out) const {
  const TimePoint started = Clock::Real()->Now();
  Duration transform_time(0);
  RowWriter writer(table_, format_.layout, size_, out);
  PictureRun run(plan, &writer, &worker->scratch);
  std::optional<UprightRows> turned;
  if (picture.orientation != 1) {
    turned.emplace(picture.orientation, picture.stored, run.region(), run.sink(), &worker->scratch);
  }
  const Box& region = turned.has_value() ? turned->region() : run.region();
  TimedSink sink(turned.has_value() ? &*turned : run.sink(), &transform_time);
  transform_time += Clock::Real()->Now() - started;
  absl::Status decoded = picture.decoder->Decode(picture.bytes, region, &worker->scratch, &sink);
  if (!decoded.ok()) decoded = AcceptDamage(decoded, region, &sink, worker);
  const TimePoint ended = Clock::Real()->Now();
  worker->decode_time += ended - started - transform_time;
  if (decoded.ok()) {
    if (plan.has_steps()) {
      worker->scratch.ReleaseLarge(ScratchArea::kDecoder);
      worker->scratch.ReleaseLarge(ScratchArea::kUpright);
    }
    run.Finish();
    BATCHD_CHECK(writer.done());
    for (const Erasure& erasure : plan.erasures()) {
      table_.Fill(erasure.box, erasure.constant, size_, format_.layout, out);
    }
  }
  worker->transform_time += transform_time + (Clock::Real()->Now() - ended);
  return decoded;
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

absl::StatusOr<MadeColumn> Make(const CheckedColumn& column, const Dataset& dataset) {
  const Json& arguments = column.operations[0].arguments;
  const DecodeLimits limits = {.pixels_max = arguments["max_pixels"].get<int64_t>(),
                               .goes_on_over_damage = arguments["damaged"] == "accept"};
  MadeColumn made;
  made.encoded_bytes_max = arguments["max_encoded_bytes"].get<int64_t>();
  BATCHD_ASSIGN_OR_RETURN(std::vector<Operation> operations,
                          MakeOperations(std::span(column.operations).subspan(1)));
  auto plan =
      std::make_unique<ImageColumn>(column.path, std::move(operations), limits,
                                    made.encoded_bytes_max, arguments["orientation"] == "upright");
  BATCHD_RETURN_IF_ERROR(plan->Prepare(column.name));
  BATCHD_RETURN_IF_ERROR(plan->FixSize(dataset));
  made.scratch_bytes_max = plan->scratch_bytes_max();
  made.plan = std::move(plan);
  return made;
}

}  // namespace

const ColumnSource kDecodeImage = {&GetSchema, &Make};

}  // namespace batchd
