// SPDX-License-Identifier: Apache-2.0
#include "server/memory/slab_layout.h"

#include <cstring>

#include "server/base/check.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int64_t kPageSizeBytes = 4096;
constexpr int64_t kBatchBytesMax = int64_t{1} << 40;

int64_t AlignUp(int64_t value, int64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

absl::StatusOr<SlabLayout> SlabLayout::Make(std::vector<ColumnShape> columns, int64_t rows_max) {
  SlabLayout layout;
  layout.rows_max_ = rows_max;
  int64_t end = sizeof(wire::SlabHeader) + static_cast<int64_t>(columns.size()) *
                                               static_cast<int64_t>(sizeof(wire::SlabColumn));
  // Places a region of `rows_max` rows behind what is there; -1 when the batch gets too large.
  const auto place = [&](int64_t row_size_bytes) -> int64_t {
    const int64_t begin = AlignUp(end, wire::kSlabAlignment);
    if (row_size_bytes > 0 && rows_max > (kBatchBytesMax - begin) / row_size_bytes) return -1;
    end = begin + rows_max * row_size_bytes;
    return begin;
  };
  layout.sample_ids_offset_ = place(sizeof(int64_t));
  layout.row_status_offset_ = place(1);
  for (const ColumnShape& column : columns) {
    BATCHD_CHECK(column.shape.size() <= 4);
    const int64_t offset = place(column.row_size_bytes);
    if (offset < 0) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "a batch of {} rows of {} bytes in column {} is above {} bytes; lower batch_size",
                 rows_max, column.row_size_bytes, column.name, kBatchBytesMax);
    }
    layout.values_offsets_.push_back(offset);
  }
  layout.used_size_bytes_ = end;
  layout.slab_size_bytes_ = AlignUp(end, kPageSizeBytes);
  layout.columns_ = std::move(columns);
  return layout;
}

int64_t* SlabLayout::sample_ids(uint8_t* slab) const {
  return reinterpret_cast<int64_t*>(slab + sample_ids_offset_);
}

uint8_t* SlabLayout::row_status(uint8_t* slab) const { return slab + row_status_offset_; }

uint8_t* SlabLayout::row(uint8_t* slab, int column, int64_t row) const {
  return slab + values_offsets_[column] + row * columns_[column].row_size_bytes;
}

void SlabLayout::WriteHeader(uint8_t* slab, int64_t rows, int64_t valid_rows, int64_t epoch,
                             int64_t step, int32_t rank, int32_t world_size) const {
  wire::SlabHeader header{};
  header.magic = wire::kSlabMagic;
  header.version = wire::kSlabVersion;
  header.column_count = static_cast<uint16_t>(columns_.size());
  header.rows = static_cast<uint32_t>(rows);
  header.valid_rows = static_cast<uint32_t>(valid_rows);
  header.epoch = static_cast<uint64_t>(epoch);
  header.step = static_cast<uint64_t>(step);
  header.rank = static_cast<uint32_t>(rank);
  header.world_size = static_cast<uint32_t>(world_size);
  header.sample_ids_offset = static_cast<uint64_t>(sample_ids_offset_);
  header.row_status_offset = static_cast<uint64_t>(row_status_offset_);
  header.used_size_bytes = static_cast<uint64_t>(used_size_bytes_);
  std::memcpy(slab, &header, sizeof(header));

  // `end` walks over the slab; what lies between it and the next region belongs to no row.
  int64_t end = sizeof(wire::SlabHeader);
  for (size_t i = 0; i < columns_.size(); ++i) {
    wire::SlabColumn column{};
    column.values_offset = static_cast<uint64_t>(values_offsets_[i]);
    column.values_size_bytes = static_cast<uint64_t>(rows * columns_[i].row_size_bytes);
    column.dtype = static_cast<uint8_t>(columns_[i].dtype);
    column.rank = static_cast<uint8_t>(columns_[i].shape.size());
    for (size_t d = 0; d < columns_[i].shape.size(); ++d) {
      column.shape[d] = static_cast<uint32_t>(columns_[i].shape[d]);
    }
    std::memcpy(slab + end, &column, sizeof(column));
    end += sizeof(column);
  }
  const auto next_region = [&](int64_t begin, int64_t row_size_bytes) {
    std::memset(slab + end, 0, static_cast<size_t>(begin - end));
    end = begin + rows * row_size_bytes;
  };
  next_region(sample_ids_offset_, sizeof(int64_t));
  next_region(row_status_offset_, 1);
  for (size_t i = 0; i < columns_.size(); ++i) {
    next_region(values_offsets_[i], columns_[i].row_size_bytes);
  }
  std::memset(slab + end, 0, static_cast<size_t>(slab_size_bytes_ - end));
}

}  // namespace batchd
