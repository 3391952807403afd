// SPDX-License-Identifier: Apache-2.0

#include "server/image/geometry.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/status_matchers.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

// The operations one after the other, from their definitions.
TestPicture CropOf(const TestPicture& in, const Box& box) {
  TestPicture out({box.height, box.width});
  for (int y = 0; y < box.height; ++y) {
    for (int x = 0; x < box.width; ++x) {
      const int from_y = y + box.top, from_x = x + box.left;
      if (from_y < 0 || from_y >= in.size.height || from_x < 0 || from_x >= in.size.width) continue;
      std::copy_n(in.at(from_y, from_x), 3, out.at(y, x));
    }
  }
  return out;
}
TestPicture FlipOf(const TestPicture& in, bool horizontal) {
  TestPicture out(in.size);
  for (int y = 0; y < in.size.height; ++y) {
    for (int x = 0; x < in.size.width; ++x) {
      std::copy_n(horizontal ? in.at(y, in.size.width - 1 - x) : in.at(in.size.height - 1 - y, x),
                  3, out.at(y, x));
    }
  }
  return out;
}
TestPicture ResizeOf(const TestPicture& in, ImageSize size, Filter filter) {
  Scratch scratch;
  TestPicture out(size);
  Resample(in.view(), size, filter, {0, 0, size.height, size.width}, out.view(), &scratch);
  return out;
}

TestPicture RunPlan(const GeometryPlan& plan, TestPicture picture) {
  Scratch scratch;
  for (int i = 0; i < plan.stage_count(); ++i) {
    TestPicture next(plan.stage(i).output());
    std::fill(next.pixels.begin(), next.pixels.end(), 0xA5);  // nothing may be left unwritten
    RunStage(plan.stage(i), picture.part(plan.stage(i).box), next.view(), &scratch);
    picture = std::move(next);
  }
  return picture;
}

int Between(Draws* draws, int lo, int hi) {
  return lo + static_cast<int>(draws->NextBelow(static_cast<uint32_t>(hi - lo + 1)));
}

struct Chain {
  GeometryPlan plan;
  TestPicture picture;
  std::string text;

  absl::Status Grow(Draws* draws) {
    const ImageSize size = plan.output();
    switch (draws->NextBelow(5)) {
      case 0: {  // inside
        const int height = Between(draws, 1, size.height), width = Between(draws, 1, size.width);
        return Crop({Between(draws, 0, size.height - height), Between(draws, 0, size.width - width),
                     height, width});
      }
      case 1:  // anywhere, perhaps with nothing inside
        return Crop({Between(draws, -5, size.height + 2), Between(draws, -5, size.width + 2),
                     Between(draws, 1, 15), Between(draws, 1, 15)});
      case 2: {
        const ImageSize to = {draws->NextBelow(3) ? Between(draws, 1, 20) : size.height,
                              draws->NextBelow(3) ? Between(draws, 1, 20) : size.width};
        const auto filter = static_cast<Filter>(draws->NextBelow(6));
        text += fmt::format(" resize {}x{} {}", to.height, to.width, FilterName(filter).data());
        BATCHD_RETURN_IF_ERROR(plan.Resize(to, filter));
        picture = ResizeOf(picture, to, filter);
        return absl::OkStatus();
      }
      case 3:
        text += " hflip";
        BATCHD_RETURN_IF_ERROR(plan.FlipHorizontal());
        picture = FlipOf(picture, true);
        return absl::OkStatus();
      default:
        text += " vflip";
        BATCHD_RETURN_IF_ERROR(plan.FlipVertical());
        picture = FlipOf(picture, false);
        return absl::OkStatus();
    }
  }
  absl::Status Crop(const Box& box) {
    text += fmt::format(" crop {},{} {}x{}", box.top, box.left, box.height, box.width);
    BATCHD_RETURN_IF_ERROR(plan.Crop(box));
    picture = CropOf(picture, box);
    return absl::OkStatus();
  }
};

TEST(GeometryPlan, EqualsTheOperationsOneAfterTheOther) {
  int refused = 0;
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    Draws draws({.seed = seed});
    const ImageSize size = {Between(&draws, 1, 20), Between(&draws, 1, 20)};
    const TestPicture start = NoisePicture(size, &draws);
    Chain chain{GeometryPlan(size), start, fmt::format("{}x{}:", size.height, size.width)};
    for (int i = Between(&draws, 1, 8); i > 0; --i) {
      if (!chain.Grow(&draws).ok()) {
        ++refused;  // too many stages: the plan is as before
        break;
      }
    }
    ASSERT_EQ(chain.plan.output(), chain.picture.size) << chain.text;
    const Box& box = chain.plan.stage(0).box;
    ASSERT_TRUE(box.top >= 0 && box.left >= 0 && box.height >= 1 && box.width >= 1 &&
                box.top + box.height <= size.height && box.left + box.width <= size.width)
        << chain.text;
    ASSERT_EQ(RunPlan(chain.plan, start), chain.picture) << chain.text;
  }
  EXPECT_LT(refused, 300);
}

TEST(GeometryPlan, StartsAsTheWholePicture) {
  const GeometryPlan plan({3, 4});
  EXPECT_EQ(plan.stage_count(), 1);
  EXPECT_EQ(plan.stage(0).box, (Box{0, 0, 3, 4}));
  EXPECT_EQ(plan.output(), (ImageSize{3, 4}));
}

