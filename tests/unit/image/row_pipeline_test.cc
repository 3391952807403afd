// SPDX-License-Identifier: Apache-2.0

#include "server/image/row_pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/each_target.h"
#include "tests/support/scalar_resample.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

constexpr Filter kAllFilters[] = {Filter::kNearest, Filter::kBox,     Filter::kBilinear,
                                  Filter::kHamming, Filter::kBicubic, Filter::kLanczos};

class Collector final : public RowSink {
 public:
  explicit Collector(TestPicture* picture) : picture_(picture) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    for (int y = 0; y < row_count; ++y, rgb += stride_bytes, ++rows) {
      ASSERT_LT(rows, picture_->size.height);
      std::memcpy(picture_->at(rows, 0), rgb, size_t(picture_->size.width) * 3);
    }
  }
  int rows = 0;

 private:
  TestPicture* const picture_;
};

// Hands rows over as a decoder does: in uneven portions, from a block that is used again and whose
// content behind the rows is anything.
void Stream(const TestPicture& picture, const Box& region, Draws* draws, RowSink* sink) {
  const ptrdiff_t stride = ptrdiff_t{region.width} * 3;
  std::vector<uint8_t> block(size_t(stride) * kRowsPerPut + kRowSlackBytes, 0xA5);
  for (int y = 0; y < region.height;) {
    const int count = std::min(region.height - y, 1 + int(draws->NextBelow(kRowsPerPut)));
    std::fill(block.begin(), block.end(), 0xA5);
    for (int i = 0; i < count; ++i) {
      std::memcpy(block.data() + i * stride, picture.at(region.top + y + i, region.left),
                  size_t(stride));
    }
    sink->PutRows(block.data(), stride, count);
    y += count;
  }
}

TestPicture Streamed(const TestPicture& in, const GeometryPlan& plan, Draws* draws,
                     Scratch* scratch) {
  TestPicture out(plan.output());
  Collector collector(&out);
  RowPipeline pipeline(plan, &collector, scratch);
  EXPECT_EQ(RowPipeline::RegionOf(plan), pipeline.region());
  Stream(in, pipeline.region(), draws, &pipeline);
  EXPECT_EQ(collector.rows, out.size.height);
  return out;
}

TestPicture StageByStage(const TestPicture& in, const GeometryPlan& plan, Scratch* scratch) {
  TestPicture now = in;
  for (int i = 0; i < plan.stage_count(); ++i) {
    TestPicture next(plan.stage(i).output());
    RunStage(plan.stage(i), now.part(plan.stage(i).box), next.view(), scratch);
    now = std::move(next);
  }
  return now;
}

// A few operations at random; boxes reach outside now and then.
GeometryPlan RandomPlan(ImageSize size, Draws* draws) {
  GeometryPlan plan(size);
  const auto upto = [&](int n) { return 1 + static_cast<int>(draws->NextBelow(uint32_t(n))); };
  const int operations = upto(4);
  for (int i = 0; i < operations; ++i) {
    const ImageSize now = plan.output();
    absl::Status status;
    switch (draws->NextBelow(6)) {
      case 0:
      case 1: {
        const int height = upto(now.height), width = upto(now.width);
        status = plan.Crop(
            {upto(now.height - height + 1) - 1, upto(now.width - width + 1) - 1, height, width});
        break;
      }
      case 2:
        status = plan.Crop(
            {upto(now.height) - upto(20), upto(now.width) - upto(20), upto(30), upto(30)});
        break;
      case 3:
        status = plan.FlipHorizontal();
        break;
      case 4:
        status = plan.FlipVertical();
        break;
      default:
        status = plan.Resize({upto(60), upto(60)}, kAllFilters[draws->NextBelow(6)]);
    }
    EXPECT_TRUE(status.ok()) << status;
  }
  return plan;
}

