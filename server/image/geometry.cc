// SPDX-License-Identifier: Apache-2.0

#include "server/image/geometry.h"

#include <algorithm>

#include "server/base/check.h"
#include "server/base/status.h"

namespace batchd {
namespace {

Box WholeOf(ImageSize size) { return {0, 0, size.height, size.width}; }

// What two boxes share; height and width are 0 if that is nothing.
Box Intersect(const Box& a, const Box& b) {
  const int top = std::max(a.top, b.top);
  const int left = std::max(a.left, b.left);
  const int bottom = std::min(a.top + a.height, b.top + b.height);
  const int right = std::min(a.left + a.width, b.left + b.width);
  if (bottom <= top || right <= left) return {};
  return {top, left, bottom - top, right - left};
}

// Without a resize, what a window cuts away need not be decoded: the box shrinks to what can be
// seen.
void ShrinkBox(GeometryStage* stage) {
  Box seen = Intersect(stage->window, WholeOf(stage->resized));
  if (seen.height == 0) {
    // Nothing is seen. A decoder needs a region all the same: one pixel, beside the window.
    stage->box.height = 1;
    stage->box.width = 1;
    stage->window.top = 1;
    stage->window.left = 0;
  } else {
    stage->box = {stage->box.top + seen.top, stage->box.left + seen.left, seen.height, seen.width};
    stage->window.top -= seen.top;
    stage->window.left -= seen.left;
  }
  stage->resized = {stage->box.height, stage->box.width};
}

}  // namespace

std::string_view FilterName(Filter filter) {
  switch (filter) {
    case Filter::kNearest:
      return "nearest";
    case Filter::kBox:
      return "box";
    case Filter::kBilinear:
      return "bilinear";
    case Filter::kHamming:
      return "hamming";
    case Filter::kBicubic:
      return "bicubic";
    case Filter::kLanczos:
      return "lanczos";
  }
  return "";
}

GeometryPlan::GeometryPlan(ImageSize input) {
  BATCHD_CHECK(input.height >= 1 && input.width >= 1);
  stages_[0].box = WholeOf(input);
  stages_[0].resized = input;
  stages_[0].window = WholeOf(input);
}

absl::Status GeometryPlan::AddStage() {
  if (stage_count_ == kStagesMax) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "crops, resizes and flips need more than {} passes over a picture; give fewer of "
               "them, or place the flips after the last resize",
               kStagesMax);
  }
  const ImageSize size = output();
  GeometryStage& stage = stages_[stage_count_++];
  stage = GeometryStage{};
  stage.box = WholeOf(size);
  stage.resized = size;
  stage.window = WholeOf(size);
  return absl::OkStatus();
}

absl::Status GeometryPlan::Crop(const Box& box) {
  BATCHD_CHECK(box.height >= 1 && box.width >= 1);
  GeometryStage* stage = &stages_[stage_count_ - 1];
  // The flips of a stage come last: a crop after them is the mirrored crop before them.
  const ImageSize size = output();
  const int top = stage->flip_vertical ? size.height - box.top - box.height : box.top;
  const int left = stage->flip_horizontal ? size.width - box.left - box.width : box.left;
  const Box window = {stage->window.top + top, stage->window.left + left, box.height, box.width};
  // A crop that reaches out of an earlier one finds zeros there, though the resized picture may go
  // on: the two are one window only if that does not happen.
  const Box seen = Intersect(window, WholeOf(stage->resized));
  if (Intersect(seen, stage->window) != seen) {
    BATCHD_RETURN_IF_ERROR(AddStage());
    stage = &stages_[stage_count_ - 1];
    stage->window = box;
  } else {
    stage->window = window;
  }
  if (!stage->resizes()) ShrinkBox(stage);
  return absl::OkStatus();
}

absl::Status GeometryPlan::Resize(ImageSize size, Filter filter) {
  BATCHD_CHECK(size.height >= 1 && size.width >= 1);
  if (size == output()) return absl::OkStatus();
  const GeometryStage& last = stages_[stage_count_ - 1];
  // Resampling a mirrored picture is not the mirror of the resampled one, to the bit: no flip may
  // move past a resize.
  if (last.resizes() || last.window != WholeOf(last.resized) || last.flip_horizontal ||
      last.flip_vertical) {
    BATCHD_RETURN_IF_ERROR(AddStage());
  }
  GeometryStage& stage = stages_[stage_count_ - 1];
  stage.resized = size;
  stage.filter = filter;
  stage.window = WholeOf(size);
  return absl::OkStatus();
}

int GeometryPlan::ReductionMax() const {
  const GeometryStage& first = stages_[0];
  if (!first.resizes() || first.filter == Filter::kNearest) return 1;
  int reduction = kReductionMax;
  while (reduction > 1 && (first.box.height < reduction * first.resized.height ||
                           first.box.width < reduction * first.resized.width)) {
    reduction /= 2;
  }
  return reduction;
}

void GeometryPlan::Reduce(int reduction) {
  GeometryStage& first = stages_[0];
  BATCHD_CHECK(first.reduction == 1 && reduction > 1);
  const Box box = first.box;
  const int top = box.top / reduction;
  const int left = box.left / reduction;
  first.full_box = box;
  first.reduction = reduction;
  first.box = {top, left, (box.top + box.height + reduction - 1) / reduction - top,
               (box.left + box.width + reduction - 1) / reduction - left};
}

absl::Status GeometryPlan::FlipHorizontal() {
  GeometryStage& stage = stages_[stage_count_ - 1];
  stage.flip_horizontal = !stage.flip_horizontal;
  return absl::OkStatus();
}

absl::Status GeometryPlan::FlipVertical() {
  GeometryStage& stage = stages_[stage_count_ - 1];
  stage.flip_vertical = !stage.flip_vertical;
  return absl::OkStatus();
}

}  // namespace batchd
