// SPDX-License-Identifier: Apache-2.0
//
// Carries a PicturePlan out: rows from the decoder -> geometry of the first segment -> a picture in
// scratch -> its steps -> geometry of the next segment -> ... -> the last sink. A plan without
// steps keeps no picture anywhere: its rows stream through.

#pragma once

#include <optional>

#include "server/image/picture.h"
#include "server/image/picture_plan.h"
#include "server/image/row_collector.h"
#include "server/image/row_pipeline.h"
#include "server/image/row_sink.h"
#include "server/image/scratch.h"

namespace batchd {

// Thread-compatible. Lives for one sample; borrows the scratch areas kRows, kPictureA and
// kPictureB, and what the steps use.
class PictureRun {
 public:
  // `last` gets the rows of plan.output(). All three must outlive this object.
  PictureRun(const PicturePlan& plan, RowSink* last, Scratch* scratch);
  PictureRun(const PictureRun&) = delete;
  PictureRun& operator=(const PictureRun&) = delete;

  // What of the picture must come into sink().
  const Box& region() const { return pipeline_->region(); }
  RowSink* sink() { return &*pipeline_; }

  // All rows of the region have come: does the rest.
  void Finish();

 private:
  const PicturePlan::Segment& segment() const { return plan_.segments()[segment_]; }
  // Whether the rows of the segment go to last_.
  bool is_end() const {
    return segment_ + 1 == plan_.segments().size() && segment().step_count == 0;
  }
  void BeginSegment();
  void RunSteps();
  void PutPicture();

  const PicturePlan& plan_;
  RowSink* const last_;
  Scratch* const scratch_;
  size_t segment_ = 0;
  RowCollector collector_;
  Picture now_;                                // after the segments so far
  ScratchArea free_ = ScratchArea::kPictureA;  // the area that now_ is not in
  std::optional<RowPipeline> pipeline_;        // of segment_
};

}  // namespace batchd
