// SPDX-License-Identifier: Apache-2.0

#include "server/transform/augmentation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

const std::map<std::string, Augmentation> kByName = {
    {"ShearX", Augmentation::kShearX},         {"ShearY", Augmentation::kShearY},
    {"TranslateX", Augmentation::kTranslateX}, {"TranslateY", Augmentation::kTranslateY},
    {"Rotate", Augmentation::kRotate},         {"Brightness", Augmentation::kBrightness},
    {"Color", Augmentation::kColor},           {"Contrast", Augmentation::kContrast},
    {"Sharpness", Augmentation::kSharpness},   {"Posterize", Augmentation::kPosterize},
    {"Solarize", Augmentation::kSolarize}};

TEST(Augmentation, MagnitudesAreThoseOfTheSharedTable) {
  BATCHD_NEEDS_CASES();
  int checked = 0;
  const Json table = ReadJson(CasesPath("transforms/geometry.json"));
  for (const Json& row : table["randaugment_31_bins"]) {
    const Augmentation operation = kByName.at(row["op"]);
    EXPECT_EQ(IsSigned(operation), row["signed"].get<bool>()) << row["op"];
    // The table has what is applied, 0 to 255 for Solarize.
    const double unit = operation == Augmentation::kSolarize ? 255 : 1;
    for (int bin = 0; bin < 31; ++bin, ++checked) {
      const double got =
          MagnitudeOf(operation, kRandStrength, bin, 31, {row["height"], row["width"]});
      EXPECT_NEAR(unit * got, row["magnitudes"][bin].get<double>(), 1e-4) << row["op"] << bin;
    }
  }
  EXPECT_GE(checked, 300);
}

// Where torch's rounding decides: its bin 15 of 31 is a move by 15 pixels, though half of 32 is 16.
TEST(Augmentation, MagnitudesAreRoundedAsTorchRoundsThem) {
  const auto wide = [](Augmentation operation, int bin) {
    return MagnitudeOf(operation, kWideStrength, bin, 31, {100, 200});
  };
  EXPECT_EQ(wide(Augmentation::kTranslateX, 15), 15.999999046325684);
  EXPECT_EQ(wide(Augmentation::kShearY, 19), 0.6270000338554382);
  EXPECT_EQ(wide(Augmentation::kSolarize, 13), 0.5666666626930237);
}

TEST(Augmentation, TheStrongestOfTrivialAugmentWide) {
  const auto strongest = [](Augmentation operation) {
    return MagnitudeOf(operation, kWideStrength, 30, 31, {100, 200});
  };
  EXPECT_FLOAT_EQ(strongest(Augmentation::kShearX), 0.99f);
  EXPECT_EQ(strongest(Augmentation::kTranslateX), 32);
  EXPECT_EQ(strongest(Augmentation::kRotate), 135);
  EXPECT_FLOAT_EQ(strongest(Augmentation::kSharpness), 0.99f);
  EXPECT_EQ(strongest(Augmentation::kPosterize), 2);
  EXPECT_EQ(strongest(Augmentation::kSolarize), 0);
}

// The numbers of the first step of each plan, or nothing.
std::string FirstStep(const Transform& transform, uint64_t ordinal) {
  PicturePlan plan({20, 30});
  Draws draws({.seed = 1, .ordinal = ordinal});
  EXPECT_OK(transform.Plan(&plan, &draws));
  if (!plan.has_steps()) return "nothing";
  const PictureStep& step = plan.steps_of(plan.segments()[0])[0];
  return fmt::format("{} {}", reinterpret_cast<uintptr_t>(step.run), fmt::join(step.numbers, ","));
}

std::map<std::string, int> FirstSteps(const char* name, const Json& arguments, int samples) {
  const auto transform = MakeTransform(name, arguments);
  EXPECT_OK(transform);
  std::map<std::string, int> counts;
  for (int i = 0; i < samples; ++i) ++counts[FirstStep(**transform, static_cast<uint64_t>(i))];
  return counts;
}

// 14 operations, 9 of them with two signs: 5 with a share of 1/14, 18 with half of one.
TEST(RandAugment, EveryOperationAndSignHasItsShare) {
  constexpr int kSamples = 28000;
  const auto counts = FirstSteps("RandAugment", {{"num_ops", 1}}, kSamples);
  EXPECT_EQ(counts.size(), 23u);
  int whole = 0;
  for (const auto& [step, count] : counts) {
    const double share = count > kSamples / 20 ? 1.0 / 14 : 1.0 / 28;
    EXPECT_NEAR(count, kSamples * share, 5 * std::sqrt(kSamples * share)) << step;
    whole += share > 0.05;
  }
  EXPECT_EQ(whole, 5);
}

TEST(RandAugment, DoesAsManyAsItIsTold) {
  EXPECT_EQ(FirstSteps("RandAugment", {{"num_ops", 0}}, 50).size(), 1u);
  const auto transform = MakeTransform("RandAugment", {{"num_ops", 5}});
  ASSERT_OK(transform);
  double steps = 0;
  for (uint64_t ordinal = 0; ordinal < 2000; ++ordinal) {
    PicturePlan plan({20, 30});
    Draws draws({.seed = 1, .ordinal = ordinal});
    ASSERT_OK((*transform)->Plan(&plan, &draws));
    steps += static_cast<double>(plan.steps_of(plan.segments()[0]).size());
  }
  // Identity is no step.
  EXPECT_NEAR(steps / 2000, 5.0 * 13 / 14, 5 * std::sqrt(5.0 / 14 / 2000));
}

// 3 operations without a strength (identity among them, with which strength 0 of the nine signed
// ones coincides), the nine with 60 others, 31 thresholds, and 7 numbers of bits.
TEST(TrivialAugmentWide, EveryStrengthComes) {
  constexpr int kSamples = 200000;
  const auto counts = FirstSteps("TrivialAugmentWide", Json::object(), kSamples);
  // A move is cut to whole pixels: -32 to 32, of which 0 is a step too (less than a pixel).
  EXPECT_GT(counts.size(), 3u + 9 * 50 + 31 + 7);
  EXPECT_NEAR(counts.at("nothing"), kSamples * (1 + 9 / 31.0) / 14, 5 * std::sqrt(kSamples / 10.0));
}

TEST(AutoAugment, EveryPolicyHasItsOwnPairs) {
  std::map<std::string, std::map<std::string, int>> by_policy;
  for (const char* policy : {"imagenet", "cifar10", "svhn"}) {
    by_policy[policy] = FirstSteps("AutoAugment", {{"policy", policy}}, 20000);
    EXPECT_GT(by_policy[policy].size(), 10u);
  }
  EXPECT_EQ(by_policy["imagenet"], FirstSteps("AutoAugment", Json::object(), 20000));
  EXPECT_NE(by_policy["imagenet"].size(), by_policy["cifar10"].size());
  // Of imagenet's pairs nothing is done with the share of samples that both probabilities leave.
  EXPECT_GT(by_policy["imagenet"]["nothing"], 1000);
}

}  // namespace
}  // namespace batchd
