// SPDX-License-Identifier: Apache-2.0

#include "server/image/picture_plan.h"

#include "server/base/check.h"

namespace batchd {
namespace {

// More than usual pipelines have; a larger plan grows them once.
constexpr size_t kSegmentsReserved = 8;
constexpr size_t kStepsReserved = 16;

int64_t PixelsOf(ImageSize size) { return int64_t{size.height} * size.width; }

}  // namespace

PicturePlan::PicturePlan() {
  segments_.reserve(kSegmentsReserved);
  steps_.reserve(kStepsReserved);
  erasures_.reserve(kSegmentsReserved);
}

void PicturePlan::Begin(ImageSize input, bool nearest_only) {
  nearest_only_ = nearest_only;
  segments_.clear();
  steps_.clear();
  erasures_.clear();
  output_ = input;
  AddSegment();
}

void PicturePlan::AddSegment() {
  segments_.push_back({GeometryPlan(output_), static_cast<int>(steps_.size()), 0});
}

template <typename Fold>
void PicturePlan::AddGeometry(const Fold& fold) {
  BATCHD_CHECK(erasures_.empty());
  if (segments_.back().step_count > 0) AddSegment();
  if (!fold(&segments_.back().geometry).ok()) {
    // Its stages are used up. What is drawn at random must not decide whether a pipeline works, so
    // the rows so far become a picture, and it goes on from there.
    AddSegment();
    BATCHD_CHECK(fold(&segments_.back().geometry).ok());
  }
  output_ = segments_.back().geometry.output();
}

void PicturePlan::Crop(const Box& box) {
  if (box == Box{0, 0, output_.height, output_.width}) return;
  AddGeometry([&](GeometryPlan* geometry) { return geometry->Crop(box); });
}

void PicturePlan::Resize(ImageSize size, Filter filter) {
  if (size == output_) return;
  if (nearest_only_) filter = Filter::kNearest;
  AddGeometry([&](GeometryPlan* geometry) { return geometry->Resize(size, filter); });
}

void PicturePlan::FlipHorizontal() {
  AddGeometry([](GeometryPlan* geometry) { return geometry->FlipHorizontal(); });
}

void PicturePlan::FlipVertical() {
  // A stage that turns a picture upside down holds all of it: one a segment, so that the scratch
  // of a sample has a bound.
  const GeometryPlan& geometry = segments_.back().geometry;
  for (int i = 0; i + 1 < geometry.stage_count(); ++i) {
    if (!geometry.stage(i).flip_vertical) continue;
    AddSegment();
    break;
  }
  AddGeometry([](GeometryPlan* geometry) { return geometry->FlipVertical(); });
}

void PicturePlan::Apply(const PictureStep& step) {
  BATCHD_CHECK(erasures_.empty());
  steps_.push_back(step);
  if (nearest_only_) steps_.back().filter = Filter::kNearest;
  ++segments_.back().step_count;
  if (step.in_place) {
    steps_.back().output = output_;
  } else {
    BATCHD_CHECK(step.output.height >= 1 && step.output.width >= 1);
    output_ = step.output;
  }
}

ImageSize PicturePlan::largest() const {
  ImageSize largest = output_;
  const auto look_at = [&largest](ImageSize size) {
    if (PixelsOf(size) > PixelsOf(largest)) largest = size;
  };
  for (const Segment& segment : segments_) {
    for (int i = 0; i < segment.geometry.stage_count(); ++i) {
      look_at(segment.geometry.stage(i).output());
    }
  }
  for (const PictureStep& step : steps_) look_at(step.output);
  return largest;
}

}  // namespace batchd
