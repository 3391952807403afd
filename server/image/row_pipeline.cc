// SPDX-License-Identifier: Apache-2.0

#include "server/image/row_pipeline.h"

#include <algorithm>
#include <cstring>

#include "server/base/check.h"

namespace batchd {
namespace {

constexpr int kChannels = 3;
constexpr size_t kAlignmentBytes = 64;
// Rows that a stage takes into its window at a time.
constexpr int kChunkRows = 4;
static_assert(kRowsPerPut % kChunkRows == 0);

size_t Aligned(size_t size_bytes) {
  return (size_bytes + kAlignmentBytes - 1) & ~(kAlignmentBytes - 1);
}

// Distance of rows of `width` pixels, with room for what kernels write behind the end.
size_t StrideBytes(int width) { return Aligned(size_t(width) * kChannels + kRowSlackBytes); }

uint8_t* Take(uint8_t** memory, size_t size_bytes) {
  uint8_t* const taken = *memory;
  *memory += Aligned(size_bytes);
  return taken;
}

// Rows that the window of kept rows has room for: twice its reach, so that it is moved seldom.
int KeptRows(int reach_rows, int input_rows) {
  return std::min(2 * reach_rows, std::max(input_rows, reach_rows)) + kChunkRows + 1;
}

FilterAxis AcrossAxis(const GeometryStage& stage, int begin, int count) {
  FilterAxis axis = {stage.filter, stage.box.width, stage.resized.width, begin, count};
  if (stage.reduction > 1) {
    axis.in_begin = static_cast<double>(stage.full_box.left) / stage.reduction - stage.box.left;
    axis.in_extent = static_cast<double>(stage.full_box.width) / stage.reduction;
  }
  return axis;
}
FilterAxis DownAxis(const GeometryStage& stage, int begin, int count) {
  FilterAxis axis = {stage.filter, stage.box.height, stage.resized.height, begin, count};
  if (stage.reduction > 1) {
    axis.in_begin = static_cast<double>(stage.full_box.top) / stage.reduction - stage.box.top;
    axis.in_extent = static_cast<double>(stage.full_box.height) / stage.reduction;
  }
  return axis;
}

}  // namespace

size_t RowStage::MemoryBytes(const GeometryStage& stage) {
  const int width_max = std::max(stage.box.width, stage.window.width);
  const bool resizes = stage.resizes() && stage.filter != Filter::kNearest;
  const FilterAxis across = AcrossAxis(stage, 0, stage.window.width);
  const FilterAxis down = DownAxis(stage, 0, stage.window.height);
  size_t total = 0;
  if (resizes) {
    total += Aligned(FilterTableBytes(across)) + Aligned(PairTapsBytes(across));
    total += Aligned(FilterTableBytes(down)) + Aligned(PairTapsBytes(down));
    total += StrideBytes(width_max) * size_t(KeptRows(MostTaps(down) + 1, stage.box.height));
  } else {
    total += Aligned(sizeof(int32_t) * size_t(stage.window.width)) +
             Aligned(sizeof(int32_t) * size_t(stage.window.height));
  }
  if (stage.flip_vertical) total += StrideBytes(stage.window.width) * size_t(stage.window.height);
  return total + 2 * StrideBytes(width_max) + 8 * kAlignmentBytes;
}

RowStage::Cut RowStage::CutOf(const GeometryStage& stage, const Box& need) {
  Cut cut;
  // The wanted part before the flips, in coordinates of the resized picture.
  Box part = need;
  if (stage.flip_horizontal) part.left = stage.window.width - need.left - need.width;
  if (stage.flip_vertical) part.top = stage.window.height - need.top - need.height;
  part.top += stage.window.top;
  part.left += stage.window.left;
  const int top = std::clamp(-part.top, 0, part.height);
  const int left = std::clamp(-part.left, 0, part.width);
  const int bottom = std::clamp(stage.resized.height - part.top, top, part.height);
  const int right = std::clamp(stage.resized.width - part.left, left, part.width);
  cut.region = {0, 0, 1, 1};
  if (bottom == top || right == left) return cut;  // padding alone
  cut.placed = {top, stage.flip_horizontal ? part.width - right : left, bottom - top, right - left};
  cut.inside = {part.top + top, part.left + left, bottom - top, right - left};
  cut.across = AcrossAxis(stage, cut.inside.left, cut.inside.width);
  cut.down = DownAxis(stage, cut.inside.top, cut.inside.height);

  const bool across = cut.across.resizes();
  const bool down = cut.down.resizes();
  if (!across && !down) {
    cut.passes = Passes::kCopy;
  } else if (stage.filter == Filter::kNearest) {
    cut.passes = Passes::kNearest;
  } else if (!across || !down) {
    cut.passes = across ? Passes::kAcross : Passes::kDown;
  } else {
    cut.passes = VerticalFirst({stage.box.height, stage.box.width}, stage.resized)
                     ? Passes::kDownAcross
                     : Passes::kAcrossDown;
  }
  cut.region = cut.inside;
  if (across) FilterSpan(cut.across, &cut.region.left, &cut.region.width);
  if (down) FilterSpan(cut.down, &cut.region.top, &cut.region.height);
  return cut;
}

Box RowStage::InputOf(const GeometryStage& stage, const Box& need) {
  Box region = CutOf(stage, need).region;
  region.top += stage.box.top;
  region.left += stage.box.left;
  return region;
}

Box RowStage::Prepare(const GeometryStage& stage, const Box& need, uint8_t** memory) {
  *this = RowStage();
  flip_horizontal_ = stage.flip_horizontal;
  flip_vertical_ = stage.flip_vertical;
  need_ = need;
  const Cut cut = CutOf(stage, need);
  passes_ = cut.passes;
  inside_ = cut.placed;
  region_ = cut.region;
  if (inside_.height > 0) {
    if (cut.across.resizes()) PrepareAcross(cut.across, memory);
    if (cut.down.resizes()) PrepareDown(cut.down, memory);
  }
  PrepareRows(memory);
  region_.top += stage.box.top;
  region_.left += stage.box.left;
  return region_;
}

void RowStage::PrepareAcross(const FilterAxis& axis, uint8_t** memory) {
  const int count = axis.out_count;
  if (passes_ == Passes::kNearest) {
    auto* const columns = reinterpret_cast<int32_t*>(Take(memory, sizeof(int32_t) * size_t(count)));
    NearestIndices(axis.in_size, axis.out_size, axis.out_begin, count, columns);
    for (int x = 0; x < count; ++x) columns[x] -= region_.left;
    if (flip_horizontal_) std::reverse(columns, columns + count);
    columns_ = columns;
    return;
  }
  const FilterTaps taps = MakeFilterTaps(axis, Take(memory, FilterTableBytes(axis)));
  across_ = MakePairTaps(taps, count, region_.left, region_.width, flip_horizontal_,
                         Take(memory, PairTapsBytes(axis)));
}

void RowStage::PrepareDown(const FilterAxis& axis, uint8_t** memory) {
  const int count = axis.out_count;
  if (passes_ == Passes::kNearest) {
    auto* const rows = reinterpret_cast<int32_t*>(Take(memory, sizeof(int32_t) * size_t(count)));
    NearestIndices(axis.in_size, axis.out_size, axis.out_begin, count, rows);
    for (int y = 0; y < count; ++y) rows[y] -= region_.top;
    rows_ = rows;
    return;
  }
  const FilterTaps taps = MakeFilterTaps(axis, Take(memory, FilterTableBytes(axis)));
  down_ = MakePairTaps(taps, count, region_.top, region_.height, /*reversed=*/false,
                       Take(memory, PairTapsBytes(axis)));
  down_tap_count_ = std::min(2 * down_.pair_count, region_.height);
}

void RowStage::PrepareRows(uint8_t** memory) {
  const bool keeps =
      passes_ == Passes::kDown || passes_ == Passes::kAcrossDown || passes_ == Passes::kDownAcross;
  if (keeps) {
    const int width = passes_ == Passes::kAcrossDown ? inside_.width : region_.width;
    kept_stride_ = static_cast<ptrdiff_t>(StrideBytes(width));
    kept_capacity_ = KeptRows(down_tap_count_, region_.height);
    kept_ = Take(memory, size_t(kept_stride_) * size_t(kept_capacity_));
  }
  if (passes_ == Passes::kDownAcross || passes_ == Passes::kDown) {
    across_in_ = Take(memory, StrideBytes(region_.width));
  }
  out_row_ = Take(memory, StrideBytes(need_.width));
  std::memset(out_row_, 0, StrideBytes(need_.width));
  if (flip_vertical_) {
    turned_ = Take(memory, StrideBytes(need_.width) * size_t(need_.height));
  }
}

void RowStage::Begin(RowSink* next) {
  next_ = next;
  EmitReady();
}

void RowStage::PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) {
  BATCHD_CHECK(rows_in_ + row_count <= region_.height);
  while (row_count > 0) {
    const int chunk = std::min(row_count, kept_ != nullptr ? kChunkRows : 1);
    if (kept_ != nullptr) {
      KeepRows(rgb, stride_bytes, chunk);
    } else {
      across_in_ = const_cast<uint8_t*>(rgb);  // read only, and only until this call ends
    }
    rows_in_ += chunk;
    EmitReady();
    rgb += chunk * stride_bytes;
    row_count -= chunk;
  }
}

