// SPDX-License-Identifier: Apache-2.0
//
// A column of pictures or masks: DecodeImage or DecodeMask and the transforms that follow it.
// Internal to server/pipeline.
//
// The geometry of a sample is known from its header and its draws, so only the part of the picture
// that the column needs is decoded; the last step writes the values into the row.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/image/picture_run.h"
#include "server/pipeline/image_input.h"
#include "server/pipeline/plan.h"
#include "server/transform/operation.h"

namespace batchd {

// Immutable once it is prepared: thread-safe.
class ImageColumn : public ColumnPlan {
 public:
  ImageColumn(std::string path, std::vector<Operation> operations, const ImageInput& input)
      : path_(std::move(path)), operations_(std::move(operations)), input_(input) {}

  // Runs the operations' Prepare. `mask_dtype` is that of a mask's rows.
  absl::Status Prepare(const std::string& name, DType mask_dtype);
  // Fixes the size of the rows, by looking at samples where it depends on the picture.
  absl::Status FixSize(const Dataset& dataset, DecodeIsolation* isolation);

  const ImageInput& input() const { return input_; }
  // Scratch of a sample, in bytes: `pixels` are those of its picture or of the largest that is made
  // of it.
  int64_t ScratchBytes(int64_t pixels) const;
  // The most scratch that a sample may take, in bytes.
  int64_t scratch_bytes_max() const;

  const ColumnShape& shape() const override { return shape_; }
  bool needs_bytes() const override { return true; }
  absl::Status MakeRow(const Dataset& dataset, Bytes bytes, const DrawKey& key, Worker* worker,
                       uint8_t* out) const override;
  void MakeSkippedRow(uint8_t* out) const override;

  // The parts of MakeRow, for who makes several columns of one decode.

  // What is done with a picture of that size. Errors: as MakeRow's.
  absl::Status Plan(const Dataset& dataset, ImageSize picture, const DrawKey& key,
                    PicturePlan* plan) const;

  // Writes the row from the rows of a picture's region.
  class RowRun {
   public:
    // `plan` is that of Plan. Uses the scratch areas of PictureRun.
    RowRun(const ImageColumn& column, const PicturePlan& plan, Scratch* scratch, uint8_t* out);

    const Box& region() const { return run_.region(); }
    RowSink* sink() { return run_.sink(); }
    // All rows of the region have come.
    void Finish();

   private:
    // The end of a sample's rows: through the value table into the row of the batch, or class
    // numbers as they are.
    class Writer final : public RowSink {
     public:
      Writer(const ImageColumn& column, uint8_t* out) : column_(column), out_(out) {}
      void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override;
      bool done() const { return rows_ == column_.size_.height; }

     private:
      const ImageColumn& column_;
      uint8_t* const out_;
      int rows_ = 0;
    };

    const ImageColumn& column_;
    const PicturePlan& plan_;
    uint8_t* const out_;
    Writer writer_;
    PictureRun run_;
  };

 private:
  absl::Status PlanPicture(ImageSize picture, const DrawKey& key, PicturePlan* plan) const;
  absl::StatusOr<ImageSize> ProbeSample(const Dataset& dataset, int64_t ordinal,
                                        Worker* worker) const;
  absl::Status WrongSize(const Dataset& dataset, const DrawKey& key, ImageSize size) const;

  const std::string path_;
  const std::vector<Operation> operations_;
  const ImageInput input_;
  RowFormat format_;
  ValueTable table_;
  ImageSize size_;
  int64_t size_from_ordinal_ = -1;  // whose size it is; -1: that of the operations
  ColumnShape shape_;
};

// Columns that take the same picture: it is decoded once, the smallest box of it that has what all
// of them need. The columns outlive it.
std::unique_ptr<JointPlan> JoinImageColumns(std::vector<const ImageColumn*> columns);

inline int64_t PixelsOf(ImageSize size) { return int64_t{size.height} * size.width; }

}  // namespace batchd