TEST(RowPipelineOnEachTarget, EqualsTheScalarStages) {
  ForEachTarget([] {
    Scratch streamed_scratch, scratch;
    for (uint64_t seed = 0; seed < 3000; ++seed) {
      Draws draws({.seed = seed, .op_id = 77});
      const auto upto = [&](int n) { return 1 + static_cast<int>(draws.NextBelow(uint32_t(n))); };
      const TestPicture in = NoisePicture({upto(90), upto(90)}, &draws);
      const GeometryPlan plan = RandomPlan(in.size, &draws);
      ASSERT_EQ(Streamed(in, plan, &draws, &streamed_scratch), StageByStage(in, plan, &scratch))
          << "seed " << seed;
    }
  });
}

TEST(RowPipelineOnEachTarget, EqualsTheScalarStagesAtTheSizesOfTraining) {
  ForEachTarget([] {
    Scratch streamed_scratch, scratch;
    for (uint64_t seed = 0; seed < 12; ++seed) {
      Draws draws({.seed = seed, .op_id = 78});
      const auto upto = [&](int n) { return 1 + static_cast<int>(draws.NextBelow(uint32_t(n))); };
      const TestPicture in = NoisePicture({100 + upto(900), 100 + upto(900)}, &draws);
      GeometryPlan plan(in.size);
      const int height = upto(in.size.height), width = upto(in.size.width);
      ASSERT_TRUE(plan.Crop({upto(in.size.height - height + 1) - 1,
                             upto(in.size.width - width + 1) - 1, height, width})
                      .ok());
      ASSERT_TRUE(plan.Resize({224, 224}, kAllFilters[seed % 6]).ok());
      if (seed % 2 == 0) {
        ASSERT_TRUE(plan.FlipHorizontal().ok());
      }
      ASSERT_EQ(Streamed(in, plan, &draws, &streamed_scratch), StageByStage(in, plan, &scratch))
          << "seed " << seed;
    }
  });
}

// Weights that are negative and beyond 1, at the ends of the range of samples.
TEST(RowPipelineOnEachTarget, EqualsTheScalarStagesWhereSumsLeaveTheRange) {
  ForEachTarget([] {
    Scratch streamed_scratch, scratch;
    for (const Filter filter : {Filter::kBicubic, Filter::kLanczos}) {
      for (const ImageSize size : {ImageSize{200, 150}, {61, 47}, {3, 4}}) {
        Draws draws({.seed = 5});
        TestPicture in({60, 40});
        for (uint8_t& v : in.pixels) v = draws.NextBelow(2) == 0 ? 0 : 255;
        GeometryPlan plan(in.size);
        ASSERT_TRUE(plan.Resize(size, filter).ok());
        ASSERT_EQ(Streamed(in, plan, &draws, &streamed_scratch), StageByStage(in, plan, &scratch));
      }
    }
  });
}

// A long side shrinks to very little: all rows are within reach of one output.
TEST(RowPipelineOnEachTarget, EqualsTheScalarStagesForLongFilters) {
  ForEachTarget([] {
    Scratch streamed_scratch, scratch;
    for (const ImageSize in_size : {ImageSize{5000, 3}, {3, 9000}, {1201, 17}}) {
      for (const ImageSize size : {ImageSize{1, 1}, {2, 9}, {7, 2}}) {
        Draws draws({.seed = 6});
        const TestPicture in = NoisePicture(in_size, &draws);
        GeometryPlan plan(in.size);
        ASSERT_TRUE(plan.Resize(size, Filter::kLanczos).ok());
        ASSERT_EQ(Streamed(in, plan, &draws, &streamed_scratch), StageByStage(in, plan, &scratch));
      }
    }
  });
}

