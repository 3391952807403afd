// SPDX-License-Identifier: Apache-2.0
//
// What the operations on pictures draw, in which order and by which law, and which arguments they
// refuse. The pixels are the business of unit/image and of the shared cases.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "server/image/fixed_math.h"
#include "server/transform/kinds.h"
#include "server/transform/steps.h"
#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_picture.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr double kSigma = 5;

std::unique_ptr<Transform> MakePrepared(const std::string& name, const Json& arguments) {
  auto transform = MakeTransform(name, arguments);
  EXPECT_OK(transform);
  RowFormat format;
  ValueTable table;
  EXPECT_OK((*transform)->Prepare(&format, &table));
  return std::move(*transform);
}

PicturePlan PlanOf(const Transform& transform, ImageSize size, uint64_t ordinal) {
  PicturePlan plan(size);
  Draws draws({.seed = 12, .ordinal = ordinal});
  EXPECT_OK(transform.Plan(&plan, &draws));
  return plan;
}

std::span<const PictureStep> StepsOf(const PicturePlan& plan) {
  return plan.steps_of(plan.segments()[0]);
}

double UniformAt(uint64_t ordinal, int draw) {
  return Draws({.seed = 12, .ordinal = ordinal}).U32At(static_cast<uint16_t>(draw)) * 0x1p-32;
}

// Values in [min, max) that should be uniform there: each tenth has its share.
void ExpectUniform(const std::vector<double>& values, double min, double max) {
  std::array<int, 10> counts = {};
  for (const double value : values) {
    ASSERT_GE(value, min);
    ASSERT_LT(value, max);
    ++counts[static_cast<size_t>((value - min) / (max - min) * 10)];
  }
  const double n = static_cast<double>(values.size());
  for (const int count : counts) EXPECT_NEAR(count, n / 10, kSigma * std::sqrt(n * 0.1 * 0.9));
}

void ExpectEqualSteps(const PictureStep& got, const PictureStep& want) {
  EXPECT_EQ(got.run, want.run);
  EXPECT_EQ(got.numbers, want.numbers);
  EXPECT_EQ(got.filter, want.filter);
  EXPECT_EQ(got.fill, want.fill);
  EXPECT_EQ(got.box, want.box);
}

std::string FieldOfRefusal(const std::string& name, const Json& arguments) {
  return FieldOf(MakeTransform(name, arguments).status());
}

TEST(ColorJitter, DrawsEveryOrderEquallyOftenAndAmountsUniformly) {
  const auto jitter = MakePrepared(
      "ColorJitter",
      {{"brightness", 0.4}, {"contrast", {0.5, 0.7}}, {"saturation", 1.5}, {"hue", 0.1}});
  const PictureStep kinds[] = {BrightnessStep(0), ContrastStep(0), SaturationStep(0), HueStep(0)};
  std::map<std::string, int> orders;
  std::array<std::vector<double>, 4> amounts;
  constexpr int kSamples = 24000;
  for (uint64_t ordinal = 0; ordinal < kSamples; ++ordinal) {
    const PicturePlan plan = PlanOf(*jitter, {4, 4}, ordinal);
    ASSERT_EQ(StepsOf(plan).size(), 4u);
    std::string order;
    for (const PictureStep& step : StepsOf(plan)) {
      const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                     [&](const PictureStep& k) { return k.run == step.run; });
      ASSERT_NE(kind, std::end(kinds));
      amounts[kind - kinds].push_back(step.numbers[0]);
      order += static_cast<char>('0' + (kind - kinds));
    }
    ++orders[order];
  }
  EXPECT_EQ(orders.size(), 24u);
  for (const auto& [order, count] : orders) {
    EXPECT_NEAR(count, kSamples / 24, kSigma * std::sqrt(kSamples / 24.0)) << order;
  }
  ExpectUniform(amounts[0], 0.6, 1.4);
  ExpectUniform(amounts[1], 0.5, 0.7);
  ExpectUniform(amounts[2], 0, 2.5);
  ExpectUniform(amounts[3], -0.1, 0.1);
}

