// SPDX-License-Identifier: Apache-2.0
//
// The layout of one slab: the memory of one batch.
//
//   SlabHeader                       64 bytes
//   SlabColumn[column_count]         64 bytes each, in the order of the pipeline's columns
//   sample_ids                       int64[rows_max]
//   row_status                       uint8[rows_max], a RowStatus each
//   values of each column            rows_max * row_size_bytes
//
// Every region starts at a multiple of kSlabAlignment. Bytes that belong to no row are 0, so that
// equal batches are equal slabs. Offsets count from the slab's first byte. The same image travels
// in the chunks of the gRPC stream. A change of any offset raises kSlabVersion.

#pragma once

#include <cstddef>
#include <cstdint>

namespace batchd::wire {

inline constexpr uint32_t kSlabMagic = 0x4253'4c42;  // "BLSB" in memory order
inline constexpr uint16_t kSlabVersion = 1;
inline constexpr size_t kSlabAlignment = 64;

enum class RowStatus : uint8_t {
  kOk = 0,
  kPad = 1,          // a repeated sample that fills the last batch up; not to be counted
  kSkipped = 2,      // the sample was bad: zero bytes, label -100
  kSubstituted = 3,  // the sample was bad: another one stands in its place, under its own ordinal
};

enum class DType : uint8_t {
  kUint8 = 1,
  kInt64 = 2,
  kFloat16 = 3,
  kBfloat16 = 4,
  kFloat32 = 5,
};

struct SlabHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t column_count;
  uint32_t rows;        // 0 to rows_max
  uint32_t valid_rows;  // rows whose status is ok or substituted
  uint64_t epoch;
  uint64_t step;
  uint32_t rank;
  uint32_t world_size;
  uint64_t sample_ids_offset;
  uint64_t row_status_offset;
  uint64_t used_size_bytes;  // the slab's length up to the end of its last region
};
static_assert(sizeof(SlabHeader) == 64);
static_assert(offsetof(SlabHeader, column_count) == 6);
static_assert(offsetof(SlabHeader, rows) == 8);
static_assert(offsetof(SlabHeader, valid_rows) == 12);
static_assert(offsetof(SlabHeader, epoch) == 16);
static_assert(offsetof(SlabHeader, step) == 24);
static_assert(offsetof(SlabHeader, rank) == 32);
static_assert(offsetof(SlabHeader, world_size) == 36);
static_assert(offsetof(SlabHeader, sample_ids_offset) == 40);
static_assert(offsetof(SlabHeader, row_status_offset) == 48);
static_assert(offsetof(SlabHeader, used_size_bytes) == 56);

struct SlabColumn {
  uint64_t values_offset;
  uint64_t values_size_bytes;  // rows * row_size_bytes
  uint64_t offsets_offset;     // 0: the column has one shape for all rows
  uint64_t shapes_offset;      // 0: the same
  uint8_t dtype;               // DType
  uint8_t rank;                // dimensions of a row, 0 to 4
  uint16_t reserved0;
  uint32_t reserved1;
  uint32_t shape[4];  // of a row; dimensions past `rank` are 0
  uint64_t reserved2;
};
static_assert(sizeof(SlabColumn) == 64);
static_assert(offsetof(SlabColumn, values_size_bytes) == 8);
static_assert(offsetof(SlabColumn, offsets_offset) == 16);
static_assert(offsetof(SlabColumn, shapes_offset) == 24);
static_assert(offsetof(SlabColumn, dtype) == 32);
static_assert(offsetof(SlabColumn, rank) == 33);
static_assert(offsetof(SlabColumn, shape) == 40);

}  // namespace batchd::wire
