// SPDX-License-Identifier: Apache-2.0
//
// Several columns of one picture, such as the two global and several local crops of DINO.

#include <algorithm>

#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/image/row_collector.h"
#include "server/image/row_pipeline.h"
#include "server/pipeline/image_column.h"

namespace batchd {
namespace {

constexpr int64_t kChannels = 3;

// The smallest box that has both.
Box Around(const Box& a, const Box& b) {
  const int top = std::min(a.top, b.top), left = std::min(a.left, b.left);
  return {top, left, std::max(a.top + a.height, b.top + b.height) - top,
          std::max(a.left + a.width, b.left + b.width) - left};
}

// The columns take their rows one after the other from the decoded box in memory, and so with one
// column's scratch. Rows that went to all columns as they come would need as many.
class JointImages final : public JointPlan {
 public:
  explicit JointImages(std::vector<const ImageColumn*> columns) : columns_(std::move(columns)) {}

  absl::Status MakeRows(const Dataset& dataset, Bytes bytes, const DrawKey& key, Worker* worker,
                        std::span<uint8_t* const> out) const override;

 private:
  // What the first `count` columns need.
  struct Need {
    size_t count = 0;
    bool is_joint = true;   // false: the columns are to be made of different decodes
    Box region;             // of the upright picture
    int good_rows_min = 0;  // of the stored rows of the region
    int64_t pixels = 0;     // of the largest picture on the way
  };
  absl::Status Plan(const Dataset& dataset, const OpenedPicture& picture, const DrawKey& key,
                    std::span<PicturePlan> plans, Need* need) const;
  // Each column by itself.
  absl::Status MakeApart(const Dataset& dataset, Bytes bytes, const DrawKey& key, Worker* worker,
                         std::span<uint8_t* const> out) const;
  void MakeColumn(size_t i, const PicturePlan& plan, const Box& region, const Picture& decoded,
                  Worker* worker, uint8_t* out) const;

  const std::vector<const ImageColumn*> columns_;
};

// Plans as many columns as can be; the error is that of the next one.
absl::Status JointImages::Plan(const Dataset& dataset, const OpenedPicture& picture,
                               const DrawKey& key, std::span<PicturePlan> plans, Need* need) const {
  absl::Status planned;
  while (need->count < columns_.size()) {
    planned = columns_[need->count]->Plan(dataset, picture.size(), key, &plans[need->count]);
    if (!planned.ok()) break;
    ++need->count;
  }
  if (need->count == 0) return planned;
  need->is_joint = columns_[0]->input().Reduce(picture, plans.first(need->count));
  if (!need->is_joint) return planned;
  int last_top = 0;  // of the columns' stored parts
  need->pixels = PixelsOf(picture.stored);
  for (size_t i = 0; i < need->count; ++i) {
    const Box region = RowPipeline::RegionOf(plans[i].segments()[0].geometry);
    need->region = i == 0 ? region : Around(need->region, region);
    need->pixels = std::max(need->pixels, PixelsOf(plans[i].largest()));
    // A column by itself is bad if not one good row of its own part has come; so are they together.
    last_top = std::max(last_top, picture.StoredPart(region).top);
  }
  need->good_rows_min = last_top - picture.StoredPart(need->region).top + 1;
  return planned;
}

void JointImages::MakeColumn(size_t i, const PicturePlan& plan, const Box& region,
                             const Picture& decoded, Worker* worker, uint8_t* out) const {
  ImageColumn::RowRun run(*columns_[i], plan, &worker->scratch, out);
  const Box& part = run.region();
  const uint8_t* const first = decoded.data + (part.top - region.top) * decoded.stride_bytes +
                               (part.left - region.left) * kChannels;
  run.sink()->PutRows(first, static_cast<ptrdiff_t>(decoded.stride_bytes), part.height);
  run.Finish();
}

absl::Status JointImages::MakeApart(const Dataset& dataset, Bytes bytes, const DrawKey& key,
                                    Worker* worker, std::span<uint8_t* const> out) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    BATCHD_RETURN_IF_ERROR(columns_[i]->MakeRow(dataset, bytes, key, worker, out[i]));
  }
  return absl::OkStatus();
}

absl::Status JointImages::MakeRows(const Dataset& dataset, Bytes bytes, const DrawKey& key,
                                   Worker* worker, std::span<uint8_t* const> out) const {
  const ImageInput& input = columns_[0]->input();
  BATCHD_ASSIGN_OR_RETURN(const OpenedPicture picture, input.Open(bytes, worker));
  const std::span<PicturePlan> plans = worker->PlansOf(columns_.size());
  Need need;
  const absl::Status planned = Plan(dataset, picture, key, plans, &need);
  if (need.count == 0) return planned;
  if (!need.is_joint) return MakeApart(dataset, bytes, key, worker, out);
  // Not more than for a column alone: what the decoder takes is given back before the columns are
  // made, and the decoded box is less than that.
  int64_t scratch_bytes = 0;
  for (size_t i = 0; i < need.count; ++i) {
    scratch_bytes = std::max(scratch_bytes, columns_[i]->ScratchBytes(need.pixels));
  }
  const ScratchShare share(worker->scratch_gate, scratch_bytes);

  const Box& region = need.region;
  const Picture decoded =
      PictureIn(ScratchArea::kPictureA, {region.height, region.width}, &worker->joint_scratch);
  RowCollector collector(decoded);
  absl::Status status = input.Decode(picture, region, need.good_rows_min, &collector, worker);
  worker->scratch.ReleaseLarge();
  const TimePoint started = Clock::Real()->Now();
  for (size_t i = 0; status.ok() && i < need.count; ++i) {
    MakeColumn(i, plans[i], region, decoded, worker, out[i]);
    worker->scratch.ReleaseLarge();
  }
  worker->transform_time += Clock::Real()->Now() - started;
  worker->joint_scratch.ReleaseLarge();
  // A fault of the picture comes before that of a column that stands behind those it belongs to.
  return status.ok() ? planned : status;
}

}  // namespace

std::unique_ptr<JointPlan> JoinImageColumns(std::vector<const ImageColumn*> columns) {
  return std::make_unique<JointImages>(std::move(columns));
}

}  // namespace batchd
