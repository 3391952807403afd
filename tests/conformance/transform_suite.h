// SPDX-License-Identifier: Apache-2.0
//
// What every kind of transform must do. A new kind is covered by being in the registry; where its
// schema has parameters without a default, an example of them comes from ExampleArguments.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/test_picture.h"
#include "tests/support/transform_helpers.h"

namespace batchd {

// The arguments that must be given, by the type of the parameter.
inline Json ExampleArguments(const Schema& schema) {
  Json arguments = Json::object();
  for (const Param& param : schema.params) {
    if (param.default_value.has_value()) continue;
    switch (param.type) {
      case ParamType::kString:
        arguments[param.name] = param.choices.empty() ? "x" : param.choices.front();
        break;
      case ParamType::kBool:
        arguments[param.name] = true;
        break;
      case ParamType::kOperations:
        arguments[param.name] = {
            {{"name", "Grayscale"}, {"arguments", {{"num_output_channels", 3}}}},
            {{"name", "RandomInvert"}, {"arguments", {{"p", 1.0}}}}};
        break;
      case ParamType::kIntList:
        arguments[param.name] = Json(std::vector<int>(param.count_min, 3));
        break;
      case ParamType::kFloatList:
        arguments[param.name] = Json(std::vector<double>(param.count_min, param.max));
        break;
      default:
        arguments[param.name] = std::max(param.min, 3.0);
    }
  }
  if (schema.name == "ColorJitter") arguments["hue"] = 0.1;  // by default it does nothing
  return arguments;
}

class TransformSuite : public ::testing::TestWithParam<const TransformKind*> {
 protected:
  const Schema& schema() const { return GetParam()->schema(); }

  std::unique_ptr<Transform> Make() const {
    auto made = MakeTransform(schema().name, ExampleArguments(schema()));
    EXPECT_OK(made);
    return made.ok() ? std::move(*made) : nullptr;
  }

