// SPDX-License-Identifier: Apache-2.0
#include "batchd/batch.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "client/src/batch_parts.h"
#include "proto/shm/slab.h"

namespace batchd {
namespace {

using internal::ProtocolError;

struct DTypeInfo {
  std::string_view name;
  size_t size_bytes;
};
constexpr DTypeInfo kDTypes[] = {{"(none)", 1},  {"uint8", 1},    {"int64", 8},
                                 {"float16", 2}, {"bfloat16", 2}, {"float32", 4}};

const DTypeInfo& InfoOf(DType dtype) {
  const auto number = static_cast<size_t>(dtype);
  return kDTypes[number < std::size(kDTypes) ? number : 0];
}

// The slab's header, or null if it is none that this client knows, or names bytes past its end.
const wire::SlabHeader* HeaderOf(const uint8_t* slab, size_t size_bytes, uint32_t rows) {
  const auto* const header = reinterpret_cast<const wire::SlabHeader*>(slab);
  if (slab == nullptr || size_bytes < sizeof(*header) || header->magic != wire::kSlabMagic ||
      header->version != wire::kSlabVersion || header->used_size_bytes > size_bytes) {
    return nullptr;
  }
  const uint64_t used = header->used_size_bytes;
  if (sizeof(*header) + header->column_count * sizeof(wire::SlabColumn) > used ||
      header->sample_ids_offset > used ||
      rows * sizeof(int64_t) > used - header->sample_ids_offset ||
      header->row_status_offset > used || rows > used - header->row_status_offset) {
    return nullptr;
  }
  return header;
}

Status Released() {
  return internal::MakeError(ErrorKind::kOther, StatusCode::kFailedPrecondition,
                             "the batch has been released; take a Copy() before, or release later");
}

Status NoSlab() { return ProtocolError("a slab has a header that this client does not know"); }

}  // namespace

std::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }
size_t DTypeSizeBytes(DType dtype) { return InfoOf(dtype).size_bytes; }

Status Column::WrongType() const {
  return internal::ArgumentError(
      "the column's values are ", DTypeName(dtype_),
      "; ask for that type, or for uint16_t as the bits of a float of 16");
}

Batch internal::BatchParts::Make(const wire::Record& record, Slab slab,
                                 std::shared_ptr<const Run> run) {
  Batch batch;
  batch.lender_ = std::move(slab.lender);
  batch.run_ = std::move(run);
  batch.slab_ = slab.data;
  batch.slab_size_bytes_ = slab.size_bytes;
  batch.sequence_ = record.sequence;
  batch.slot_ = record.slot;
  batch.segment_ = record.segment;
  batch.last_in_epoch_ = (record.flags & wire::kLastInEpoch) != 0;
  batch.rows_ = record.rows;
  batch.valid_rows_ = record.valid_rows;
  batch.epoch_ = static_cast<int64_t>(record.epoch);
  batch.step_ = static_cast<int64_t>(record.step);
  return batch;
}

Batch::Batch(Batch&& other) noexcept = default;  // without a lender the other gives nothing back

Batch& Batch::operator=(Batch&& other) noexcept {
  if (this == &other) return *this;
  GiveBack(/*at_once=*/false);
  lender_ = std::move(other.lender_);
  run_ = std::move(other.run_);
  slab_ = other.slab_;
  slab_size_bytes_ = other.slab_size_bytes_;
  sequence_ = other.sequence_;
  slot_ = other.slot_;
  segment_ = other.segment_;
  last_in_epoch_ = other.last_in_epoch_;
  rows_ = other.rows_;
  valid_rows_ = other.valid_rows_;
  epoch_ = other.epoch_;
  step_ = other.step_;
  return *this;
}

Batch::~Batch() { GiveBack(/*at_once=*/false); }

void Batch::Release() { GiveBack(/*at_once=*/true); }

