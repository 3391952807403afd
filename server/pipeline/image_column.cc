// SPDX-License-Identifier: Apache-2.0

#include "server/pipeline/image_column.h"

#include <algorithm>
#include <cstring>

#include "server/base/check.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;
constexpr int kProbesMax = 16;

// Scratch of one sample in bytes per pixel of the source's max_pixels, which also limits what each
// operation makes: a progressive JPEG's coefficients (up to four channels of 16 bits), and three
// pictures. These are, while the rows come, what turns them upright, what flips them vertically and
// what the first step works on; after that, when the decoder's memory is given back, the two
// pictures of the steps and what flips.
constexpr int64_t kBytesPerPixel = 2 * 4 + 3 * kChannels;
// What a step takes beside, at most, of a small picture.
constexpr int64_t kStepBytesPerPixel = 4 * kChannels;
// Tables of a resize: at most 2 * 3 * 65535 + 5 * 65535 weights for each side, and the decoder's
// rows.
constexpr int64_t kTableBytes = int64_t{16} << 20;

// The three channels of a mask are equal.
template <typename T>
void WriteMaskRow(const uint8_t* rgb, int width, T* out) {
  for (int x = 0; x < width; ++x) out[x] = rgb[3 * x];
}

absl::StatusOr<MadeColumn> Make(const ImageInput& input, DType mask_dtype,
                                const CheckedColumn& column, const Dataset& dataset,
                                DecodeIsolation* isolation) {
  BATCHD_ASSIGN_OR_RETURN(std::vector<Operation> operations,
                          MakeOperations(std::span(column.operations).subspan(1)));
  auto plan = std::make_unique<ImageColumn>(column.path, std::move(operations), input);
  BATCHD_RETURN_IF_ERROR(plan->Prepare(column.name, mask_dtype));
  BATCHD_RETURN_IF_ERROR(plan->FixSize(dataset, isolation));
  MadeColumn made;
  made.encoded_bytes_max = input.encoded_bytes_max();
  made.scratch_bytes_max = plan->scratch_bytes_max();
  made.plan = std::move(plan);
  return made;
}

absl::StatusOr<MadeColumn> MakeImages(const CheckedColumn& column, const Dataset& dataset,
                                      DecodeIsolation* isolation) {
  const ImageInput input(ImageInput::ImageSchema(), column.operations[0].arguments);
  return Make(input, DType::kUint8, column, dataset, isolation);
}

absl::StatusOr<MadeColumn> MakeMasks(const CheckedColumn& column, const Dataset& dataset,
                                     DecodeIsolation* isolation) {
  for (const CheckedOperation& operation : std::span(column.operations).subspan(1)) {
    if (GeometryOf(operation) == Geometry::kOnly) continue;
    return FieldErr(operation.path,
                    "{} would change class numbers; only crops, flips, turns and resizes may "
                    "follow DecodeMask",
                    operation.name);
  }
  const Json& arguments = column.operations[0].arguments;
  const ImageInput input(ImageInput::MaskSchema(), arguments);
  return Make(input, arguments["dtype"] == "int64" ? DType::kInt64 : DType::kUint8, column, dataset,
              isolation);
}

std::unique_ptr<JointPlan> Join(std::span<const ColumnPlan* const> columns) {
  std::vector<const ImageColumn*> images;
  for (const ColumnPlan* column : columns) {
    images.push_back(static_cast<const ImageColumn*>(column));  // Make has made them
  }
  return JoinImageColumns(std::move(images));
}

}  // namespace

const ColumnSource kDecodeImage = {&ImageInput::ImageSchema, &MakeImages, &Join};
const ColumnSource kDecodeMask = {&ImageInput::MaskSchema, &MakeMasks, &Join};

int64_t ImageColumn::ScratchBytes(int64_t pixels) const {
  return pixels * kBytesPerPixel + std::min(format_.step_bytes, pixels * kStepBytesPerPixel);
}

int64_t ImageColumn::scratch_bytes_max() const {
  return input_.pixels_max() * kBytesPerPixel + kTableBytes + format_.step_bytes;
}

absl::Status ImageColumn::Prepare(const std::string& name, DType mask_dtype) {
  if (input_.is_mask()) format_.channels = 1;
  BATCHD_RETURN_IF_ERROR(PrepareOperations(operations_, &format_, &table_));
  shape_.name = name;
  shape_.dtype = input_.is_mask() ? mask_dtype : format_.dtype;
  return absl::OkStatus();
}

