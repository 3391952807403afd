// SPDX-License-Identifier: Apache-2.0

#include "server/image/picture_run.h"

#include <cstring>

#include "server/base/check.h"

namespace batchd {
namespace {

constexpr int64_t kChannels = 3;

ScratchArea OtherThan(ScratchArea area) {
  return area == ScratchArea::kPictureA ? ScratchArea::kPictureB : ScratchArea::kPictureA;
}

// Dense, so that what is done to each value alone needs one loop.
Picture PictureIn(ScratchArea area, ImageSize size, Scratch* scratch) {
  const int64_t stride = size.width * kChannels;
  return {scratch->Get(area, static_cast<size_t>(stride * size.height)), size.height, size.width,
          stride};
}

}  // namespace

void PictureRun::Collector::Begin(ImageSize size, ScratchArea area, Scratch* scratch) {
  picture_ = PictureIn(area, size, scratch);
  rows_ = 0;
}

void PictureRun::Collector::PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) {
  BATCHD_CHECK(rows_ + row_count <= picture_.height);
  uint8_t* to = picture_.data + rows_ * picture_.stride_bytes;
  for (int y = 0; y < row_count; ++y, rgb += stride_bytes, to += picture_.stride_bytes) {
    std::memcpy(to, rgb, static_cast<size_t>(picture_.stride_bytes));
  }
  rows_ += row_count;
}

PictureRun::PictureRun(const PicturePlan& plan, RowSink* last, Scratch* scratch)
    : plan_(plan), last_(last), scratch_(scratch) {
  BeginSegment();
}

void PictureRun::BeginSegment() {
  const GeometryPlan& geometry = segment().geometry;
  if (!is_end()) collector_.Begin(geometry.output(), free_, scratch_);
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
