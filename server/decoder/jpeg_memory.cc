// SPDX-License-Identifier: Apache-2.0

#include "server/decoder/jpeg_memory.h"

// clang-format off
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "server/base/check.h"
#include "server/image/scratch.h"

// libjpeg knows only pointers to these two: what they hold is the memory manager's own affair. All
// of a picture's arrays lie in memory, so access is arithmetic.
struct jvirt_sarray_control {
  JSAMPARRAY rows;
  JDIMENSION row_count;
  JDIMENSION row_samples;
  bool zeroed;
  jvirt_sarray_control* next;
};
struct jvirt_barray_control {
  JBLOCKARRAY rows;
  JDIMENSION row_count;
  JDIMENSION row_blocks;
  bool zeroed;
  jvirt_barray_control* next;
};

namespace batchd {
namespace {

constexpr size_t kAlignmentBytes = 64;
// libjpeg-turbo's vector code reads and writes past a row's end, by less than this.
constexpr size_t kRowAlignmentBytes = 64;
constexpr size_t kFirstBlockBytes = size_t{256} << 10;

size_t RoundUp(size_t size_bytes, size_t to) { return (size_bytes + to - 1) & ~(to - 1); }

[[noreturn]] void OutOfMemory(j_common_ptr info) {
  info->err->msg_code = JERR_OUT_OF_MEMORY;
  info->err->msg_parm.i[0] = 0;
  info->err->error_exit(info);
  std::abort();  // error_exit does not return
}

}  // namespace

// The functions of the manager.
struct JpegMemoryCalls {
  static JpegMemory* Of(j_common_ptr info) { return static_cast<JpegMemory*>(info->client_data); }

  static void* Object(j_common_ptr info, int, size_t size_bytes) {
    return Of(info)->Allocate(info, size_bytes);
  }

  static JSAMPARRAY Samples(j_common_ptr info, int, JDIMENSION row_samples, JDIMENSION row_count) {
    return Rows<JSAMPARRAY>(info, RoundUp(row_samples, kRowAlignmentBytes), row_count);
  }

  static JBLOCKARRAY Blocks(j_common_ptr info, int, JDIMENSION row_blocks, JDIMENSION row_count) {
    return Rows<JBLOCKARRAY>(info, size_t{row_blocks} * sizeof(JBLOCK), row_count);
  }

  static jvirt_sarray_ptr RequestSamples(j_common_ptr info, int, boolean zeroed,
                                         JDIMENSION row_samples, JDIMENSION row_count, JDIMENSION) {
    return Request(info, &Of(info)->sample_arrays_,
                   {nullptr, row_count, row_samples, zeroed != FALSE, nullptr});
  }

  static jvirt_barray_ptr RequestBlocks(j_common_ptr info, int, boolean zeroed,
                                        JDIMENSION row_blocks, JDIMENSION row_count, JDIMENSION) {
    return Request(info, &Of(info)->block_arrays_,
                   {nullptr, row_count, row_blocks, zeroed != FALSE, nullptr});
  }

  static void Realize(j_common_ptr info) {
    for (auto* array = Of(info)->sample_arrays_; array != nullptr; array = array->next) {
      if (array->rows != nullptr) continue;
      const size_t row_bytes = RoundUp(array->row_samples, kRowAlignmentBytes);
      array->rows = Rows<JSAMPARRAY>(info, row_bytes, array->row_count);
      if (array->zeroed) std::memset(array->rows[0], 0, row_bytes * array->row_count);
    }
    for (auto* array = Of(info)->block_arrays_; array != nullptr; array = array->next) {
      if (array->rows != nullptr) continue;
      const size_t row_bytes = size_t{array->row_blocks} * sizeof(JBLOCK);
      array->rows = Rows<JBLOCKARRAY>(info, row_bytes, array->row_count);
      if (array->zeroed) std::memset(array->rows[0], 0, row_bytes * array->row_count);
    }
  }

  static JSAMPARRAY AccessSamples(j_common_ptr, jvirt_sarray_ptr array, JDIMENSION first,
                                  JDIMENSION count, boolean) {
    BATCHD_CHECK(first <= array->row_count && count <= array->row_count - first);
    return array->rows + first;
  }

