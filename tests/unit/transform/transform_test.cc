// SPDX-License-Identifier: Apache-2.0
//
// What each transform does to a plan, and which orders and arguments are refused.

#include "server/transform/transform.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/status_matchers.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct Named {
  const char* name;
  Json arguments = Json::object();
};

// Runs Prepare over a chain and stops at the first error.
absl::Status PrepareChain(const std::vector<Named>& chain, RowFormat* format, ValueTable* table) {
  for (const Named& operation : chain) {
    BATCHD_ASSIGN_OR_RETURN(const auto transform,
                            MakeTransform(operation.name, operation.arguments));
    BATCHD_RETURN_IF_ERROR(transform->Prepare(format, table));
  }
  return absl::OkStatus();
}
absl::Status PrepareChain(const std::vector<Named>& chain) {
  RowFormat format;
  ValueTable table;
  return PrepareChain(chain, &format, &table);
}
RowFormat FormatOf(const std::vector<Named>& chain) {
  RowFormat format;
  ValueTable table;
  EXPECT_OK(PrepareChain(chain, &format, &table));
  return format;
}

PicturePlan PlanOf(const Named& operation, ImageSize size, uint64_t seed = 0) {
  const auto transform = MakeTransform(operation.name, operation.arguments);
  EXPECT_OK(transform);
  PicturePlan plan(size);
  Draws draws({.seed = seed});
  EXPECT_OK((*transform)->Plan(&plan, &draws));
  return plan;
}

TEST(Transforms, OrdersThatMakeSenseAreAccepted) {
  EXPECT_OK(PrepareChain({{"RandomResizedCrop", {{"size", 8}}},
                          {"RandomHorizontalFlip"},
                          {"ToTensor"},
                          {"Normalize"},
                          {"Cast", {{"dtype", "float16"}}},
                          {"Layout", {{"layout", "NHWC"}}}}));
  EXPECT_OK(PrepareChain({{"Layout", {{"layout", "NCHW"}}}, {"Cast", {{"dtype", "float32"}}}}));
}

TEST(Transforms, WrongOrdersAreRefusedWithTheWayOut) {
  EXPECT_THAT(PrepareChain({{"Normalize"}}),
              FailsWith(kInvalid, "Normalize needs float32 values; put ToTensor before it"));
  EXPECT_THAT(PrepareChain({{"Cast", {{"dtype", "float32"}}}, {"Normalize"}}),
              FailsWith(kInvalid, "put Normalize before it"));
  EXPECT_THAT(PrepareChain({{"ToTensor"}, {"ToTensor"}}), FailsWith(kInvalid, "comes once"));
  EXPECT_THAT(PrepareChain({{"ToTensor"}, {"Normalize"}, {"Normalize"}}),
              FailsWith(kInvalid, "comes once"));
  for (const char* geometry : {"RandomResizedCrop", "Resize", "CenterCrop"}) {
    EXPECT_THAT(PrepareChain({{"ToTensor"}, {geometry, {{"size", 4}}}}),
                FailsWith(kInvalid, "put it before ToTensor"));
    EXPECT_THAT(PrepareChain({{"Layout", {{"layout", "NCHW"}}}, {geometry, {{"size", 4}}}}),
                FailsWith(kInvalid, "may not follow Layout"));
  }
  EXPECT_THAT(PrepareChain({{"ToTensor"}, {"RandomHorizontalFlip"}}),
              FailsWith(kInvalid, "put it before ToTensor"));
  EXPECT_THAT(PrepareChain({{"Cast", {{"dtype", "uint8"}}}, {"ToTensor"}}),
              FailsWith(kInvalid, "may not follow Cast"));
  EXPECT_THAT(PrepareChain({{"Cast", {{"dtype", "uint8"}}}, {"Cast", {{"dtype", "uint8"}}}}),
              FailsWith(kInvalid, "comes once"));
  EXPECT_THAT(PrepareChain({{"Layout", {{"layout", "NCHW"}}}, {"Layout", {{"layout", "NHWC"}}}}),
              FailsWith(kInvalid, "comes once"));
}

TEST(Transforms, WrongArgumentsAreRefusedByField) {
  EXPECT_EQ(FieldOf(MakeTransform("Resize", {{"size", {0, 10}}}).status()), "Resize.size[0]");
  EXPECT_EQ(FieldOf(MakeTransform("Resize", {{"size", -5}}).status()), "Resize.size");
  EXPECT_EQ(FieldOf(MakeTransform("Resize", {{"size", 65536}}).status()), "Resize.size");
  EXPECT_EQ(FieldOf(MakeTransform("Resize", Json::object()).status()), "Resize.size");
  EXPECT_EQ(FieldOf(MakeTransform("Resize", {{"size", {4, 5}}, {"max_size", 9}}).status()),
            "max_size");
  EXPECT_EQ(FieldOf(MakeTransform("Resize", {{"size", 9}, {"max_size", 9}}).status()), "max_size");
  EXPECT_EQ(
      FieldOf(MakeTransform("RandomResizedCrop", {{"size", 4}, {"scale", {0.5, 0.1}}}).status()),
      "scale");
  EXPECT_EQ(FieldOf(MakeTransform("RandomResizedCrop", {{"size", 4}, {"ratio", {0, 1}}}).status()),
            "RandomResizedCrop.ratio[0]");
  EXPECT_EQ(FieldOf(MakeTransform("Normalize", {{"std", {1, 0, 1}}}).status()), "std[1]");
  EXPECT_EQ(FieldOf(MakeTransform("Normalize", {{"std", {1, 1e-60, 1}}}).status()), "std[1]");
  EXPECT_EQ(FieldOf(PrepareChain({{"ToTensor"}, {"Normalize", {{"mean", {0.5, 0.5}}}}})), "mean");
  EXPECT_EQ(FieldOf(PrepareChain({{"Grayscale"}, {"ToTensor"}, {"Normalize"}})), "mean");
  EXPECT_EQ(FieldOf(MakeTransform("Grayscale", {{"num_output_channels", 2}}).status()),
            "num_output_channels");
  EXPECT_EQ(FieldOf(MakeTransform("RandomHorizontalFlip", {{"p", 1.5}}).status()),
            "RandomHorizontalFlip.p");
  EXPECT_THAT(MakeTransform("Cast", {{"dtype", "int8"}}), FailsWith(kInvalid, "bfloat16"));
}