TEST(ColorJitter, OneNumberIsTheSharedCasesRange) {
  BATCHD_NEEDS_CASES();
  const Json table = ReadJson(CasesPath("transforms/geometry.json"));
  ASSERT_GE(table["color_jitter_range"].size(), 5u);
  for (const Json& row : table["color_jitter_range"]) {
    const double lo = row["range"][0], hi = row["range"][1];
    const auto jitter = MakePrepared("ColorJitter", {{"contrast", row["value"]}});
    for (uint64_t ordinal = 0; ordinal < 50; ++ordinal) {
      const PicturePlan plan = PlanOf(*jitter, {4, 4}, ordinal);
      if (lo == hi) {
        EXPECT_FALSE(plan.has_steps());
        continue;
      }
      ASSERT_EQ(StepsOf(plan).size(), 1u);
      EXPECT_NEAR(StepsOf(plan)[0].numbers[0], lo + (hi - lo) * UniformAt(ordinal, 4), 1e-9);
    }
  }
}

TEST(ColorJitter, NothingToDoIsNoStep) {
  for (const Json& arguments :
       {Json::object(), Json{{"brightness", 0}}, Json{{"contrast", {1, 1}}}, Json{{"hue", 0}}}) {
    EXPECT_FALSE(PlanOf(*MakePrepared("ColorJitter", arguments), {4, 4}, 3).has_steps());
  }
}

TEST(RandomRotation, TurnsByItsOnlyDraw) {
  const auto rotation = MakePrepared("RandomRotation", {{"degrees", {-10, 50}},
                                                        {"interpolation", "bilinear"},
                                                        {"fill", {1, 2, 3}},
                                                        {"expand", true}});
  for (uint64_t ordinal = 0; ordinal < 200; ++ordinal) {
    const PicturePlan plan = PlanOf(*rotation, {30, 47}, ordinal);
    const Rotation due = RotationOf({30, 47}, -10 + 60 * UniformAt(ordinal, 0), std::nullopt, true);
    ASSERT_EQ(StepsOf(plan).size(), 1u);
    EXPECT_EQ(plan.output(), due.size);
    ExpectEqualSteps(StepsOf(plan)[0],
                     WarpStep(due.matrix, due.size, Filter::kBilinear, {1, 2, 3}));
  }
}

// As torchvision's on a PIL picture; on a tensor it forgets the center.
TEST(RandomRotation, ACenterCountsForAnExpandedPictureToo) {
  const auto rotation =
      MakePrepared("RandomRotation", {{"degrees", {33, 33}}, {"expand", true}, {"center", {3, 4}}});
  const PicturePlan plan = PlanOf(*rotation, {20, 30}, 0);
  const Rotation due = RotationOf({20, 30}, 33, WarpPoint{3, 4}, true);
  EXPECT_EQ(plan.output(), (ImageSize{34, 37}));  // about the middle it is 34 x 38
  ExpectEqualSteps(StepsOf(plan)[0], WarpStep(due.matrix, due.size, Filter::kNearest, {}));
}

TEST(RandomAffine, EachDrawHasItsPlaceWhetherItIsAskedForOrNot) {
  const ImageSize size = {30, 47};
  const auto all = MakePrepared("RandomAffine", {{"degrees", 20},
                                                 {"translate", {0.2, 0.3}},
                                                 {"scale", {0.5, 2}},
                                                 {"shear", {-5, 5, 1, 2}},
                                                 {"center", {3, 4}}});
  const auto some = MakePrepared("RandomAffine", {{"degrees", 0}, {"shear", 7}});
  for (uint64_t ordinal = 0; ordinal < 200; ++ordinal) {
    const auto u = [&](int draw) { return UniformAt(ordinal, draw); };
    const double dx = 0.2 * 47, dy = 0.3 * 30;
    const Affine of_all = {.degrees = -20 + 40 * u(0),
                           .translate_x = std::nearbyint(-dx + 2 * dx * u(1)),
                           .translate_y = std::nearbyint(-dy + 2 * dy * u(2)),
                           .scale = 0.5 + 1.5 * u(3),
                           .shear_x_degrees = -5 + 10 * u(4),
                           .shear_y_degrees = 1 + u(5)};
    ExpectEqualSteps(
        StepsOf(PlanOf(*all, size, ordinal))[0],
        WarpStep(AffineMatrix(size, of_all, WarpPoint{3, 4}), size, Filter::kNearest, {}));
    const Affine of_some = {.shear_x_degrees = -7 + 14 * u(4)};
    ExpectEqualSteps(
        StepsOf(PlanOf(*some, size, ordinal))[0],
        WarpStep(AffineMatrix(size, of_some, std::nullopt), size, Filter::kNearest, {}));
  }
}

