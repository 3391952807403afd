// SPDX-License-Identifier: Apache-2.0
//
// A batch and its columns, as views of the memory that the daemon has filled.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "batchd/status.h"

namespace batchd {

namespace internal {
class Lender;
struct Run;
struct BatchParts;
}  // namespace internal

// The type of a column's values.
enum class DType : uint8_t { kUint8 = 1, kInt64 = 2, kFloat16 = 3, kBfloat16 = 4, kFloat32 = 5 };

// "uint8", "int64", "float16", "bfloat16", "float32".
BATCHD_EXPORT std::string_view DTypeName(DType dtype);
BATCHD_EXPORT size_t DTypeSizeBytes(DType dtype);

// What a row of a batch is.
enum class RowStatus : uint8_t {
  kOk = 0,
  kPad = 1,          // repeats a sample to fill the last batch up; not to be counted
  kSkipped = 2,      // the sample was bad: zeros, label -100
  kSubstituted = 3,  // the sample was bad: another one stands in its place
};

// A column of every batch of a Loader.
struct ColumnSpec {
  std::string name;
  DType dtype = DType::kUint8;
  std::vector<int64_t> shape;  // of one row; empty for a scalar
};

// One column of one batch: a view, valid until the batch is released or destroyed. The memory is
// the trainer's: it may be written.
class Column {
 public:
  DType dtype() const { return dtype_; }
  // Rows first, then the shape of a row: {64, 3, 224, 224}.
  std::span<const int64_t> shape() const { return {shape_.data(), dimensions_}; }
  void* data() const { return data_; }  // contiguous, aligned to 64 bytes
  size_t size_bytes() const { return size_bytes_; }

  // All values as T: uint8_t, int64_t, float, or uint16_t for the bits of float16 and bfloat16.
  // Errors: kArgument if the column has another type.
  template <typename T>
  Result<std::span<T>> values() const {
    if (!Fits<std::remove_const_t<T>>()) return WrongType();
    return std::span<T>(static_cast<T*>(data_), size_bytes_ / sizeof(T));
  }

 private:
  friend class Batch;
  template <typename T>
  bool Fits() const {
    static_assert(std::is_same_v<T, uint8_t> || std::is_same_v<T, int64_t> ||
                      std::is_same_v<T, float> || std::is_same_v<T, uint16_t>,
                  "columns have values of uint8_t, int64_t, float, or uint16_t for 16-bit floats");
    if constexpr (std::is_same_v<T, uint8_t>) return dtype_ == DType::kUint8;
    if constexpr (std::is_same_v<T, int64_t>) return dtype_ == DType::kInt64;
    if constexpr (std::is_same_v<T, float>) return dtype_ == DType::kFloat32;
    return std::is_same_v<T, uint16_t> && DTypeSizeBytes(dtype_) == 2;
  }
  BATCHD_EXPORT Status WrongType() const;

  void* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::array<int64_t, 5> shape_{};
  size_t dimensions_ = 0;
  DType dtype_ = DType::kUint8;
};

// Some samples, column by column. Over shared memory it holds a slab of the daemon's, which goes
// back by Release() or with the Batch; a trainer that holds too many gets
// ErrorKind::kSlotsExhausted. It may outlive its Loader and the daemon.
//
// Thread-safety: one Batch is used by one thread at a time, which may be any; different ones by
// different threads at once.
class BATCHD_EXPORT Batch {
 public:
  Batch(Batch&& other) noexcept;
  Batch& operator=(Batch&& other) noexcept;
  ~Batch();

  int64_t epoch() const { return epoch_; }
  int64_t step() const { return step_; }              // within the epoch
  int64_t rows() const { return rows_; }              // of this rank
  int64_t valid_rows() const { return valid_rows_; }  // neither pad nor skipped
  bool last_in_epoch() const { return last_in_epoch_; }

  // The ordinal of each row's sample in the dataset, and what each row is: views like Column; empty
  // after Release().
  std::span<const int64_t> sample_ids() const;
  std::span<const RowStatus> row_status() const;

  // Errors: kArgument if there is no column of this name, kOther after Release(), kProtocol if the
  // daemon's memory does not make sense.
  Result<Column> column(std::string_view name) const;

  // The state after this batch, for Loader::LoadState().
  std::string State() const;

  // Gives the memory back at once, where the destructor leaves it to the Loader's next call. Views
  // of the batch must not be used any more. Does nothing the second time.
  void Release();

  // The batch in memory of its own, which can be kept without holding a slab. Errors: kOther after
  // Release(), kProtocol.
  Result<Batch> Copy() const;

 private:
  friend struct internal::BatchParts;
  Batch() = default;
  void GiveBack(bool at_once);

  std::shared_ptr<internal::Lender> lender_;  // null after Release()
  std::shared_ptr<const internal::Run> run_;
  uint8_t* slab_ = nullptr;
  size_t slab_size_bytes_ = 0;
  uint64_t sequence_ = 0;  // these three name the slot
  uint32_t slot_ = 0;
  uint16_t segment_ = 0;
  bool last_in_epoch_ = false;
  uint32_t rows_ = 0;
  uint32_t valid_rows_ = 0;
  int64_t epoch_ = 0;
  int64_t step_ = 0;
};

}  // namespace batchd
