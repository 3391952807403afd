// SPDX-License-Identifier: Apache-2.0
//
// Operations inside operations: which one is done, what it draws, and what is refused.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "server/base/hash.h"
#include "server/transform/steps.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Json Inside(const char* name, const Json& arguments = Json::object()) {
  return {{"name", name}, {"arguments", arguments}};
}

absl::Status PrepareOne(const std::string& name, const Json& arguments, RowFormat* format) {
  BATCHD_ASSIGN_OR_RETURN(const auto transform, MakeTransform(name, arguments));
  ValueTable table;
  return transform->Prepare(format, &table);
}

// Draws of the operation in tests/support/transform_helpers.h, and of those inside by their names.
TEST(RandomApply, OperationsInsideHaveDrawsOfTheirOwn) {
  const auto apply =
      MakeTransform("RandomApply", {{"p", 0.4},
                                    {"transforms",
                                     {Inside("RandomRotation", {{"degrees", 90}}),
                                      Inside("RandomRotation", {{"degrees", 90}})}}});
  ASSERT_OK(apply);
  const ImageSize size = {8, 9};
  int done = 0;
  for (uint64_t ordinal = 0; ordinal < 500; ++ordinal) {
    DrawKey key = {.seed = 7, .ordinal = ordinal, .epoch = 3, .op_id = 5};
    PicturePlan plan(size);
    Draws draws(key);
    ASSERT_OK((*apply)->Plan(&plan, &draws));
    ASSERT_EQ(plan.has_steps(), Draws(key).NextUniform() < 0.4);
    if (!plan.has_steps()) continue;
    ++done;
    ASSERT_EQ(plan.segments().size(), 1u);
    const auto steps = plan.steps_of(plan.segments()[0]);
    ASSERT_EQ(steps.size(), 2u);
    for (int n = 0; n < 2; ++n) {
      key.op_id =
          static_cast<uint16_t>(Xxh32(fmt::format("column/RandomApply#0/RandomRotation#{}", n)));
      const double degrees = -90 + 180 * Draws(key).NextUniform();
      const Rotation due = RotationOf(size, degrees, std::nullopt, false);
      EXPECT_EQ(steps[n].numbers, WarpStep(due.matrix, size, Filter::kNearest, {}).numbers);
    }
  }
  EXPECT_NEAR(done, 200, 5 * std::sqrt(500 * 0.4 * 0.6));
}

std::map<void*, int> Chosen(const Json& p, int samples) {
  const auto choice = MakeTransform(
      "RandomChoice", {{"p", p},
                       {"transforms",
                        {Inside("RandomInvert", {{"p", 1}}), Inside("RandomEqualize", {{"p", 1}}),
                         Inside("Grayscale", {{"num_output_channels", 3}})}}});
  EXPECT_OK(choice);
  std::map<void*, int> counts;
  for (int ordinal = 0; ordinal < samples; ++ordinal) {
    PicturePlan plan({4, 4});
    Draws draws({.seed = 8, .ordinal = static_cast<uint64_t>(ordinal)});
    EXPECT_OK((*choice)->Plan(&plan, &draws));
    const auto steps = plan.steps_of(plan.segments()[0]);
    EXPECT_EQ(steps.size(), 1u);
    ++counts[reinterpret_cast<void*>(steps[0].run)];
  }
  return counts;
}

TEST(RandomChoice, ChoosesByItsWeights) {
  constexpr int kSamples = 9000;
  const auto of = [](const std::map<void*, int>& counts, const PictureStep& step) {
    const auto found = counts.find(reinterpret_cast<void*>(step.run));
    return found == counts.end() ? 0 : found->second;
  };
  const auto equal = Chosen(nullptr, kSamples);
  for (const PictureStep& step : {InvertStep(), EqualizeStep(), GrayscaleStep()}) {
    EXPECT_NEAR(of(equal, step), kSamples / 3, 5 * std::sqrt(kSamples * 2 / 9.0));
  }
  const auto weighted = Chosen({6, 3, 0}, kSamples);
  EXPECT_NEAR(of(weighted, InvertStep()), kSamples * 2 / 3, 5 * std::sqrt(kSamples * 2 / 9.0));
  EXPECT_EQ(of(weighted, InvertStep()) + of(weighted, EqualizeStep()), kSamples);
  EXPECT_EQ(of(Chosen({0, 5, 0}, 1000), EqualizeStep()), 1000);
}