  static JBLOCKARRAY AccessBlocks(j_common_ptr, jvirt_barray_ptr array, JDIMENSION first,
                                  JDIMENSION count, boolean) {
    BATCHD_CHECK(first <= array->row_count && count <= array->row_count - first);
    return array->rows + first;
  }

  static void FreePool(j_common_ptr, int) {}  // Reset does it
  static void Destruct(j_common_ptr) {}

 private:
  // An array of pointers to rows that lie one behind the other.
  template <typename Array>
  static Array Rows(j_common_ptr info, size_t row_bytes, JDIMENSION row_count) {
    using Row = std::remove_pointer_t<Array>;
    auto* const rows =
        reinterpret_cast<Array>(Of(info)->Allocate(info, sizeof(Row) * (size_t{row_count} + 1)));
    uint8_t* const data = Of(info)->Allocate(info, row_bytes * row_count + kRowAlignmentBytes);
    for (JDIMENSION i = 0; i < row_count; ++i) {
      rows[i] = reinterpret_cast<Row>(data + i * row_bytes);
    }
    return rows;
  }

  template <typename Control>
  static Control* Request(j_common_ptr info, Control** list, const Control& wanted) {
    auto* const control = reinterpret_cast<Control*>(Of(info)->Allocate(info, sizeof(Control)));
    *control = wanted;
    control->next = *list;
    *list = control;
    return control;
  }
};

JpegMemory::JpegMemory() {
  manager_.alloc_small = &JpegMemoryCalls::Object;
  manager_.alloc_large = &JpegMemoryCalls::Object;
  manager_.alloc_sarray = &JpegMemoryCalls::Samples;
  manager_.alloc_barray = &JpegMemoryCalls::Blocks;
  manager_.request_virt_sarray = &JpegMemoryCalls::RequestSamples;
  manager_.request_virt_barray = &JpegMemoryCalls::RequestBlocks;
  manager_.realize_virt_arrays = &JpegMemoryCalls::Realize;
  manager_.access_virt_sarray = &JpegMemoryCalls::AccessSamples;
  manager_.access_virt_barray = &JpegMemoryCalls::AccessBlocks;
  manager_.free_pool = &JpegMemoryCalls::FreePool;
  manager_.self_destruct = &JpegMemoryCalls::Destruct;
  manager_.max_alloc_chunk = 1000000000;
}

JpegMemory::~JpegMemory() {
  for (const Block& block : blocks_) std::free(block.data);
}

uint8_t* JpegMemory::Allocate(j_common_ptr info, size_t size_bytes) {
  size_bytes = RoundUp(size_bytes, kAlignmentBytes);
  if (blocks_.empty() || size_bytes > blocks_.back().size_bytes - used_bytes_) {
    const size_t block_bytes =
        std::max(size_bytes, blocks_.empty() ? kFirstBlockBytes : blocks_.back().size_bytes);
    auto* const data = static_cast<uint8_t*>(std::aligned_alloc(kAlignmentBytes, block_bytes));
    if (data == nullptr) OutOfMemory(info);
    blocks_.push_back({data, block_bytes});
    used_bytes_ = 0;
  }
  uint8_t* const given = blocks_.back().data + used_bytes_;
  used_bytes_ += size_bytes;
  return given;
}

void JpegMemory::Reset() {
  const size_t held = held_bytes();
  // Several blocks become one of their size, so that the next such picture finds room in it.
  if (blocks_.size() > 1 || held > kScratchKeepBytes) {
    for (const Block& block : blocks_) std::free(block.data);
    blocks_.clear();
    if (held <= kScratchKeepBytes) {
      auto* const data = static_cast<uint8_t*>(std::aligned_alloc(kAlignmentBytes, held));
      if (data != nullptr) blocks_.push_back({data, held});
    }
  }
  used_bytes_ = 0;
  sample_arrays_ = nullptr;
  block_arrays_ = nullptr;
}

size_t JpegMemory::held_bytes() const {
  size_t total = 0;
  for (const Block& block : blocks_) total += block.size_bytes;
  return total;
}

}  // namespace batchd