TEST(GeometryPlan, CropResizeFlipIsOneStageThatDecodesOnlyTheBox) {
  GeometryPlan plan({300, 400});
  ASSERT_OK(plan.Crop({10, 20, 100, 120}));
  ASSERT_OK(plan.Resize({224, 224}, Filter::kBicubic));
  ASSERT_OK(plan.FlipHorizontal());
  ASSERT_EQ(plan.stage_count(), 1);
  EXPECT_EQ(plan.stage(0).box, (Box{10, 20, 100, 120}));
  EXPECT_EQ(plan.stage(0).resized, (ImageSize{224, 224}));
  EXPECT_EQ(plan.stage(0).filter, Filter::kBicubic);
  EXPECT_TRUE(plan.stage(0).flip_horizontal);
}

TEST(GeometryPlan, ResizeThenCentreCropIsOneStageWithAWindow) {
  GeometryPlan plan({300, 400});
  ASSERT_OK(plan.Resize({256, 341}, Filter::kBilinear));
  ASSERT_OK(plan.Crop({16, 58, 224, 224}));
  ASSERT_OK(plan.Crop({1, 2, 20, 20}));
  ASSERT_EQ(plan.stage_count(), 1);
  EXPECT_EQ(plan.stage(0).window, (Box{17, 60, 20, 20}));
}

TEST(GeometryPlan, ACropAfterAFlipIsMirrored) {
  GeometryPlan plan({10, 20});
  ASSERT_OK(plan.FlipHorizontal());
  ASSERT_OK(plan.Crop({1, 2, 5, 6}));
  EXPECT_EQ(plan.stage(0).box, (Box{1, 12, 5, 6}));
  EXPECT_TRUE(plan.stage(0).flip_horizontal);
}

TEST(GeometryPlan, AResizeToTheSameSizeIsNone) {
  GeometryPlan plan({10, 20});
  ASSERT_OK(plan.FlipHorizontal());
  ASSERT_OK(plan.Resize({10, 20}, Filter::kLanczos));
  EXPECT_EQ(plan.stage_count(), 1);
  EXPECT_FALSE(plan.stage(0).resizes());
}

TEST(GeometryPlan, AResizeAfterAFlipIsItsOwnStage) {
  GeometryPlan plan({10, 20});
  ASSERT_OK(plan.FlipHorizontal());
  ASSERT_OK(plan.Resize({5, 5}, Filter::kBilinear));
  EXPECT_EQ(plan.stage_count(), 2);
}

TEST(GeometryPlan, ACropBesideThePictureStillDecodesAPixel) {
  GeometryPlan plan({10, 20});
  ASSERT_OK(plan.Crop({100, 100, 4, 5}));
  EXPECT_EQ(plan.stage(0).box.height, 1);
  EXPECT_EQ(plan.output(), (ImageSize{4, 5}));
}

TEST(GeometryPlan, TellsHowFarADecoderMayReduce) {
  const auto reduction = [](const Box& box, ImageSize size, Filter filter) {
    GeometryPlan plan({1000, 1000});
    EXPECT_TRUE(plan.Crop(box).ok());
    EXPECT_TRUE(plan.Resize(size, filter).ok());
    return plan.ReductionMax();
  };
  EXPECT_EQ(reduction({0, 0, 447, 900}, {224, 224}, Filter::kBilinear), 1);
  EXPECT_EQ(reduction({0, 0, 448, 448}, {224, 224}, Filter::kBilinear), 2);
  EXPECT_EQ(reduction({0, 0, 1000, 895}, {224, 224}, Filter::kBilinear), 2);
  EXPECT_EQ(reduction({0, 0, 1000, 896}, {224, 224}, Filter::kBicubic), 4);
  EXPECT_EQ(reduction({1, 1, 999, 999}, {10, 10}, Filter::kLanczos), 8);
  EXPECT_EQ(reduction({0, 0, 448, 448}, {224, 224}, Filter::kNearest), 1);
  EXPECT_EQ(GeometryPlan({1000, 1000}).ReductionMax(), 1);
}

TEST(GeometryPlan, AReducedBoxCoversTheWholeOne) {
  GeometryPlan plan({1000, 1000});
  ASSERT_TRUE(plan.Crop({7, 8, 450, 449}).ok());
  ASSERT_TRUE(plan.Resize({100, 100}, Filter::kBilinear).ok());
  plan.Reduce(4);
  EXPECT_EQ(plan.stage(0).box, (Box{1, 2, 114, 113}));
  EXPECT_EQ(plan.stage(0).full_box, (Box{7, 8, 450, 449}));
  EXPECT_EQ(plan.output(), (ImageSize{100, 100}));
}

TEST(GeometryPlan, RefusesMoreStagesThanItHolds) {
  GeometryPlan plan({10, 10});
  absl::Status status;
  int resizes = 0;
  while (status.ok()) status = plan.Resize({20 + resizes++, 20}, Filter::kBox);
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kFailedPrecondition, "more than 8 passes"));
  EXPECT_EQ(plan.stage_count(), GeometryPlan::kStagesMax);
  EXPECT_EQ(plan.output(), (ImageSize{27, 20}));
}

}  // namespace
}  // namespace batchd