TEST(GaussianBlur, DrawsItsStandardDeviation) {
  const auto blur = MakePrepared("GaussianBlur", {{"kernel_size", {5, 3}}});
  for (uint64_t ordinal = 0; ordinal < 100; ++ordinal) {
    ExpectEqualSteps(StepsOf(PlanOf(*blur, {9, 9}, ordinal))[0],
                     BlurStep(5, 3, 0.1 + (2.0 - 0.1) * UniformAt(ordinal, 0)));
  }
}

TEST(RandomCrop, EveryPlaceIsEquallyLikely) {
  const auto crop = MakePrepared("RandomCrop", {{"size", {6, 8}}, {"padding", {1, 2}}});
  std::map<std::pair<int, int>, int> places;
  constexpr int kSamples = 20000;
  for (uint64_t ordinal = 0; ordinal < kSamples; ++ordinal) {
    const PicturePlan plan = PlanOf(*crop, {4, 9}, ordinal);
    EXPECT_FALSE(plan.has_steps());  // zeros outside are geometry
    const GeometryStage& stage = plan.segments()[0].geometry.stage(0);
    // The window in the picture's coordinates.
    ++places[{stage.box.top + stage.window.top, stage.box.left + stage.window.left}];
    ASSERT_EQ(plan.output(), (ImageSize{6, 8}));
  }
  ASSERT_EQ(places.size(), 3u * 4u);  // 4 + 2 * 2 - 6 + 1 rows, 9 + 2 - 8 + 1 columns
  for (const auto& [place, count] : places) {
    EXPECT_GE(place.first, -2);
    EXPECT_GE(place.second, -1);
    EXPECT_NEAR(count, kSamples / 12, kSigma * std::sqrt(kSamples / 12.0));
  }
}

TEST(RandomCrop, WhatIsOutsideIsAsPadMakesIt) {
  const Json look = {{"fill", 9}, {"padding_mode", "reflect"}};
  Json arguments = look;
  arguments.update({{"size", 10}, {"pad_if_needed", true}, {"padding", {0, 1, 2, 3}}});
  const auto crop = MakePrepared("RandomCrop", arguments);
  arguments = look;
  // 8 rows with the padding: 2 are missing, at both sides; columns are enough.
  arguments["padding"] = {0, 1 + 2, 2, 3 + 2};
  const auto pad = MakePrepared("Pad", arguments);
  Scratch scratch;
  Draws noise({.seed = 2});
  const TestPicture picture = NoisePicture({4, 9}, &noise);
  const TestPicture padded = RunPlan(PlanOf(*pad, picture.size, 0), picture, &scratch);
  ASSERT_EQ(padded.size, (ImageSize{12, 11}));
  for (uint64_t ordinal = 0; ordinal < 20; ++ordinal) {
    PicturePlan due(padded.size);
    due.Crop({int(3 * UniformAt(ordinal, 0)), int(2 * UniformAt(ordinal, 1)), 10, 10});
    EXPECT_EQ(RunPlan(PlanOf(*crop, picture.size, ordinal), picture, &scratch),
              RunPlan(due, padded, &scratch));
  }
}

TEST(CropOrPad, OnlyABoxThatReachesOutNeedsAStep) {
  const auto needs_step = [](const Box& box, PadMode mode, const Colour& fill) {
    PicturePlan plan({10, 12});
    CropOrPad(box, mode, fill, &plan);
    EXPECT_EQ(plan.output(), (ImageSize{box.height, box.width}));
    return plan.has_steps();
  };
  const Box outside[] = {{-1, 2, 5, 5}, {2, -1, 5, 5}, {6, 2, 5, 5}, {2, 8, 5, 5}};
  for (const Box& box : outside) {
    EXPECT_TRUE(needs_step(box, PadMode::kReflect, {}));
    EXPECT_TRUE(needs_step(box, PadMode::kConstant, {0, 0, 1}));
    EXPECT_FALSE(needs_step(box, PadMode::kConstant, {}));
  }
  EXPECT_FALSE(needs_step({5, 7, 5, 5}, PadMode::kReflect, {}));
  EXPECT_FALSE(needs_step({0, 0, 10, 12}, PadMode::kConstant, {1, 1, 1}));
}

TEST(RandomCrop, ATooSmallPictureIsAnErrorWithTheWayOut) {
  const auto crop = MakePrepared("RandomCrop", {{"size", 10}, {"padding", 1}});
  PicturePlan plan({20, 7});
  Draws draws({});
  EXPECT_THAT(crop->Plan(&plan, &draws),
              FailsWith(kInvalid,
                        "20x7 (height x width) is smaller with its padding than the crop "
                        "of 10x10; set pad_if_needed"));
  RowFormat format = {.size = ImageSize{20, 7}};
  ValueTable table;
  EXPECT_THAT(crop->Prepare(&format, &table), FailsWith(kInvalid, "20x7"));
}

