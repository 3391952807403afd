// SPDX-License-Identifier: Apache-2.0
#include "server/image/orientation.h"

#include <cstring>

#include "server/base/check.h"
#include "server/image/row_kernels.h"

namespace batchd {
namespace {

constexpr ptrdiff_t kChannels = 3;

// Those that exchange rows and columns.
bool Turns(int orientation) { return orientation >= 5; }

// Those whose rows, or columns, are read from the last one of the stored picture.
bool ReversesRows(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
bool ReversesColumns(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

}  // namespace

ImageSize UprightSize(ImageSize stored, int orientation) {
  return Turns(orientation) ? ImageSize{stored.width, stored.height} : stored;
}

Box StoredRegion(int orientation, ImageSize stored, const Box& region) {
  Box part =
      Turns(orientation) ? Box{region.left, region.top, region.width, region.height} : region;
  if (ReversesRows(orientation)) part.top = stored.height - part.top - part.height;
  if (ReversesColumns(orientation)) part.left = stored.width - part.left - part.width;
  return part;
}

UprightRows::UprightRows(int orientation, ImageSize stored, const Box& region, RowSink* next,
                         Scratch* scratch)
    : turns_(Turns(orientation)),
      reverses_rows_(ReversesRows(orientation)),
      reverses_columns_(ReversesColumns(orientation)),
      next_(next),
      region_(StoredRegion(orientation, stored, region)) {
  BATCHD_CHECK(orientation >= 1 && orientation <= 8);
  stride_bytes_ = kChannels * region_.width;
  const size_t row_bytes = size_t(kChannels * region.width) + kRowSlackBytes;
  const bool collects = turns_ || reverses_rows_;
  const size_t stored_bytes = collects ? size_t(stride_bytes_) * size_t(region_.height) : 0;
  row_ = scratch->Get(ScratchArea::kUpright, row_bytes + stored_bytes);
  if (collects) stored_ = row_ + row_bytes;
}

// `first` is the first pixel of an upright row, and the next one lies step_bytes behind it.
void UprightRows::MakeRow(const uint8_t* first, ptrdiff_t step_bytes, int width) {
  uint8_t* out = row_;
  for (int x = 0; x < width; ++x, out += kChannels, first += step_bytes) {
    std::memcpy(out, first, kChannels);
  }
  next_->PutRows(row_, 0, 1);
}

void UprightRows::PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) {
  BATCHD_CHECK(rows_in_ + row_count <= region_.height);
  const ptrdiff_t last = kChannels * (region_.width - 1);
  for (int y = 0; y < row_count; ++y, rgb += stride_bytes, ++rows_in_) {
    if (stored_ != nullptr) {
      std::memcpy(stored_ + rows_in_ * stride_bytes_, rgb, size_t(stride_bytes_));
    } else {
      MakeRow(reverses_columns_ ? rgb + last : rgb, reverses_columns_ ? -kChannels : kChannels,
              region_.width);
    }
  }
  if (stored_ != nullptr && rows_in_ == region_.height) PutTurned();
}

void UprightRows::PutTurned() {
  // Steps in the stored picture to the next column and the next row.
  const ptrdiff_t column_step = reverses_columns_ ? -kChannels : kChannels;
  const ptrdiff_t row_step = reverses_rows_ ? -stride_bytes_ : stride_bytes_;
  const uint8_t* first = stored_;
  if (reverses_columns_) first += kChannels * (region_.width - 1);
  if (reverses_rows_) first += stride_bytes_ * (region_.height - 1);
  const int height = turns_ ? region_.width : region_.height;
  const int width = turns_ ? region_.height : region_.width;
  for (int y = 0; y < height; ++y) {
    MakeRow(first, turns_ ? row_step : column_step, width);
    first += turns_ ? column_step : row_step;
  }
}

}  // namespace batchd
