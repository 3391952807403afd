// SPDX-License-Identifier: Apache-2.0
#include "server/base/schema.h"

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using absl::StatusCode;

const Schema& TestSchema() {
  static const Schema schema = {
      .name = "Op",
      .sentence = "Does it.",
      .params = {
          {.name = "n",
           .type = ParamType::kInt,
           .sentence = "how many",
           .default_value = 3,
           .min = 1,
           .max = 10},
          {.name = "p",
           .type = ParamType::kFloat,
           .sentence = "a share",
           .default_value = 0.5,
           .min = 0,
           .max = 1},
          {.name = "on", .type = ParamType::kBool, .sentence = "whether", .default_value = true},
          {.name = "mode",
           .type = ParamType::kString,
           .sentence = "which way",
           .default_value = "near",
           .choices = {"near", "far"}},
          {.name = "size",
           .type = ParamType::kSize,
           .sentence = "pixels",
           .default_value = std::nullopt,
           .min = 1,
           .max = 100},
          {.name = "mean",
           .type = ParamType::kFloatList,
           .sentence = "per channel",
           .default_value = nullptr,
           .min = 0,
           .max = 1,
           .count_min = 1,
           .count_max = 3}}};
  return schema;
}

absl::StatusOr<Json> Check(const Json& arguments) {
  return CheckArguments(TestSchema(), arguments, "pipeline.columns[0].operations[2]");
}

// The path below the operation that an error names.
std::string BadField(const Json& arguments) {
  constexpr std::string_view kPrefix = "pipeline.columns[0].operations[2]";
  const std::string field = FieldOf(Check(arguments).status());
  return field.rfind(kPrefix, 0) == 0 ? field.substr(kPrefix.size()) : "?" + field;
}

TEST(CheckArgumentsTest, FillsInDefaults) {
  const auto checked = Check({{"size", 7}});
  ASSERT_OK(checked);
  EXPECT_EQ(
      *checked,
      Json({{"n", 3}, {"p", 0.5}, {"on", true}, {"mode", "near"}, {"size", 7}, {"mean", nullptr}}));
}

TEST(CheckArgumentsTest, NormalisesNumbers) {
  const auto checked = Check({{"n", "4"}, {"p", 1}, {"size", {5.0, "6"}}, {"mean", 0.25}});
  ASSERT_OK(checked);
  EXPECT_TRUE((*checked)["n"].is_number_integer());
  EXPECT_EQ((*checked)["n"], 4);
  EXPECT_TRUE((*checked)["p"].is_number_float());
  EXPECT_EQ((*checked)["size"], Json({5, 6}));
  EXPECT_EQ((*checked)["mean"], Json::array({0.25}));
}

TEST(CheckArgumentsTest, NamesTheFieldThatIsWrong) {
  EXPECT_EQ(BadField(Json::object()), ".size");  // missing
  EXPECT_EQ(BadField(nullptr), ".size");
  EXPECT_EQ(BadField({{"size", 1}, {"sise", 2}}), ".sise");
  EXPECT_EQ(BadField({{"size", 1}, {"n", 11}}), ".n");
  EXPECT_EQ(BadField({{"size", 1}, {"n", 2.5}}), ".n");
  EXPECT_EQ(BadField({{"size", 1}, {"n", ""}}), ".n");
  EXPECT_EQ(BadField({{"size", 1}, {"n", "4x"}}), ".n");
  EXPECT_EQ(BadField({{"size", 1}, {"n", nullptr}}), ".n");
  EXPECT_EQ(BadField({{"size", 1}, {"n", 18446744073709551615u}}), ".n");
  EXPECT_EQ(BadField({{"size", 1}, {"p", "0.5"}}), ".p");
  EXPECT_EQ(BadField({{"size", 1}, {"on", 1}}), ".on");
  EXPECT_EQ(BadField({{"size", 1}, {"mode", "middle"}}), ".mode");
  EXPECT_EQ(BadField({{"size", {1, 2, 3}}}), ".size");
  EXPECT_EQ(BadField({{"size", {1, 0}}}), ".size[1]");
  EXPECT_EQ(BadField({{"size", 1}, {"mean", {0, 2}}}), ".mean[1]");
  EXPECT_EQ(BadField({{"size", 1}, {"mean", {0, 0, 0, 0}}}), ".mean");
  EXPECT_EQ(BadField({{"size", 1}, {"mean", Json::array()}}), ".mean");
  EXPECT_EQ(BadField(Json::array()), "");
}

TEST(CheckArgumentsTest, SaysWhatIsAllowed) {
  EXPECT_THAT(Check({{"size", 1}, {"n", 11}}),
              FailsWith(StatusCode::kInvalidArgument, "from 1 to 10"));
  EXPECT_THAT(Check({{"size", 1}, {"mode", "middle"}}),
              FailsWith(StatusCode::kInvalidArgument, "near, far"));
  EXPECT_THAT(Check({{"size", 1}, {"sise", 2}}),
              FailsWith(StatusCode::kInvalidArgument, "n, p, on, mode, size, mean"));
  EXPECT_THAT(Check({{"size", 1}, {"on", "yes"}}),
              FailsWith(StatusCode::kInvalidArgument, "true or false"));
}

TEST(SchemaToJsonTest, HoldsWhatAReferencePageNeeds) {
  const Json json = SchemaToJson(TestSchema());
  EXPECT_EQ(json["name"], "Op");
  EXPECT_EQ(json["sentence"], "Does it.");
  ASSERT_EQ(json["params"].size(), 6u);
  EXPECT_EQ(json["params"][0], Json({{"name", "n"},
                                     {"type", "int"},
                                     {"sentence", "how many"},
                                     {"required", false},
                                     {"default", 3},
                                     {"min", 1.0},
                                     {"max", 10.0}}));
  EXPECT_EQ(json["params"][3]["choices"], Json({"near", "far"}));
  EXPECT_EQ(json["params"][4]["required"], true);
  EXPECT_FALSE(json["params"][4].contains("default"));
}

}  // namespace
}  // namespace batchd
