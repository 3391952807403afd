// SPDX-License-Identifier: Apache-2.0
//
// A picture that owns its pixels, for tests.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "server/base/philox.h"
#include "server/image/picture_run.h"
#include "server/image/row_kernels.h"
#include "tests/support/scalar_resample.h"

namespace batchd {

struct TestPicture {
  ImageSize size;
  std::vector<uint8_t> pixels;  // 8-bit RGB, dense

  TestPicture() = default;
  explicit TestPicture(ImageSize s) : size(s), pixels(size_t(s.height) * size_t(s.width) * 3) {}

  uint8_t* at(int y, int x) { return &pixels[(size_t(y) * size_t(size.width) + size_t(x)) * 3]; }
  const uint8_t* at(int y, int x) const { return const_cast<TestPicture*>(this)->at(y, x); }
  Picture view() { return {pixels.data(), size.height, size.width, int64_t{size.width} * 3}; }
  ConstPicture view() const {
    return {pixels.data(), size.height, size.width, int64_t{size.width} * 3};
  }
  ConstPicture part(const Box& box) const {
    return {at(box.top, box.left), box.height, box.width, int64_t{size.width} * 3};
  }
  bool operator==(const TestPicture&) const = default;
};

inline TestPicture NoisePicture(ImageSize size, Draws* draws) {
  TestPicture picture(size);
  for (uint8_t& value : picture.pixels) value = static_cast<uint8_t>(draws->NextU32());
  return picture;
}

// Rows become a picture again.
class PictureCollector final : public RowSink {
 public:
  explicit PictureCollector(ImageSize size) : picture_(size) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    for (int y = 0; y < row_count; ++y, rgb += stride_bytes) {
      std::copy_n(rgb, picture_.size.width * 3, picture_.at(rows_++, 0));
    }
  }
  int rows() const { return rows_; }
  TestPicture& picture() { return picture_; }

 private:
  TestPicture picture_;
  int rows_ = 0;
};

// The plan carried out on a whole picture in memory.
inline TestPicture RunPlan(const PicturePlan& plan, const TestPicture& picture, Scratch* scratch) {
  PictureCollector collector(plan.output());
  PictureRun run(plan, &collector, scratch);
  const Box& region = run.region();
  // Row by row from memory of its own: what lies behind a row's end must not matter.
  std::vector<uint8_t> row(size_t(region.width) * 3 + kRowSlackBytes);
  for (int y = 0; y < region.height; ++y) {
    std::copy_n(picture.at(region.top + y, region.left), region.width * 3, row.begin());
    run.sink()->PutRows(row.data(), 0, 1);
  }
  run.Finish();
  if (collector.rows() != plan.output().height) collector.picture().pixels.clear();
  return std::move(collector.picture());
}

}  // namespace batchd
