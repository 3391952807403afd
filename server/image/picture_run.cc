// SPDX-License-Identifier: Apache-2.0

#include "server/image/picture_run.h"

namespace batchd {
namespace {

constexpr int64_t kChannels = 3;

ScratchArea OtherThan(ScratchArea area) {
  return area == ScratchArea::kPictureA ? ScratchArea::kPictureB : ScratchArea::kPictureA;
}

}  // namespace

PictureRun::PictureRun(const PicturePlan& plan, RowSink* last, Scratch* scratch)
    : plan_(plan), last_(last), scratch_(scratch) {
  BeginSegment();
}

void PictureRun::BeginSegment() {
  const GeometryPlan& geometry = segment().geometry;
  if (!is_end()) collector_ = RowCollector(PictureIn(free_, geometry.output(), scratch_));
  pipeline_.emplace(geometry, is_end() ? last_ : &collector_, scratch_);
}

void PictureRun::Finish() {
  while (!is_end()) {
    now_ = collector_.picture();
    free_ = OtherThan(free_);
    RunSteps();
    if (segment_ + 1 == plan_.segments().size()) {
      last_->PutRows(now_.data, now_.stride_bytes, now_.height);
      return;
    }
    ++segment_;
    BeginSegment();
    PutPicture();
  }
}

void PictureRun::RunSteps() {
  for (const PictureStep& step : plan_.steps_of(segment())) {
    if (step.in_place) {
      step.run(step, now_, now_, scratch_);
      continue;
    }
    const Picture out = PictureIn(free_, step.output, scratch_);
    step.run(step, now_, out, scratch_);
    now_ = out;
    free_ = OtherThan(free_);
  }
}

// The part of the picture that the segment's geometry reads.
void PictureRun::PutPicture() {
  const Box& region = pipeline_->region();
  pipeline_->PutRows(now_.data + region.top * now_.stride_bytes + region.left * kChannels,
                     static_cast<ptrdiff_t>(now_.stride_bytes), region.height);
}

}  // namespace batchd
