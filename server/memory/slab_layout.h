// SPDX-License-Identifier: Apache-2.0
//
// Where everything lies in the slabs of one session (proto/shm/slab.h has the format).

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/shm/slab.h"

namespace batchd {

// One column of every batch.
struct ColumnShape {
  std::string name;
  wire::DType dtype = wire::DType::kUint8;
  std::vector<int64_t> shape;  // of one row; up to 4 dimensions
  int64_t row_size_bytes = 0;
};

// Immutable: thread-safe.
class SlabLayout {
 public:
  // Errors: INVALID_ARGUMENT if a batch would have more than 2^40 bytes.
  static absl::StatusOr<SlabLayout> Make(std::vector<ColumnShape> columns, int64_t rows_max);

  const std::vector<ColumnShape>& columns() const { return columns_; }
  int64_t rows_max() const { return rows_max_; }
  // Up to the end of the last region.
  int64_t used_size_bytes() const { return used_size_bytes_; }
  // The same rounded up to whole pages: the distance of two slabs in a segment.
  int64_t slab_size_bytes() const { return slab_size_bytes_; }

  int64_t* sample_ids(uint8_t* slab) const;
  uint8_t* row_status(uint8_t* slab) const;
  // First byte of a row's values.
  uint8_t* row(uint8_t* slab, int column, int64_t row) const;

  // Writes header and columns of a batch that has `rows` rows and makes every byte that belongs to
  // no row 0. The rows themselves are left as they are.
  void WriteHeader(uint8_t* slab, int64_t rows, int64_t valid_rows, int64_t epoch, int64_t step,
                   int32_t rank, int32_t world_size) const;

 private:
  std::vector<ColumnShape> columns_;
  std::vector<int64_t> values_offsets_;
  int64_t rows_max_ = 0;
  int64_t sample_ids_offset_ = 0;
  int64_t row_status_offset_ = 0;
  int64_t used_size_bytes_ = 0;
  int64_t slab_size_bytes_ = 0;
};

}  // namespace batchd