// torchvision's rule by hand.
TEST(RandomErasing, TheBoxIsTheFirstTryThatIsSmallerThanThePicture) {
  const auto erasing = MakePrepared("RandomErasing", {{"p", 0.5}, {"scale", {0.2, 0.9}}});
  const ImageSize size = {10, 60};
  int erased = 0, later = 0, none = 0;
  for (uint64_t ordinal = 0; ordinal < 4000; ++ordinal) {
    const auto u = [&](int draw) { return UniformAt(ordinal, draw); };
    const PicturePlan plan = PlanOf(*erasing, size, ordinal);
    if (u(0) >= 0.5) {
      ASSERT_TRUE(plan.erasures().empty());
      continue;
    }
    std::optional<Box> due;
    for (int k = 0; k < 10 && !due.has_value(); ++k) {
      const double area = 600 * (0.2 + (0.9 - 0.2) * u(4 * k + 1));
      const double lo = std::log(0.3), hi = std::log(3.3);
      const double ratio = std::exp(lo + (hi - lo) * u(4 * k + 2));
      const int height = static_cast<int>(std::nearbyint(std::sqrt(area * ratio)));
      const int width = static_cast<int>(std::nearbyint(std::sqrt(area / ratio)));
      if (height >= 10 || width >= 60) continue;
      due = Box{static_cast<int>(u(4 * k + 3) * (10 - height + 1)),
                static_cast<int>(u(4 * k + 4) * (60 - width + 1)), height, width};
      later += k > 0;
    }
    ASSERT_EQ(plan.erasures().size(), due.has_value() ? 1u : 0u) << ordinal;
    if (due.has_value()) {
      EXPECT_EQ(plan.erasures()[0].box, *due);
      ++erased;
    } else {
      ++none;
    }
  }
  EXPECT_GT(erased, 1000);
  EXPECT_GT(later, 100);
  EXPECT_GT(none, 10);
}

TEST(RandomErasing, ItsValueIsInTheUnitsOfItsPlace) {
  const auto prepared = [](const Json& value, RowFormat format) {
    ValueTable table;
    return MakeTransform("RandomErasing", {{"value", value}}).value()->Prepare(&format, &table);
  };
  const RowFormat bytes, tensor = {.is_tensor = true};
  const RowFormat grey = {.is_tensor = true, .channels = 1};
  EXPECT_OK(prepared(255, bytes));
  EXPECT_OK(prepared({-1.5, 0, 3}, tensor));
  EXPECT_EQ(FieldOf(prepared(0.5, bytes)), "value");
  EXPECT_EQ(FieldOf(prepared(256, bytes)), "value");
  EXPECT_EQ(FieldOf(prepared({1, 2}, tensor)), "value");
  EXPECT_THAT(prepared({1, 2, 3}, grey),
              FailsWith(kInvalid, "3 numbers for rows of 1 channel; give 1"));
  EXPECT_THAT(prepared(0, {.is_tensor = true, .is_cast = true}), FailsWith(kInvalid, "Cast"));
}

TEST(PictureOperations, StandBeforeToTensorAndRandomErasing) {
  for (const TransformKind* kind : TransformKinds()) {
    RowFormat format = {.is_tensor = true};
    RowFormat erased = {.is_erased = true};
    ValueTable table;
    const std::string& name = kind->schema().name;
    if (name != "ColorJitter" && name != "RandAugment" && name != "AutoAugment" &&
        name != "TrivialAugmentWide" && name != "RandomInvert" && name != "Grayscale") {
      continue;
    }
    const auto transform = MakeTransform(name, Json::object());
    ASSERT_OK(transform);
    EXPECT_THAT((*transform)->Prepare(&format, &table),
                FailsWith(kInvalid, name + " works on 8-bit pixels; put it before ToTensor"));
    EXPECT_THAT((*transform)->Prepare(&erased, &table),
                FailsWith(kInvalid, name + " may not follow RandomErasing"));
  }
}

