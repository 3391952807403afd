// SPDX-License-Identifier: Apache-2.0
//
// Geometry: which pixels of a picture make a row, decided before anything is decoded.
//
// The geometry operations of a column (crop, resize, flip) are folded, one after the other, into a
// GeometryPlan: a few stages, each "take this box, resize it, cut this window out of the result,
// flip". A decoder is then asked for the box of the first stage only, and only the window is
// computed. The usual chains (RandomResizedCrop + flip, Resize + CenterCrop) are one stage.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace batchd {

// Rows [top, top + height), columns [left, left + width) of a picture.
struct Box {
  int top = 0;
  int left = 0;
  int height = 0;
  int width = 0;
  bool operator==(const Box&) const = default;
};

struct ImageSize {
  int height = 0;
  int width = 0;
  bool operator==(const ImageSize&) const = default;
};

// The most that a decoder may make a picture smaller, and what it makes of a size then.
inline constexpr int kReductionMax = 8;
inline ImageSize ReducedSize(ImageSize size, int reduction) {
  return {(size.height + reduction - 1) / reduction, (size.width + reduction - 1) / reduction};
}

// Pillow's resampling filters.
enum class Filter : uint8_t { kNearest, kBox, kBilinear, kHamming, kBicubic, kLanczos };

// "nearest", "box", "bilinear", "hamming", "bicubic", "lanczos".
std::string_view FilterName(Filter filter);

// One stage: box of the input -> resized to `resized` -> window of that -> flips. The window may
// reach outside; what lies outside is 0. Without a resize, `resized` is the box's own size.
struct GeometryStage {
  Box box;
  ImageSize resized;
  Filter filter = Filter::kBilinear;
  Box window;
  bool flip_horizontal = false;
  bool flip_vertical = false;
  // Above 1: the input is the picture at 1/reduction of its size, `box` the part of that which
  // covers `full_box`, and it is full_box that is resized, its borders between pixels.
  int reduction = 1;
  Box full_box = {};

  ImageSize output() const { return {window.height, window.width}; }
  bool resizes() const { return reduction > 1 || resized != ImageSize{box.height, box.width}; }
};

// Grows by folding operations in; holds no heap memory. Thread-compatible.
class GeometryPlan {
 public:
  static constexpr int kStagesMax = 8;

  // The whole picture, unchanged. Requires sides of 1 or more.
  explicit GeometryPlan(ImageSize input);

  // The size after what has been folded in so far.
  ImageSize output() const { return stages_[stage_count_ - 1].output(); }

  // Each adds one operation at the end. `box` is in the coordinates of output() and may reach
  // outside (0 there). Requires sides of 1 or more. Errors: FAILED_PRECONDITION if that takes more
  // than kStagesMax stages; the plan is unchanged then.
  absl::Status Crop(const Box& box);
  absl::Status Resize(ImageSize size, Filter filter);
  absl::Status FlipHorizontal();
  absl::Status FlipVertical();

  // How far a decoder may reduce the picture, 1, 2, 4 or 8, so that the first stage still makes it
  // smaller, or keeps its size, along both sides. 1 if it does not resize or takes nearest pixels.
  int ReductionMax() const;
  // Goes over to a picture that is reduced so, with its sides rounded up. Once, for a plan that is
  // finished; `reduction` is above 1 and at most ReductionMax().
  void Reduce(int reduction);

  int stage_count() const { return stage_count_; }
  const GeometryStage& stage(int i) const { return stages_[i]; }

 private:
  absl::Status AddStage();

  std::array<GeometryStage, kStagesMax> stages_;
  int stage_count_ = 1;
};

}  // namespace batchd
