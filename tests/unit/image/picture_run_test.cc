// SPDX-License-Identifier: Apache-2.0
//
// A plan of segments against its operations, one after the other, each on a whole picture.

#include "server/image/picture_run.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/test_picture.h"

namespace batchd {
namespace {

// In place: adds to every value, by its place, so that a moved pixel shows.
void AddPlaces(const PictureStep& step, const Picture& in, const Picture& out, Scratch*) {
  EXPECT_EQ(in.data, out.data);
  for (int y = 0; y < in.height; ++y) {
    for (int x = 0; x < 3 * in.width; ++x) {
      uint8_t& value = in.data[y * in.stride_bytes + x];
      value = static_cast<uint8_t>(value + int(step.numbers[0]) + 3 * y + x);
    }
  }
}

// Into another picture: the transposed one.
void Transpose(const PictureStep&, const Picture& in, const Picture& out, Scratch*) {
  EXPECT_NE(in.data, out.data);
  EXPECT_EQ(in.height, out.width);
  for (int y = 0; y < in.height; ++y) {
    for (int x = 0; x < in.width; ++x) {
      for (int c = 0; c < 3; ++c) {
        out.data[x * out.stride_bytes + 3 * y + c] = in.data[y * in.stride_bytes + 3 * x + c];
      }
    }
  }
}

PictureStep TransposeOf(ImageSize size) {
  return {.run = &Transpose, .in_place = false, .output = {size.width, size.height}};
}

// Folds a random operation into `plan`, and does it to `now` alone.
void AddOperation(Draws* draws, PicturePlan* plan, TestPicture* now, Scratch* scratch) {
  PicturePlan one(now->size);
  for (PicturePlan* to : {plan, &one}) {
    Draws same = *draws;
    switch (same.NextBelow(6)) {
      case 0:
        to->Resize({int(1 + same.NextBelow(30)), int(1 + same.NextBelow(30))}, Filter::kBilinear);
        break;
      case 1:
        to->Crop({int(same.NextBelow(9)) - 4, int(same.NextBelow(9)) - 4,
                  int(1 + same.NextBelow(20)), int(1 + same.NextBelow(20))});
        break;
      case 2:
        to->FlipHorizontal();
        break;
      case 3:
        to->FlipVertical();
        break;
      case 4:
        to->Apply({.run = &AddPlaces, .numbers = {double(same.NextBelow(200))}});
        break;
      default:
        to->Apply(TransposeOf(to->output()));
    }
  }
  for (int i = 0; i < 6; ++i) draws->NextU32();
  *now = RunPlan(one, *now, scratch);
}

TEST(PictureRun, EqualsTheOperationsOneAfterTheOther) {
  Scratch scratch;
  PicturePlan plan;
  size_t segments = 0;
  for (uint64_t chain = 0; chain < 3000; ++chain) {
    Draws draws({.seed = 41, .ordinal = chain});
    const TestPicture start =
        NoisePicture({int(1 + draws.NextBelow(25)), int(1 + draws.NextBelow(25))}, &draws);
    TestPicture now = start;
    plan.Begin(start.size);
    const uint32_t operations = draws.NextBelow(25);
    for (uint32_t i = 0; i < operations; ++i) AddOperation(&draws, &plan, &now, &scratch);
    ASSERT_EQ(plan.output(), now.size) << chain;
    ASSERT_EQ(RunPlan(plan, start, &scratch), now) << chain;
    segments = std::max(segments, plan.segments().size());
  }
  EXPECT_GT(segments, 4u);
}

TEST(PicturePlan, GeometryAloneIsOneSegment) {
  PicturePlan plan({30, 40});
  plan.Crop({2, 3, 20, 20});
  plan.Resize({8, 8}, Filter::kBilinear);
  plan.FlipHorizontal();
  EXPECT_EQ(plan.segments().size(), 1u);
  EXPECT_FALSE(plan.has_steps());
}

TEST(PicturePlan, StepsOnOnePictureShareASegmentAndGeometryThatDoesNothingAddsNone) {
  PicturePlan plan({30, 40});
  plan.Apply({.run = &AddPlaces});
  plan.Apply({.run = &AddPlaces});
  plan.Resize({30, 40}, Filter::kBilinear);
  plan.Crop({0, 0, 30, 40});
  EXPECT_EQ(plan.segments().size(), 1u);
  EXPECT_EQ(plan.steps_of(plan.segments()[0]).size(), 2u);
  plan.FlipVertical();
  EXPECT_EQ(plan.segments().size(), 2u);
}

TEST(PicturePlan, MoreStagesThanAGeometryPlanHoldsGoOnInANewSegment) {
  PicturePlan plan({30, 40});
  Scratch scratch;
  for (int i = 0; i < 2 * GeometryPlan::kStagesMax + 1; ++i) {
    plan.Resize({20 + i, 50 - i}, Filter::kBilinear);
  }
  EXPECT_EQ(plan.segments().size(), 3u);
  EXPECT_EQ(plan.output(), (ImageSize{36, 34}));
  EXPECT_FALSE(RunPlan(plan, TestPicture({30, 40}), &scratch).pixels.empty());
}

TEST(PicturePlan, OneStageOfASegmentHoldsAPictureToTurnIt) {
  PicturePlan plan({30, 40});
  for (int i = 0; i < 5; ++i) {
    plan.FlipVertical();
    plan.Resize({20 + i, 50 - i}, Filter::kBilinear);
  }
  EXPECT_EQ(plan.segments().size(), 5u);
  for (const PicturePlan::Segment& segment : plan.segments()) {
    int flips = 0;
    for (int i = 0; i < segment.geometry.stage_count(); ++i) {
      flips += segment.geometry.stage(i).flip_vertical;
    }
    EXPECT_EQ(flips, 1);
  }
  PicturePlan twice({30, 40});
  twice.FlipVertical();
  twice.FlipVertical();
  EXPECT_EQ(twice.segments().size(), 1u);
}

TEST(PicturePlan, TheLargestIsThatOfAllThatIsMadeOnTheWay) {
  PicturePlan plan({30, 40});
  plan.Resize({300, 200}, Filter::kBilinear);
  plan.Resize({3, 2}, Filter::kBilinear);
  EXPECT_EQ(plan.largest(), (ImageSize{300, 200}));
  plan.Apply({.run = &Transpose, .in_place = false, .output = {1000, 90}});
  plan.Resize({3, 2}, Filter::kBilinear);
  EXPECT_EQ(plan.largest(), (ImageSize{1000, 90}));
  plan.Begin({4, 5});
  EXPECT_EQ(plan.largest(), (ImageSize{4, 5}));
}

}  // namespace
}  // namespace batchd