// Resize and centre crop: what lies outside the crop is not asked for.
TEST(RowPipeline, AsksForWhatTheWindowNeeds) {
  Scratch scratch;
  TestPicture out({10, 10});
  Collector collector(&out);
  GeometryPlan plan({100, 200});
  ASSERT_TRUE(plan.Resize({50, 100}, Filter::kBilinear).ok());
  ASSERT_TRUE(plan.Crop({20, 30, 10, 10}).ok());
  const RowPipeline pipeline(plan, &collector, &scratch);
  EXPECT_EQ(pipeline.region(), (Box{39, 59, 22, 22}));
}

// A picture that rises evenly along both axes, and the same reduced by averages.
TestPicture Ramp(ImageSize full, int reduction) {
  TestPicture ramp(
      {(full.height + reduction - 1) / reduction, (full.width + reduction - 1) / reduction});
  const double centre = (reduction - 1) / 2.0;
  for (int y = 0; y < ramp.size.height; ++y) {
    for (int x = 0; x < ramp.size.width; ++x) {
      const double across = x * reduction + centre;
      const double down = y * reduction + centre;
      const double values[] = {across / 2, down / 2, (across + down) / 4};
      for (int c = 0; c < 3; ++c) ramp.at(y, x)[c] = static_cast<uint8_t>(values[c] + 0.5);
    }
  }
  return ramp;
}

// The box of the full size is resized, though it begins and ends between pixels of the reduced
// picture: what comes out has not moved.
TEST(RowPipeline, OfAReducedPictureTakesTheSameBox) {
  Draws draws({.seed = 8});
  Scratch scratch;
  const ImageSize full = {430, 500};
  const TestPicture whole = Ramp(full, 1);
  for (int i = 0; i < 400; ++i) {
    const int reduction = 2 << draws.NextBelow(3);
    const ImageSize out = {1 + int(draws.NextBelow(50)), 1 + int(draws.NextBelow(50))};
    const int height = out.height * reduction + int(draws.NextBelow(uint32_t(reduction)));
    const int width = out.width * reduction + int(draws.NextBelow(uint32_t(reduction)));
    if (height > full.height - 32 || width > full.width - 32) continue;
    // Away from the borders, where the kinds of picture are cut differently.
    const Box box = {16 + int(draws.NextBelow(uint32_t(full.height - 31 - height))),
                     16 + int(draws.NextBelow(uint32_t(full.width - 31 - width))), height, width};
    GeometryPlan exact(full);
    ASSERT_OK(exact.Crop(box));
    ASSERT_OK(exact.Resize(out, Filter::kBilinear));
    if (draws.NextBelow(2) == 0) {
      ASSERT_OK(exact.FlipHorizontal());
    }
    ASSERT_GE(exact.ReductionMax(), reduction);
    GeometryPlan reduced = exact;
    reduced.Reduce(reduction);
    EXPECT_EQ(reduced.output(), out);
    const TestPicture want = Streamed(whole, exact, &draws, &scratch);
    const TestPicture got = Streamed(Ramp(full, reduction), reduced, &draws, &scratch);
    int difference_max = 0;
    for (size_t k = 0; k < want.pixels.size(); ++k) {
      difference_max = std::max(difference_max, std::abs(want.pixels[k] - got.pixels[k]));
    }
    // Rounding of the two pictures; a shift by one pixel of the full one would be more at 4 and 8.
    EXPECT_LE(difference_max, 1) << "reduction " << reduction << " box " << box.top << " "
                                 << box.left << " " << box.height << "x" << box.width;
  }
}

TEST(RowPipeline, TakesItsMemoryOnce) {
  Scratch scratch;
  TestPicture out({224, 224});
  GeometryPlan plan({400, 500});
  ASSERT_TRUE(plan.Crop({10, 20, 300, 333}).ok());
  ASSERT_TRUE(plan.Resize({224, 224}, Filter::kBilinear).ok());
  for (int i = 0; i < 3; ++i) {
    Collector collector(&out);
    const RowPipeline pipeline(plan, &collector, &scratch);
  }
  EXPECT_LE(scratch.held_bytes(), size_t{64} << 10);  // stays in the second cache
}

}  // namespace
}  // namespace batchd