// Room for the next rows behind those that are kept.
uint8_t* RowStage::PlaceForRows(int row_count) {
  if (kept_count_ + row_count > kept_capacity_) {
    // Slide: what no further output reads goes.
    const int next_row = rows_out_ - inside_.top;
    const int first = next_row < inside_.height ? down_.first[std::max(next_row, 0)] : rows_in_;
    const int gone = std::clamp(first - kept_from_, 0, kept_count_);
    kept_count_ -= gone;
    kept_from_ += gone;
    std::memmove(kept_, kept_ + gone * kept_stride_, size_t(kept_count_) * size_t(kept_stride_));
    BATCHD_CHECK(kept_count_ + row_count <= kept_capacity_);
  }
  return kept_ + kept_count_ * kept_stride_;
}

void RowStage::KeepRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) {
  uint8_t* to = PlaceForRows(row_count);
  if (passes_ == Passes::kAcrossDown) {
    FilterAcross(rgb, stride_bytes, row_count, across_, to, kept_stride_);
  } else {
    for (int y = 0; y < row_count; ++y, to += kept_stride_, rgb += stride_bytes) {
      std::memcpy(to, rgb, size_t(region_.width) * kChannels);
    }
  }
  kept_count_ += row_count;
}

// The input row, relative to the region, that must have come before an output row can be made.
int RowStage::LastInputRow(int inside_row) const {
  switch (passes_) {
    case Passes::kCopy:
    case Passes::kAcross:
      return inside_row;
    case Passes::kNearest:
      return rows_ != nullptr ? rows_[inside_row] : inside_row;
    default:
      return std::min(down_.first[inside_row] + down_tap_count_, region_.height) - 1;
  }
}