TEST(PictureOperations, AFillOfOneChannelIsGrey) {
  const auto prepared = [](const char* name, Json arguments, const Json& fill) {
    arguments["fill"] = fill;
    RowFormat format = {.channels = 1};
    ValueTable table;
    return MakeTransform(name, arguments).value()->Prepare(&format, &table);
  };
  const std::pair<const char*, Json> kFilling[] = {{"RandomRotation", {{"degrees", 5}}},
                                                   {"RandomAffine", {{"degrees", 5}}},
                                                   {"Pad", {{"padding", 5}}},
                                                   {"RandomCrop", {{"size", 5}, {"padding", 1}}},
                                                   {"RandAugment", Json::object()},
                                                   {"TrivialAugmentWide", Json::object()},
                                                   {"AutoAugment", Json::object()}};
  for (const auto& [name, arguments] : kFilling) {
    EXPECT_EQ(FieldOf(prepared(name, arguments, {1, 1, 2})), "fill") << name;
    EXPECT_OK(prepared(name, arguments, {4, 4, 4}));
    EXPECT_OK(prepared(name, arguments, 9));
  }
}

TEST(PictureOperations, RefuseArgumentsByTheirField) {
  EXPECT_EQ(FieldOfRefusal("ColorJitter", {{"hue", 0.7}}), "ColorJitter.hue[0]");
  EXPECT_EQ(FieldOfRefusal("ColorJitter", {{"hue", -0.2}}), "hue");
  EXPECT_EQ(FieldOfRefusal("ColorJitter", {{"contrast", {1.2, 0.9}}}), "contrast");
  EXPECT_EQ(FieldOfRefusal("RandomRotation", {{"degrees", -5}}), "degrees");
  EXPECT_EQ(FieldOfRefusal("RandomRotation", {{"degrees", {5, 1}}}), "degrees");
  EXPECT_EQ(FieldOfRefusal("RandomRotation", {{"degrees", 5}, {"fill", {1, 2}}}), "fill");
  EXPECT_EQ(FieldOfRefusal("RandomRotation", {{"degrees", 5}, {"fill", 256}}),
            "RandomRotation.fill[0]");
  EXPECT_EQ(FieldOfRefusal("RandomRotation", {{"degrees", 5}, {"interpolation", "lanczos"}}),
            "RandomRotation.interpolation");
  EXPECT_EQ(FieldOfRefusal("RandomRotation", {{"degrees", 5}, {"center", 5}}),
            "RandomRotation.center");
  EXPECT_EQ(FieldOfRefusal("RandomAffine", {{"degrees", 5}, {"scale", {0, 1}}}),
            "RandomAffine.scale[0]");
  EXPECT_EQ(FieldOfRefusal("RandomAffine", {{"degrees", 5}, {"shear", {1, 2, 3}}}), "shear");
  EXPECT_EQ(FieldOfRefusal("RandomAffine", {{"degrees", 5}, {"shear", {1, 2, 4, 3}}}), "shear");
  EXPECT_EQ(FieldOfRefusal("RandomAffine", {{"degrees", 5}, {"translate", {0, 1.5}}}),
            "RandomAffine.translate[1]");
  EXPECT_EQ(FieldOfRefusal("GaussianBlur", {{"kernel_size", {3, 4}}}), "kernel_size[1]");
  EXPECT_EQ(FieldOfRefusal("GaussianBlur", {{"kernel_size", 3}, {"sigma", {2, 1}}}), "sigma");
  EXPECT_EQ(FieldOfRefusal("Pad", {{"padding", {1, 2, 3}}}), "padding");
  EXPECT_EQ(FieldOfRefusal("Pad", {{"padding", -1}}), "Pad.padding[0]");
  EXPECT_EQ(FieldOfRefusal("Pad", {{"padding", 1}, {"padding_mode", "wrap"}}), "Pad.padding_mode");
  EXPECT_EQ(FieldOfRefusal("RandomPosterize", {{"bits", 9}}), "RandomPosterize.bits");
  EXPECT_EQ(FieldOfRefusal("RandomSolarize", {{"threshold", 300}}), "RandomSolarize.threshold");
  EXPECT_EQ(FieldOfRefusal("RandomErasing", {{"ratio", {3, 0.3}}}), "ratio");
  EXPECT_EQ(FieldOfRefusal("RandomErasing", {{"value", "random"}}), "RandomErasing.value");
  EXPECT_EQ(FieldOfRefusal("RandAugment", {{"magnitude", 31}}), "magnitude");
  EXPECT_EQ(FieldOfRefusal("RandAugment", {{"num_magnitude_bins", 1}}),
            "RandAugment.num_magnitude_bins");
  EXPECT_EQ(FieldOfRefusal("AutoAugment", {{"policy", "mnist"}}), "AutoAugment.policy");
}

}  // namespace
}  // namespace batchd