  // A format at which the transform may stand: the start, or after ToTensor.
  RowFormat PreparedFormat(Transform& transform, ValueTable* table) const {
    RowFormat format;
    if (!transform.Prepare(&format, table).ok()) {
      *table = ValueTable();
      format = RowFormat();
      table->DivideBy255();
      format.dtype = DType::kFloat32;
      format.layout = Layout::kChw;
      format.is_tensor = true;
      EXPECT_OK(transform.Prepare(&format, table));
    }
    return format;
  }
};

inline std::string StagesText(const GeometryPlan& plan) {
  std::string text;
  const auto box = [](const Box& b) {
    return fmt::format("{},{} {}x{}", b.top, b.left, b.height, b.width);
  };
  for (int i = 0; i < plan.stage_count(); ++i) {
    const GeometryStage& s = plan.stage(i);
    text +=
        fmt::format("[{} to {}x{} by {}, {} {}{}]", box(s.box), s.resized.height, s.resized.width,
                    static_cast<int>(s.filter), box(s.window), s.flip_horizontal, s.flip_vertical);
  }
  return text;
}

// All that a plan is, as text.
inline std::string PlanText(const PicturePlan& plan) {
  std::string text;
  for (const PicturePlan::Segment& segment : plan.segments()) {
    text += StagesText(segment.geometry);
    for (const PictureStep& s : plan.steps_of(segment)) {
      text += fmt::format("<{} {} {}x{} {} {} {} {},{},{},{}>", reinterpret_cast<uintptr_t>(s.run),
                          s.in_place, s.output.height, s.output.width, static_cast<int>(s.filter),
                          fmt::join(s.fill, ","), fmt::join(s.numbers, ","), s.box.top, s.box.left,
                          s.box.height, s.box.width);
    }
  }
  for (const Erasure& e : plan.erasures()) {
    text += fmt::format("({} {},{},{},{})", e.constant, e.box.top, e.box.left, e.box.height,
                        e.box.width);
  }
  return text;
}

TEST_P(TransformSuite, IsFoundByItsName) {
  EXPECT_EQ(FindTransform(schema().name), GetParam());
  EXPECT_EQ(FindTransform(schema().name + "x"), nullptr);
}

TEST_P(TransformSuite, HasASentenceForItselfAndEveryParameter) {
  EXPECT_FALSE(schema().sentence.empty());
  for (const Param& param : schema().params) EXPECT_FALSE(param.sentence.empty()) << param.name;
}

TEST_P(TransformSuite, CheckedArgumentsPassTheCheckUnchanged) {
  const auto once = CheckArguments(schema(), ExampleArguments(schema()), "f");
  ASSERT_OK(once);
  EXPECT_EQ(once->size(), schema().params.size());
  const auto twice = CheckArguments(schema(), *once, "f");
  ASSERT_OK(twice);
  EXPECT_EQ(once->dump(), twice->dump());
}

TEST_P(TransformSuite, RefusesAnUnknownArgumentByItsPath) {
  Json arguments = ExampleArguments(schema());
  arguments["no_such_argument"] = 1;
  EXPECT_EQ(FieldOf(CheckArguments(schema(), arguments, "f").status()), "f.no_such_argument");
}

TEST_P(TransformSuite, TheSameDrawsMakeTheSamePlan) {
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  for (uint64_t ordinal = 0; ordinal < 200; ++ordinal) {
    const DrawKey key = {.seed = 5, .ordinal = ordinal, .op_id = 9};
    PicturePlan a({30, 40}), b({30, 40});
    Draws draws_a(key), draws_b(key);
    ASSERT_OK(transform->Plan(&a, &draws_a));
    ASSERT_OK(transform->Plan(&b, &draws_b));
    ASSERT_EQ(PlanText(a), PlanText(b));
  }
}

TEST_P(TransformSuite, SaysWhetherItDraws) {
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  std::map<std::string, int> plans;
  for (uint64_t ordinal = 0; ordinal < 200; ++ordinal) {
    PicturePlan plan({30, 40});
    Draws draws({.ordinal = ordinal});
    ASSERT_OK(transform->Plan(&plan, &draws));
    ++plans[PlanText(plan)];
  }
  EXPECT_EQ(plans.size() > 1, GetParam()->is_random);
}

// Masks and pictures go alike by this: a kind that moves pixels and does not say so would move
// those of the one and not of the other.
TEST_P(TransformSuite, SaysWhetherItMovesPixels) {
  for (const Param& param : schema().params) {
    if (param.type == batchd::ParamType::kOperations)
      return;  // that is up to the operations inside
  }
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  bool moves = false, recolours = false;
  for (uint64_t ordinal = 0; ordinal < 400; ++ordinal) {
    PicturePlan plan({30, 40});
    Draws draws({.ordinal = ordinal});
    ASSERT_OK(transform->Plan(&plan, &draws));
    ImageSize size = {30, 40};
    for (const PicturePlan::Segment& segment : plan.segments()) {
      moves |= StagesText(segment.geometry) != StagesText(GeometryPlan(size));
      size = segment.geometry.output();
      for (const PictureStep& step : plan.steps_of(segment)) {
        (step.in_place ? recolours : moves) = true;
        size = step.output;
      }
    }
  }
  EXPECT_EQ(GetParam()->geometry, !moves      ? Geometry::kNone
                                  : recolours ? Geometry::kAlso
                                              : Geometry::kOnly);
}

// What a plan makes of a picture depends on the two alone, and not on what ran before in the same
// memory.
TEST_P(TransformSuite, APlanMakesTheSamePixelsEveryTime) {
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  ValueTable table;
  PreparedFormat(*transform, &table);
  Scratch used;
  for (uint64_t ordinal = 0; ordinal < 30; ++ordinal) {
    Draws noise({.seed = 6, .ordinal = ordinal});
    const TestPicture picture = NoisePicture(
        {static_cast<int>(4 + noise.NextBelow(40)), static_cast<int>(4 + noise.NextBelow(40))},
        &noise);
    PicturePlan plan(picture.size);
    Draws draws({.ordinal = ordinal});
    ASSERT_OK(transform->Plan(&plan, &draws));
    Scratch fresh;
    const TestPicture once = RunPlan(plan, picture, &fresh);
    ASSERT_FALSE(once.pixels.empty());
    ASSERT_EQ(once, RunPlan(plan, picture, &used));
    ASSERT_EQ(once, RunPlan(plan, picture, &used));
  }
}

TEST_P(TransformSuite, ProbabilityIsTheShareOfSamples) {
  const auto has_p = [](const Param& param) {
    return param.name == "p" && param.type == batchd::ParamType::kFloat;
  };
  if (std::none_of(schema().params.begin(), schema().params.end(), has_p)) return;
  constexpr int kSamples = 4000;
  const auto share_done = [&](double p) {
    Json arguments = ExampleArguments(schema());
    arguments["p"] = p;
    const auto transform = MakeTransform(schema().name, arguments);
    EXPECT_OK(transform);
    ValueTable table;
    PreparedFormat(**transform, &table);
    const std::string nothing = PlanText(PicturePlan({30, 40}));
    int done = 0;
    for (uint64_t ordinal = 0; ordinal < kSamples; ++ordinal) {
      PicturePlan plan({30, 40});
      Draws draws({.seed = 3, .ordinal = ordinal});
      EXPECT_OK((*transform)->Plan(&plan, &draws));
      done += PlanText(plan) != nothing;
    }
    return double(done) / kSamples;
  };
  EXPECT_EQ(share_done(0), 0);
  EXPECT_EQ(share_done(1), 1);
  EXPECT_NEAR(share_done(0.3), 0.3, 5 * std::sqrt(0.3 * 0.7 / kSamples));
}

TEST_P(TransformSuite, WorksOnOnePixelOrSaysWhy) {
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  ValueTable table;
  PreparedFormat(*transform, &table);
  Scratch scratch;
  for (uint64_t ordinal = 0; ordinal < 50; ++ordinal) {
    PicturePlan plan({1, 1});
    Draws draws({.ordinal = ordinal});
    const absl::Status planned = transform->Plan(&plan, &draws);
    if (!planned.ok()) {
      EXPECT_THAT(planned, FailsWith(absl::StatusCode::kInvalidArgument, "1x1"));
      continue;
    }
    EXPECT_GE(plan.output().height, 1);
    EXPECT_EQ(plan.segments()[0].geometry.stage(0).box, (Box{0, 0, 1, 1}));
    EXPECT_FALSE(RunPlan(plan, TestPicture({1, 1}), &scratch).pixels.empty());
  }
}

TEST_P(TransformSuite, ThePlanHasTheSizeThatPrepareSays) {
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  ValueTable table;
  const RowFormat format = PreparedFormat(*transform, &table);
  if (!format.size.has_value()) return;  // it follows the picture
  for (const ImageSize picture : {ImageSize{1, 1}, {30, 40}, {200, 3}}) {
    PicturePlan plan(picture);
    Draws draws({});
    if (!transform->Plan(&plan, &draws).ok()) continue;  // smaller than what is cut out
    EXPECT_EQ(plan.output(), *format.size);
  }
}

TEST_P(TransformSuite, PrepareTwiceGivesTheSame) {
  const auto transform = Make();
  ASSERT_NE(transform, nullptr);
  ValueTable table_a, table_b;
  const RowFormat a = PreparedFormat(*transform, &table_a);
  const RowFormat b = PreparedFormat(*transform, &table_b);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.layout, b.layout);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.dtype, table_a.dtype());  // the format is what the table makes
  for (int c = 0; c < 3; ++c) {
    for (int sample = 0; sample < 256; ++sample) {
      EXPECT_EQ(table_a.at(c, sample), table_b.at(c, sample));
    }
  }
}

}  // namespace batchd