TEST(Groups, RefuseWhatAllRowsHaveInCommon) {
  const std::pair<const char*, Json> refused[] = {{"ToTensor", {}},
                                                  {"Layout", {{"layout", "NCHW"}}},
                                                  {"Cast", {{"dtype", "uint8"}}},
                                                  {"Grayscale", {}}};
  for (const char* group : {"RandomApply", "RandomChoice"}) {
    for (const auto& [name, arguments] : refused) {
      RowFormat format;
      const absl::Status status = PrepareOne(
          group, {{"transforms", {Inside("RandomInvert"), Inside(name, arguments)}}}, &format);
      EXPECT_THAT(status, FailsWith(kInvalid, "done to some samples only"));
      EXPECT_EQ(FieldOf(status), std::string(group) + ".transforms[1]");
    }
    RowFormat tensor = {.is_tensor = true};
    EXPECT_OK(PrepareOne(group, {{"transforms", Json::array({Inside("RandomErasing")})}}, &tensor));
    EXPECT_TRUE(tensor.is_erased);
  }
}

TEST(Groups, TheSizeIsKnownWhereEveryWayHasIt) {
  const Json to_5 = Inside("Resize", {{"size", {5, 5}}});
  const Json to_6 = Inside("CenterCrop", {{"size", 6}});
  const auto size_after = [](const char* group, const Json& transforms) {
    RowFormat format = {.size = ImageSize{5, 5}};
    EXPECT_OK(PrepareOne(group, {{"transforms", transforms}}, &format));
    return format.size;
  };
  EXPECT_EQ(size_after("RandomApply", {to_6, to_5}), (ImageSize{5, 5}));
  EXPECT_EQ(size_after("RandomApply", Json::array({to_6})), std::nullopt);
  EXPECT_EQ(size_after("RandomChoice", Json::array({to_6})), (ImageSize{6, 6}));
  EXPECT_EQ(size_after("RandomChoice", {to_6, to_6}), (ImageSize{6, 6}));
  EXPECT_EQ(size_after("RandomChoice", {to_6, to_5}), std::nullopt);
}

TEST(Groups, RefuseArgumentsByTheirPath) {
  const auto field_of = [](const std::string& name, const Json& arguments) {
    return FieldOf(MakeTransform(name, arguments).status());
  };
  const Json invert = Inside("RandomInvert");
  EXPECT_EQ(field_of("RandomApply", Json::object()), "RandomApply.transforms");
  EXPECT_EQ(field_of("RandomApply", {{"transforms", Json::array()}}), "RandomApply.transforms");
  EXPECT_EQ(field_of("RandomApply", {{"transforms", invert}}), "RandomApply.transforms");
  EXPECT_EQ(field_of("RandomApply", {{"transforms", {invert, 3}}}), "RandomApply.transforms[1]");
  EXPECT_EQ(field_of("RandomApply", {{"transforms", {invert, Inside("Nothing")}}}),
            "RandomApply.transforms[1]");
  EXPECT_EQ(field_of("RandomApply",
                     {{"transforms", Json::array({{{"name", "RandomInvert"}, {"x", 1}}})}}),
            "RandomApply.transforms[0]");
  EXPECT_EQ(field_of("RandomApply", {{"transforms", {invert, Inside("RandomInvert", {{"p", 2}})}}}),
            "RandomApply.transforms[1].p");
  // What Make refuses, two deep.
  const Json bad = Inside("ColorJitter", {{"hue", -0.2}});
  EXPECT_EQ(field_of("RandomApply",
                     {{"transforms",
                       Json::array({Inside("RandomChoice", {{"transforms", {invert, bad}}})})}}),
            "RandomApply.transforms[0].transforms[1].hue");
  EXPECT_EQ(field_of("RandomChoice", {{"transforms", Json::array({invert})}, {"p", {1, 2}}}), "p");
  EXPECT_EQ(field_of("RandomChoice", {{"transforms", Json::array({invert})}, {"p", 0}}), "p");
  EXPECT_THAT(MakeTransform("RandomApply", {{"transforms", Json::array({Inside("\n\xff")})}}),
              FailsWith(kInvalid, "no such operation \"\\n\\ufffd\"; there are RandomResizedCrop"));
}

TEST(Groups, AreRefusedWhereTheyStandTooDeepInEachOther) {
  Json nested = Inside("RandomInvert");
  for (int depth = 0; depth < 6; ++depth) {
    nested = Inside("RandomApply", {{"transforms", Json::array({nested})}});
  }
  EXPECT_OK(MakeTransform("RandomApply", {{"transforms", Json::array({nested})}}));
  nested = Inside("RandomApply", {{"transforms", Json::array({nested})}});
  EXPECT_THAT(MakeTransform("RandomApply", {{"transforms", Json::array({nested})}}),
              FailsWith(kInvalid, "more than 8 deep"));
}

}  // namespace
}  // namespace batchd