absl::Status ImageColumn::FixSize(const Dataset& dataset, DecodeIsolation* isolation) {
  if (format_.size.has_value()) {
    size_ = *format_.size;
    if (PixelsOf(size_) > input_.pixels_max()) {
      return FieldErr(path_,
                      "a row of {}x{} (height x width) has more than max_pixels={}; make it "
                      "smaller or raise max_pixels of DecodeImage",
                      size_.height, size_.width, input_.pixels_max());
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
                     ? std::vector<int64_t>{size_.height, size_.width, format_.channels}
                     : std::vector<int64_t>{format_.channels, size_.height, size_.width};
  shape_.row_size_bytes = PixelsOf(size_) * format_.channels * DTypeSizeBytes(shape_.dtype);
  if (input_.is_mask()) {
    shape_.shape = {size_.height, size_.width};
    shape_.row_size_bytes = PixelsOf(size_) * DTypeSizeBytes(shape_.dtype);
  }
  return absl::OkStatus();
}

absl::StatusOr<ImageSize> ImageColumn::ProbeSample(const Dataset& dataset, int64_t ordinal,
                                                   Worker* worker) const {
  dataset.Locate(ordinal, &worker->location);
  BATCHD_RETURN_IF_ERROR(dataset.source()->Read(
      worker->location, static_cast<size_t>(input_.encoded_bytes_max()), &worker->encoded));
  BATCHD_ASSIGN_OR_RETURN(const OpenedPicture picture,
                          input_.Open(worker->encoded.bytes(), worker));
  // Any seed: where the size depends on draws, it is refused with the first row that differs.
  const DrawKey key = {.ordinal = static_cast<uint64_t>(ordinal)};
  PicturePlan plan;
  BATCHD_RETURN_IF_ERROR(PlanPicture(picture.size(), key, &plan));
  return plan.output();
}

absl::Status ImageColumn::PlanPicture(ImageSize picture, const DrawKey& key,
                                      PicturePlan* plan) const {
  plan->Begin(picture, /*nearest_only=*/input_.is_mask());
  BATCHD_RETURN_IF_ERROR(PlanOperations(operations_, key, plan));
  const ImageSize size = plan->largest();
  if (PixelsOf(size) <= input_.pixels_max()) return absl::OkStatus();
  return SampleErr(
      SampleReason::kTooLarge,
      "the operations make {}x{} (height x width) of a picture of {}x{}; max_pixels is {}",
      size.height, size.width, picture.height, picture.width, input_.pixels_max());
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

absl::Status ImageColumn::Plan(const Dataset& dataset, ImageSize picture, const DrawKey& key,
                               PicturePlan* plan) const {
  const absl::Status planned = PlanPicture(picture, key, plan);
  if (absl::IsInvalidArgument(planned)) {
    return Annotate(planned, "sample " + dataset.NameOf(static_cast<int64_t>(key.ordinal)));
  }
  BATCHD_RETURN_IF_ERROR(planned);
  return plan->output() == size_ ? absl::OkStatus() : WrongSize(dataset, key, plan->output());
}

absl::Status ImageColumn::MakeRow(const Dataset& dataset, Bytes bytes, const DrawKey& key,
                                  Worker* worker, uint8_t* out) const {
  BATCHD_ASSIGN_OR_RETURN(const OpenedPicture picture, input_.Open(bytes, worker));
  PicturePlan& plan = worker->PlansOf(1)[0];
  BATCHD_RETURN_IF_ERROR(Plan(dataset, picture.size(), key, &plan));
  input_.Reduce(picture, {&plan, 1});
  const int64_t pixels = std::max(PixelsOf(picture.stored), PixelsOf(plan.largest()));
  const ScratchShare share(worker->scratch_gate, ScratchBytes(pixels));

  const TimePoint started = Clock::Real()->Now();
  RowRun run(*this, plan, &worker->scratch, out);
  worker->transform_time += Clock::Real()->Now() - started;
  const absl::Status decoded = input_.Decode(picture, run.region(), 1, run.sink(), worker);
  const TimePoint ended = Clock::Real()->Now();
  if (decoded.ok()) {
    if (plan.has_steps()) {
      worker->scratch.ReleaseLarge(ScratchArea::kDecoder);
      worker->scratch.ReleaseLarge(ScratchArea::kUpright);
    }
    run.Finish();
  }
  worker->transform_time += Clock::Real()->Now() - ended;
  worker->scratch.ReleaseLarge();
  return decoded;
}

void ImageColumn::MakeSkippedRow(uint8_t* out) const {
  std::memset(out, 0, static_cast<size_t>(shape_.row_size_bytes));
}

ImageColumn::RowRun::RowRun(const ImageColumn& column, const PicturePlan& plan, Scratch* scratch,
                            uint8_t* out)
    : column_(column),
      plan_(plan),
      out_(out),
      writer_(column, out),
      run_(plan, &writer_, scratch) {}

void ImageColumn::RowRun::Finish() {
  run_.Finish();
  BATCHD_CHECK(writer_.done());
  for (const Erasure& erasure : plan_.erasures()) {
    column_.table_.Fill(erasure.box, erasure.constant, column_.size_, column_.format_.layout, out_);
  }
}

void ImageColumn::RowRun::Writer::PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes,
                                          int row_count) {
  const ImageSize size = column_.size_;
  BATCHD_CHECK(rows_ + row_count <= size.height);
  if (column_.input_.is_mask()) {
    for (int y = 0; y < row_count; ++y, rgb += stride_bytes) {
      const int64_t at = int64_t{rows_ + y} * size.width;
      if (column_.shape_.dtype == DType::kInt64) {
        WriteMaskRow(rgb, size.width, reinterpret_cast<int64_t*>(out_) + at);
      } else {
        WriteMaskRow(rgb, size.width, out_ + at);
      }
    }
    rows_ += row_count;
    return;
  }
  column_.table_.WriteRows({rgb, row_count, size.width, stride_bytes}, rows_, size.height,
                           column_.format_.layout, out_);
  rows_ += row_count;
}

}  // namespace batchd