bool RowStage::EmitReady() {
  while (rows_out_ < need_.height) {
    const int row = rows_out_ - inside_.top;
    if (row < 0 || row >= inside_.height) {
      std::memset(out_row_, 0, size_t(need_.width) * kChannels);
    } else if (LastInputRow(row) < rows_in_) {
      MakeRow(row);
    } else {
      return false;
    }
    ++rows_out_;
    Emit(out_row_);
  }
  return true;
}

void RowStage::MakeRow(int inside_row) {
  uint8_t* const out = out_row_ + ptrdiff_t{inside_.left} * kChannels;
  const size_t row_bytes = size_t(inside_.width) * kChannels;
  const int16_t* const weights =
      down_.weights + int64_t{inside_row} * down_.pair_count * 4;  // unused without down_
  switch (passes_) {
    case Passes::kCopy:
      if (flip_horizontal_) {
        ReverseRow(across_in_, inside_.width, out);
      } else {
        std::memcpy(out, across_in_, row_bytes);
      }
      break;
    case Passes::kNearest:
      for (int x = 0; x < inside_.width; ++x) {
        const int column = columns_ != nullptr ? columns_[x]
                           : flip_horizontal_  ? inside_.width - 1 - x
                                               : x;
        std::memcpy(out + ptrdiff_t{x} * kChannels, across_in_ + ptrdiff_t{column} * kChannels,
                    kChannels);
      }
      break;
    case Passes::kAcross:
      FilterAcross(across_in_, 0, 1, across_, out, 0);
      break;
    case Passes::kDown:
    case Passes::kDownAcross:
      FilterDown(KeptRow(down_.first[inside_row]), kept_stride_, down_tap_count_, weights,
                 size_t(region_.width) * kChannels, across_in_);
      if (passes_ == Passes::kDownAcross) {
        FilterAcross(across_in_, 0, 1, across_, out, 0);
      } else if (flip_horizontal_) {
        ReverseRow(across_in_, inside_.width, out);
      } else {
        std::memcpy(out, across_in_, row_bytes);
      }
      break;
    case Passes::kAcrossDown:
      FilterDown(KeptRow(down_.first[inside_row]), kept_stride_, down_tap_count_, weights,
                 row_bytes, out);
      break;
  }
  // Kernels may have written over the padding behind the row.
  const int right = need_.width - inside_.left - inside_.width;
  if (right > 0) std::memset(out + row_bytes, 0, size_t(right) * kChannels);
}

void RowStage::Emit(const uint8_t* row) {
  if (!flip_vertical_) {
    next_->PutRows(row, static_cast<ptrdiff_t>(StrideBytes(need_.width)), 1);
    return;
  }
  const auto stride = static_cast<ptrdiff_t>(StrideBytes(need_.width));
  std::memcpy(turned_ + (need_.height - rows_out_) * stride, row, size_t(need_.width) * kChannels);
  if (rows_out_ == need_.height) next_->PutRows(turned_, stride, need_.height);
}

size_t RowPipeline::ScratchBytes(const GeometryPlan& plan) {
  size_t total = 0;
  for (int i = 0; i < plan.stage_count(); ++i) total += RowStage::MemoryBytes(plan.stage(i));
  return total;
}

Box RowPipeline::RegionOf(const GeometryPlan& plan) {
  Box region = {0, 0, plan.output().height, plan.output().width};
  for (int i = plan.stage_count() - 1; i >= 0; --i) {
    region = RowStage::InputOf(plan.stage(i), region);
  }
  return region;
}

RowPipeline::RowPipeline(const GeometryPlan& plan, RowSink* last, Scratch* scratch) {
  uint8_t* memory = scratch->Get(ScratchArea::kRows, ScratchBytes(plan));
  region_ = {0, 0, plan.output().height, plan.output().width};
  for (int i = plan.stage_count() - 1; i >= 0; --i) {
    region_ = stages_[i].Prepare(plan.stage(i), region_, &memory);
  }
  for (int i = plan.stage_count() - 1; i >= 0; --i) {
    stages_[i].Begin(i + 1 < plan.stage_count() ? static_cast<RowSink*>(&stages_[i + 1]) : last);
  }
}

}  // namespace batchd
