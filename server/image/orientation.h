// SPDX-License-Identifier: Apache-2.0
//
// Turning a picture upright, as EXIF's orientation says. Geometry is planned on the upright
// picture; a decoder makes the part of the stored one that this needs, and UprightRows turns it.

#pragma once

#include <cstdint>

#include "server/image/geometry.h"
#include "server/image/row_sink.h"
#include "server/image/scratch.h"

namespace batchd {

// The size of a picture of `stored` pixels once it is upright. `orientation` is 1 to 8.
ImageSize UprightSize(ImageSize stored, int orientation);

// `region`, a part of the upright picture, in the stored one of `stored` pixels.
Box StoredRegion(int orientation, ImageSize stored, const Box& region);

// Thread-compatible. Lives for one sample; borrows the scratch area kUpright for the whole region,
// save for the orientations 1 and 2.
class UprightRows final : public RowSink {
 public:
  // `region` is a part of the upright picture; its rows go to `next`.
  UprightRows(int orientation, ImageSize stored, const Box& region, RowSink* next,
              Scratch* scratch);
  UprightRows(const UprightRows&) = delete;
  UprightRows& operator=(const UprightRows&) = delete;

  // StoredRegion of it: what must come, by PutRows.
  const Box& region() const { return region_; }

  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override;

 private:
  void MakeRow(const uint8_t* first, ptrdiff_t step_bytes, int width);
  void PutTurned();

  // An upright row is a stored column (turns_); rows and columns of the stored picture are read
  // backwards.
  const bool turns_;
  const bool reverses_rows_;
  const bool reverses_columns_;
  RowSink* const next_;
  Box region_;
  int rows_in_ = 0;
  ptrdiff_t stride_bytes_ = 0;
  uint8_t* stored_ = nullptr;  // the region as it comes; null if rows can go on at once
  uint8_t* row_ = nullptr;     // an upright one
};

}  // namespace batchd