TEST(Transforms, FormatsAreWhatTheNamesPromise) {
  const RowFormat tensor = FormatOf({{"ToTensor"}});
  EXPECT_EQ(tensor.dtype, DType::kFloat32);
  EXPECT_EQ(tensor.layout, Layout::kChw);
  EXPECT_FALSE(tensor.size.has_value());
  EXPECT_EQ(FormatOf({{"ToTensor"}, {"Layout", {{"layout", "NHWC"}}}}).layout, Layout::kHwc);
  const RowFormat bytes = FormatOf({{"Layout", {{"layout", "NCHW"}}}});
  EXPECT_EQ(bytes.dtype, DType::kUint8);
  EXPECT_EQ(bytes.layout, Layout::kChw);
}

TEST(Transforms, TheSizeIsKnownWhereItDoesNotDependOnThePicture) {
  EXPECT_FALSE(FormatOf({{"Resize", {{"size", 5}}}}).size.has_value());
  EXPECT_EQ(FormatOf({{"Resize", {{"size", {5, 6}}}}}).size, (ImageSize{5, 6}));
  EXPECT_EQ(FormatOf({{"CenterCrop", {{"size", {8, 4}}}}, {"Resize", {{"size", 2}}}}).size,
            (ImageSize{4, 2}));
  EXPECT_EQ(FormatOf({{"RandomResizedCrop", {{"size", 7}}}, {"RandomHorizontalFlip"}}).size,
            (ImageSize{7, 7}));
  EXPECT_THAT(PrepareChain({{"CenterCrop", {{"size", {1, 9000}}}}, {"Resize", {{"size", 100}}}}),
              FailsWith(kInvalid, "900000"));
}

TEST(RandomResizedCrop, TryKUsesDraws4kTo4kPlus3) {
  // A picture so long that most tries fail.
  const ImageSize picture = {40, 400};
  int later_tries = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Draws draws({.seed = seed});
    const auto uniform = [&](int k) { return draws.U32At(static_cast<uint16_t>(k)) * 0x1p-32; };
    Box want = {0, 173, 40, 53};
    for (int k = 0; k < 10; ++k) {
      const double area = 40 * 400 * (0.08 + (1.0 - 0.08) * uniform(4 * k));
      const double lo = std::log(0.75), hi = std::log(1.3333333333333333);
      const double aspect = std::exp(lo + (hi - lo) * uniform(4 * k + 1));
      const double width = std::nearbyint(std::sqrt(area * aspect));
      const double height = std::nearbyint(std::sqrt(area / aspect));
      if (width > 400 || height > 40) continue;
      want = {static_cast<int>(uniform(4 * k + 2) * (40 - height + 1)),
              static_cast<int>(uniform(4 * k + 3) * (400 - width + 1)), static_cast<int>(height),
              static_cast<int>(width)};
      later_tries += k > 0;
      break;
    }
    const PicturePlan plan = PlanOf({"RandomResizedCrop", {{"size", 8}}}, picture, seed);
    EXPECT_EQ(plan.segments()[0].geometry.stage(0).box, want) << seed;
    EXPECT_EQ(plan.output(), (ImageSize{8, 8}));
  }
  EXPECT_GT(later_tries, 20);
}

TEST(RandomHorizontalFlip, FlipsWithProbabilityP) {
  int flips = 0;
  for (uint64_t seed = 0; seed < 10000; ++seed) {
    flips += PlanOf({"RandomHorizontalFlip", {{"p", 0.3}}}, {2, 2}, seed)
                 .segments()[0]
                 .geometry.stage(0)
                 .flip_horizontal;
    EXPECT_TRUE(PlanOf({"RandomHorizontalFlip", {{"p", 1}}}, {2, 2}, seed)
                    .segments()[0]
                    .geometry.stage(0)
                    .flip_horizontal);
    EXPECT_FALSE(PlanOf({"RandomHorizontalFlip", {{"p", 0}}}, {2, 2}, seed)
                     .segments()[0]
                     .geometry.stage(0)
                     .flip_horizontal);
  }
  EXPECT_NEAR(flips, 3000, 250);
}

TEST(Resize, TooLongASideIsABadSample) {
  const auto transform = MakeTransform("Resize", {{"size", 256}});
  ASSERT_OK(transform);
  PicturePlan plan({1, 1000});
  Draws draws({});
  EXPECT_THAT((*transform)->Plan(&plan, &draws), IsBadSample(SampleReason::kTooLarge));
}

}  // namespace
}  // namespace batchd
