// SPDX-License-Identifier: Apache-2.0
//
// How RandomResizedCrop's boxes are distributed, against the shared case laws.json: 20,000 draws a
// law, each figure within five sigma of a million simulated draws of the rule.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

using nlohmann::json;

constexpr int kDraws = 20000;
constexpr double kSigma = 5.0;

std::vector<Box> DrawBoxes(const json& law) {
  const auto transform = MakeTransform(
      "RandomResizedCrop", {{"size", 1}, {"scale", law["scale"]}, {"ratio", law["ratio"]}});
  EXPECT_OK(transform);
  std::vector<Box> boxes;
  for (uint64_t ordinal = 0; ordinal < kDraws; ++ordinal) {
    PicturePlan plan({law["height"], law["width"]});
    Draws draws({.seed = 20240607, .ordinal = ordinal, .op_id = 77});
    EXPECT_OK((*transform)->Plan(&plan, &draws));
    boxes.push_back(plan.segments()[0].geometry.stage(0).box);
  }
  return boxes;
}

double ShareTolerance(double p, double n, double simulated) {
  const double q = std::min(std::max(p, 2.0 / simulated), 1 - 2.0 / simulated);
  return kSigma * std::sqrt(q * (1 - q) * (1 / n + 1 / simulated)) + 1 / n;
}

using Feature = std::function<double(const Box&)>;

double MeanOf(const std::vector<Box>& boxes, const Feature& feature) {
  double sum = 0;
  for (const Box& box : boxes) sum += feature(box);
  return sum / static_cast<double>(boxes.size());
}

std::map<std::string, Feature> MeanFeatures(double width, double height) {
  return {
      {"area_ratio", [=](const Box& b) { return b.width * double(b.height) / (width * height); }},
      {"log_aspect", [](const Box& b) { return std::log(double(b.width) / b.height); }},
      {"width", [](const Box& b) { return double(b.width); }},
      {"height", [](const Box& b) { return double(b.height); }},
      {"left_position", [=](const Box& b) { return (b.left + 0.5) / (width - b.width + 1); }},
      {"top_position", [=](const Box& b) { return (b.top + 0.5) / (height - b.height + 1); }},
  };
}

std::map<std::string, Feature> ShareFeatures(const json& law) {
  const int width = law["width"], height = law["height"];
  const json& f = law["fallback_box"];
  const Box fallback = {f[0], f[1], f[2], f[3]};
  auto means = MeanFeatures(width, height);
  const Feature area = means["area_ratio"], aspect = means["log_aspect"];
  return {
      {"not drawn", [](const Box&) { return 0.0; }},
      {"the fallback's box", [=](const Box& b) { return double(b == fallback); }},
      {"left=0", [](const Box& b) { return double(b.left == 0); }},
      {"top=0", [](const Box& b) { return double(b.top == 0); }},
      {"right border", [=](const Box& b) { return double(b.left + b.width == width); }},
      {"bottom border", [=](const Box& b) { return double(b.top + b.height == height); }},
      {"full width", [=](const Box& b) { return double(b.width == width); }},
      {"full height", [=](const Box& b) { return double(b.height == height); }},
      {"wider than high", [](const Box& b) { return double(b.width > b.height); }},
      {"square", [](const Box& b) { return double(b.width == b.height); }},
      {"large and long",
       [=](const Box& b) { return double(area(b) > 0.5 && std::abs(aspect(b)) > 0.15); }},
  };
}

void CheckShares(const json& law, const std::vector<Box>& boxes) {
  const double simulated = law["simulated"];
  const auto features = ShareFeatures(law);
  for (const auto& [name, share] : law["shares"].items()) {
    if (name == "fallback taken") continue;  // not to be seen in a box
    ASSERT_TRUE(features.count(name)) << name;
    const double due = share;
    EXPECT_NEAR(MeanOf(boxes, features.at(name)), due, ShareTolerance(due, kDraws, simulated))
        << law["name"] << ": share of " << name;
  }
}

void CheckMeans(const json& law, const std::vector<Box>& boxes) {
  const double simulated = law["simulated"];
  const auto features = MeanFeatures(law["width"], law["height"]);
  for (const auto& [name, figure] : law["means"].items()) {
    ASSERT_TRUE(features.count(name)) << name;
    const Feature& feature = features.at(name);
    const double tolerance =
        kSigma * figure["sd"].get<double>() * std::sqrt(1.0 / kDraws + 1 / simulated) + 1e-6;
    EXPECT_NEAR(MeanOf(boxes, feature), figure["mean"].get<double>(), tolerance)
        << law["name"] << ": mean of " << name;
    if (!figure.contains("below")) continue;
    for (const json& point : figure["below"]) {
      const double x = point[0], due = point[1];
      EXPECT_NEAR(MeanOf(boxes, [&](const Box& b) { return double(feature(b) < x); }), due,
                  ShareTolerance(due, kDraws, simulated))
          << law["name"] << ": share of " << name << " < " << x;
    }
  }
}

TEST(RandomResizedCrop, BoxesFollowTheLaws) {
  BATCHD_NEEDS_CASES();
  const json laws = ReadJson(CasesPath("transforms/laws.json"));
  int checked = 0;
  for (const json& law : laws["laws"]) {
    if (law["law"] != "crop") continue;
    const std::vector<Box> boxes = DrawBoxes(law);
    CheckShares(law, boxes);
    CheckMeans(law, boxes);
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

}  // namespace
}  // namespace batchd
