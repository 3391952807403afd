// SPDX-License-Identifier: Apache-2.0
//
// A pipeline plan is a pipeline that has been checked and prepared: for each column, how a sample's
// bytes become the bytes of a row. It is made once per session and then only read.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/base/philox.h"
#include "server/base/schema.h"
#include "server/dataset/dataset.h"
#include "server/decoder/decoder.h"
#include "server/decoder/isolated_decoder.h"
#include "server/image/picture_plan.h"
#include "server/image/scratch.h"
#include "server/memory/slab_layout.h"
#include "server/transform/transform.h"

namespace batchd {

struct OperationSpec {
  std::string name;
  Json arguments;
};
struct ColumnSpec {
  std::string name;
  std::vector<OperationSpec> operations;
};
struct PipelineSpec {
  std::vector<ColumnSpec> columns;
};

// What one CPU thread has to work with. Thread-compatible.
struct Worker {
  // With `isolation`, pictures are decoded in a process of their own.
  explicit Worker(DecodeIsolation* isolation = nullptr)
      : decoders(isolation == nullptr ? nullptr : isolation->MakeDecoder()) {}

  Scratch scratch;
  Scratch joint_scratch;  // of a picture that several columns take their parts of
  DecoderSet decoders;
  ReadBuffer encoded;
  SampleLocation location;
  // A picture whose decode needs more than kScratchKeepBytes waits here for its share of the
  // scratch budget; may be null (tests). The thread holds nothing else meanwhile.
  ByteGate* scratch_gate = nullptr;
  // Time spent by the last MakeRow calls, for the stage metrics; the caller resets them.
  Duration decode_time{0};
  Duration transform_time{0};
  // Damaged pictures that the last MakeRow calls have taken; the caller resets it.
  int damaged_count = 0;

  // Plans to be begun, used again from sample to sample.
  std::span<PicturePlan> PlansOf(size_t count) {
    if (plans_.size() < count) plans_.resize(count);
    return std::span(plans_).first(count);
  }

 private:
  std::vector<PicturePlan> plans_;
};

// How one column is made. Immutable: thread-safe.
class ColumnPlan {
 public:
  virtual ~ColumnPlan() = default;

  // Name, type and shape.
  virtual const ColumnShape& shape() const = 0;

  // Whether MakeRow needs the sample's bytes (an image does, a label does not).
  virtual bool needs_bytes() const = 0;

  // Writes the row of sample `key.ordinal` to `out`, shape().row_size_bytes bytes. `key.op_id` is
  // set by the column. On an error `out` has any content.
  // Errors: sample errors; INVALID_ARGUMENT if the picture's size is not the column's, naming both
  // samples.
  virtual absl::Status MakeRow(const Dataset& dataset, Bytes bytes, const DrawKey& key,
                               Worker* worker, uint8_t* out) const = 0;

  // What stands in the place of a skipped sample: zero bytes, for a label -100.
  virtual void MakeSkippedRow(uint8_t* out) const = 0;
};

// How several columns are made that take the same bytes the same way, with less work than each for
// itself and to the same bytes. Immutable: thread-safe.
class JointPlan {
 public:
  virtual ~JointPlan() = default;

  // As ColumnPlan::MakeRow for one column after the other; `out` has a row of each. Errors: the
  // first that would come so; its text may name another place of the same damage.
  virtual absl::Status MakeRows(const Dataset& dataset, Bytes bytes, const DrawKey& key,
                                Worker* worker, std::span<uint8_t* const> out) const = 0;
};

// Immutable: thread-safe.
class PipelinePlan {
 public:
  // Checks names, arguments and order, and fixes the shape of every column. A column whose size
  // would follow the picture takes the size of the first sample that can be read, by looking at the
  // headers of at most 16 (with `isolation` if that is not null); so this may wait for storage:
  // control thread only.
  // Errors: field errors "pipeline.<column>[<i>]…" with what is wrong and what would be right.
  static absl::StatusOr<std::shared_ptr<const PipelinePlan>> Compile(
      const PipelineSpec& spec, std::shared_ptr<const Dataset> dataset,
      DecodeIsolation* isolation = nullptr);

  const Dataset& dataset() const { return *dataset_; }
  int column_count() const { return static_cast<int>(columns_.size()); }
  const ColumnPlan& column(int i) const { return *columns_[i]; }
  std::vector<ColumnShape> shapes() const;

  static constexpr size_t kColumnsMax = 64;

  // Makes the row of every column of one sample: column i's at rows[i]. Columns whose picture is
  // decoded the same way share one decode. Errors: those of ColumnPlan::MakeRow, of the first
  // column that has one, or of one that shares a decode with an earlier one.
  absl::Status MakeRows(Bytes bytes, const DrawKey& key, Worker* worker,
                        std::span<uint8_t* const> rows) const;
  bool needs_bytes() const { return needs_bytes_; }

  // 32 hexadecimal digits over columns, operations and all arguments with their defaults.
  const std::string& fingerprint() const { return fingerprint_; }

  // The most decode scratch that one sample may take on one thread; a function of the limits in the
  // arguments.
  int64_t scratch_bytes_max() const { return scratch_bytes_max_; }
  // The most encoded bytes of one sample.
  int64_t encoded_bytes_max() const { return encoded_bytes_max_; }

 private:
  PipelinePlan() = default;

  // Columns that are made together, or one alone.
  struct Group {
    std::vector<int> columns;
    std::unique_ptr<JointPlan> joint;  // null for one
  };

  std::shared_ptr<const Dataset> dataset_;
  std::vector<std::unique_ptr<ColumnPlan>> columns_;
  std::vector<Group> groups_;
  std::string fingerprint_;
  bool needs_bytes_ = false;
  int64_t scratch_bytes_max_ = 0;
  int64_t encoded_bytes_max_ = 0;
};

// Schemas of what a column may begin with (DecodeImage, DecodeMask, Label), for `batchd plugins`.
std::vector<const Schema*> ColumnSourceSchemas();

}  // namespace batchd
