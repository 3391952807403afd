// SPDX-License-Identifier: Apache-2.0
//
// What is done with the picture of one sample, decided before anything is decoded: geometry, which
// streams, cut into segments by steps that need the whole picture of their place (colours that
// depend on a mean, rotations, filters), and boxes that are filled in the finished row.

#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/image/geometry.h"
#include "server/image/picture.h"
#include "server/image/scratch.h"

namespace batchd {

// One picture operation on one sample: a function and the parameters that have been drawn for it.
// What the parameters mean is the function's. Plain data.
struct PictureStep {
  // Either in place, `in` and `out` being one picture, or from `in` into `out`, of whose pixels it
  // writes every one. May use any scratch area but kPictureA and kPictureB.
  using Run = void (*)(const PictureStep& step, const Picture& in, const Picture& out,
                       Scratch* scratch);
  Run run = nullptr;
  bool in_place = true;
  ImageSize output = {};  // of a step that is not in place
  Box box = {};
  Filter filter = Filter::kNearest;
  std::array<uint8_t, 3> fill = {};
  std::array<double, 6> numbers = {};
};

// A box of the finished row that gets a constant of the column's ValueTable.
struct Erasure {
  Box box;
  int constant = 0;
};

// Grows by folding operations in. Used again for one sample after the other, it allocates nothing
// once it has seen the largest plan. Thread-compatible.
class PicturePlan {
 public:
  // Geometry, and after it steps: none only in the last segment, or where the geometry has taken
  // all of a GeometryPlan's stages.
  struct Segment {
    GeometryPlan geometry;
    int first_step = 0;
    int step_count = 0;
  };

  // To be begun.
  PicturePlan();
  explicit PicturePlan(ImageSize input) : PicturePlan() { Begin(input); }

  // Forgets everything: the whole picture, unchanged. Requires sides of 1 or more. With
  // `nearest_only` every filter becomes Filter::kNearest: for class numbers, which have no mean.
  void Begin(ImageSize input, bool nearest_only = false);

  // The size after what has been folded in so far.
  ImageSize output() const { return output_; }

  // Geometry, as in GeometryPlan, but with as many stages as it takes.
  void Crop(const Box& box);
  void Resize(ImageSize size, Filter filter);
  void FlipHorizontal();
  void FlipVertical();

  // Requires an output with sides of 1 or more, unless the step is in place.
  void Apply(const PictureStep& step);

  // `box` lies inside output(), which may not change after this.
  void Erase(const Box& box, int constant) { erasures_.push_back({box, constant}); }

  // As in GeometryPlan.
  int ReductionMax() const { return segments_[0].geometry.ReductionMax(); }
  void Reduce(int reduction) { segments_[0].geometry.Reduce(reduction); }

  // The one with the most pixels of all that is made on the way.
  ImageSize largest() const;

  std::span<const Segment> segments() const { return segments_; }
  std::span<const PictureStep> steps_of(const Segment& segment) const {
    return std::span(steps_).subspan(static_cast<size_t>(segment.first_step),
                                     static_cast<size_t>(segment.step_count));
  }
  bool has_steps() const { return !steps_.empty(); }
  std::span<const Erasure> erasures() const { return erasures_; }

 private:
  template <typename Fold>
  void AddGeometry(const Fold& fold);
  void AddSegment();

  std::vector<Segment> segments_;
  std::vector<PictureStep> steps_;
  std::vector<Erasure> erasures_;
  ImageSize output_;
  bool nearest_only_ = false;
};

}  // namespace batchd