void Batch::GiveBack(bool at_once) {
  if (lender_ == nullptr) return;
  wire::Record release{};
  release.kind = static_cast<uint8_t>(wire::RecordKind::kRelease);
  release.segment = segment_;
  release.slot = slot_;
  release.sequence = sequence_;
  lender_->GiveBack(release, at_once);
  lender_.reset();
}

std::span<const int64_t> Batch::sample_ids() const {
  const wire::SlabHeader* const header =
      lender_ == nullptr ? nullptr : HeaderOf(slab_, slab_size_bytes_, rows_);
  if (header == nullptr) return {};
  return {reinterpret_cast<const int64_t*>(slab_ + header->sample_ids_offset), rows_};
}

std::span<const RowStatus> Batch::row_status() const {
  const wire::SlabHeader* const header =
      lender_ == nullptr ? nullptr : HeaderOf(slab_, slab_size_bytes_, rows_);
  if (header == nullptr) return {};
  return {reinterpret_cast<const RowStatus*>(slab_ + header->row_status_offset), rows_};
}

Result<Column> Batch::column(std::string_view name) const {
  if (lender_ == nullptr) return Released();
  const std::vector<ColumnSpec>& specs = run_->columns;
  const auto spec = std::find_if(specs.begin(), specs.end(),
                                 [name](const ColumnSpec& one) { return one.name == name; });
  if (spec == specs.end()) {
    std::string names;
    for (const ColumnSpec& one : specs) names += (names.empty() ? "" : ", ") + one.name;
    return internal::ArgumentError("there is no column ", name, "; the batch has the columns ",
                                   names);
  }
  const wire::SlabHeader* const header = HeaderOf(slab_, slab_size_bytes_, rows_);
  const auto index = static_cast<size_t>(spec - specs.begin());
  if (header == nullptr || index >= header->column_count) return NoSlab();
  wire::SlabColumn place;
  std::memcpy(&place, slab_ + sizeof(*header) + index * sizeof(place), sizeof(place));
  if (place.offsets_offset != 0 || place.rank > 4 || place.dtype == 0 ||
      place.dtype >= std::size(kDTypes)) {
    return ProtocolError("column ", name, " has a form that this client does not know");
  }
  Column column;
  column.dtype_ = static_cast<DType>(place.dtype);
  column.dimensions_ = 1 + size_t{place.rank};
  column.shape_[0] = rows_;
  // A product of five numbers of 32 bits may not fit 64: what is compared is in double.
  double size_bytes = static_cast<double>(rows_) * DTypeSizeBytes(column.dtype_);
  column.size_bytes_ = size_t{rows_} * DTypeSizeBytes(column.dtype_);
  for (size_t i = 0; i < place.rank; ++i) {
    column.shape_[1 + i] = place.shape[i];
    column.size_bytes_ *= place.shape[i];
    size_bytes *= place.shape[i];
  }
  if (place.values_offset > slab_size_bytes_ ||
      size_bytes > static_cast<double>(slab_size_bytes_ - place.values_offset)) {
    return NoSlab();
  }
  column.data_ = slab_ + place.values_offset;
  return column;
}

std::string Batch::State() const {
  return internal::WriteState(run_->state, internal::After(epoch_, step_, last_in_epoch_));
}

Result<Batch> Batch::Copy() const {
  if (lender_ == nullptr) return Released();
  const wire::SlabHeader* const header = HeaderOf(slab_, slab_size_bytes_, rows_);
  if (header == nullptr) return NoSlab();
  Result<internal::Slab> slab = internal::MakeHeapSlab(header->used_size_bytes);
  if (!slab.ok()) return std::move(slab).status();
  std::memcpy(slab->data, slab_, header->used_size_bytes);
  wire::Record record{};
  record.flags = last_in_epoch_ ? wire::kLastInEpoch : 0;
  record.rows = rows_;
  record.valid_rows = valid_rows_;
  record.epoch = static_cast<uint64_t>(epoch_);
  record.step = static_cast<uint64_t>(step_);
  return internal::BatchParts::Make(record, *std::move(slab), run_);
}

}  // namespace batchd
