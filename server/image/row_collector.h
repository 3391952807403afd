// SPDX-License-Identifier: Apache-2.0
//
// Rows become a picture in memory, where something needs all of it.

#pragma once

#include <cstdint>
#include <cstring>

#include "server/base/check.h"
#include "server/image/geometry.h"
#include "server/image/picture.h"
#include "server/image/row_sink.h"
#include "server/image/scratch.h"

namespace batchd {

// A picture of any content in a scratch area, dense, so that what is done to each value alone needs
// one loop.
inline Picture PictureIn(ScratchArea area, ImageSize size, Scratch* scratch) {
  const int64_t stride = int64_t{3} * size.width;
  return {scratch->Get(area, static_cast<size_t>(stride * size.height)), size.height, size.width,
          stride};
}

// Thread-compatible. Borrows the picture's memory.
class RowCollector final : public RowSink {
 public:
  RowCollector() = default;
  // The rows of `picture` are to come.
  explicit RowCollector(const Picture& picture) : picture_(picture) {}

  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    BATCHD_CHECK(rows_ + row_count <= picture_.height);
    uint8_t* to = picture_.data + rows_ * picture_.stride_bytes;
    for (int y = 0; y < row_count; ++y, rgb += stride_bytes, to += picture_.stride_bytes) {
      std::memcpy(to, rgb, static_cast<size_t>(picture_.width) * 3);
    }
    rows_ += row_count;
  }
  const Picture& picture() const { return picture_; }

 private:
  Picture picture_;
  int rows_ = 0;
};

}  // namespace batchd
