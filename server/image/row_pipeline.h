// SPDX-License-Identifier: Apache-2.0
//
// The stages of a GeometryPlan as a chain that rows stream through: decoder -> stage 0 -> stage 1
// ->
// ... -> the last sink. No stage holds more rows than its filter reaches over; only a vertical flip
// collects what it turns. Equal in every bit to RunStage, stage by stage
// (tests/support/scalar_resample.h).

#pragma once

#include <array>
#include <cstdint>

#include "server/image/geometry.h"
#include "server/image/row_kernels.h"
#include "server/image/row_sink.h"
#include "server/image/scratch.h"

namespace batchd {

// One stage; made by RowPipeline.
class RowStage final : public RowSink {
 public:
  // Upper bound of the memory that Prepare takes, in bytes.
  static size_t MemoryBytes(const GeometryStage& stage);

  // The part of the stage's input that makes the part `need` of its output: at least one pixel.
  static Box InputOf(const GeometryStage& stage, const Box& need);

  // `need` is the part of the stage's output that is wanted. Takes its memory from *memory, which
  // it advances. Returns InputOf(stage, need).
  Box Prepare(const GeometryStage& stage, const Box& need, uint8_t** memory);

  // Rows go to `next`, and those that need no input go now.
  void Begin(RowSink* next);

  // Rows of the part that Prepare has returned.
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override;

 private:
  enum class Passes : uint8_t { kCopy, kNearest, kAcross, kDown, kAcrossDown, kDownAcross };

  // What a part of the output means for the passes.
  struct Cut {
    Passes passes = Passes::kCopy;
    Box inside;         // what is not padding, before the flips, in the resized picture
    Box placed;         // the same, after the flips, in the part
    FilterAxis across;  // of `inside`; with nothing to do if the lengths are equal
    FilterAxis down;
    Box region;  // the input, in coordinates of the stage's box
  };
  static Cut CutOf(const GeometryStage& stage, const Box& need);

  void PrepareAcross(const FilterAxis& axis, uint8_t** memory);
  void PrepareDown(const FilterAxis& axis, uint8_t** memory);
  void PrepareRows(uint8_t** memory);
  int LastInputRow(int inside_row) const;
  bool EmitReady();
  void MakeRow(int inside_row);
  void Emit(const uint8_t* row);
  void KeepRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count);
  uint8_t* PlaceForRows(int row_count);
  const uint8_t* KeptRow(int row) const { return kept_ + (row - kept_from_) * kept_stride_; }

  RowSink* next_ = nullptr;
  Passes passes_ = Passes::kCopy;
  bool flip_horizontal_ = false;
  bool flip_vertical_ = false;
  Box need_;    // wanted, in coordinates of the output
  Box inside_;  // of that what is not padding, relative to need_
  Box region_;  // the input, in coordinates of the stage's input
  PairTaps across_;
  PairTaps down_;
  int down_tap_count_ = 0;
  const int32_t* columns_ = nullptr;  // nearest: the input column of each output
  const int32_t* rows_ = nullptr;     // nearest: the input row of each output

  int rows_in_ = 0;   // input rows that have come
  int rows_out_ = 0;  // output rows that have gone

  // The last input rows, filtered across already where that comes first, in a window that slides
  // over a block of kept_capacity_ rows.
  uint8_t* kept_ = nullptr;
  ptrdiff_t kept_stride_ = 0;
  int kept_capacity_ = 0;
  int kept_from_ = 0;  // the input row at kept_
  int kept_count_ = 0;

  uint8_t* across_in_ = nullptr;  // a row between the passes, where down comes first
  uint8_t* out_row_ = nullptr;    // a row of the output, padding included
  uint8_t* turned_ = nullptr;     // all rows, if they are flipped vertically
};

// Thread-compatible. Lives for one sample; borrows the scratch area kRows.
class RowPipeline final : public RowSink {
 public:
  // `last` gets the rows of plan.output().
  RowPipeline(const GeometryPlan& plan, RowSink* last, Scratch* scratch);
  RowPipeline(const RowPipeline&) = delete;
  RowPipeline& operator=(const RowPipeline&) = delete;

  // What of the picture must come, by PutRows.
  const Box& region() const { return region_; }

  // The same, before there is a pipeline. Cheap: no table is made.
  static Box RegionOf(const GeometryPlan& plan);

  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    stages_[0].PutRows(rgb, stride_bytes, row_count);
  }

  // Scratch that a plan takes, in bytes: an upper bound.
  static size_t ScratchBytes(const GeometryPlan& plan);

 private:
  std::array<RowStage, GeometryPlan::kStagesMax> stages_;
  Box region_;
};

}  // namespace batchd
