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

const Schema& ListSchema() {
  static const Schema schema = {.name = "Lists",
                                .sentence = "Takes lists.",
                                .params = {{.name = "border",
                                            .type = ParamType::kIntList,
                                            .sentence = "pixels",
                                            .default_value = 4,
                                            .min = 0,
                                            .max = 9,
                                            .count_min = 1,
                                            .count_max = 4},
                                           {.name = "inside",
                                            .type = ParamType::kOperations,
                                            .sentence = "what is done",
                                            .default_value = std::nullopt,
                                            .count_min = 1,
                                            .count_max = 2}}};
  return schema;
}

TEST(CheckArgumentsTest, ListsOfIntegersAndOperationsGetOneForm) {
  const Json given = {{"inside", {{{"name", "A"}}, {{"name", "B"}, {"arguments", {{"x", 1}}}}}}};
  const auto checked = CheckArguments(ListSchema(), given, "f");
  ASSERT_OK(checked);
  EXPECT_EQ((*checked)["border"], Json::array({4}));  // a default has the form of what is given
  EXPECT_EQ((*checked)["inside"][0], (Json{{"name", "A"}, {"arguments", Json::object()}}));
  EXPECT_EQ((*checked)["inside"][1]["arguments"], (Json{{"x", 1}}));
  const auto again = CheckArguments(ListSchema(), *checked, "f");
  ASSERT_OK(again);
  EXPECT_EQ(*again, *checked);
}

TEST(CheckArgumentsTest, NamesTheItemThatIsWrong) {
  const Json a = {{"name", "A"}};
  const auto field_of = [&](const Json& inside, const Json& border) {
    return FieldOf(
        CheckArguments(ListSchema(), {{"inside", inside}, {"border", border}}, "f").status());
  };
  EXPECT_EQ(field_of(Json::array({a}), {1, 2.0}), "");
  EXPECT_EQ(field_of(Json::array({a}), {1, 2.5}), "f.border[1]");
  EXPECT_EQ(field_of(Json::array({a}), {1, 2, 3, 4, 5}), "f.border");
  EXPECT_EQ(field_of(Json::array({a}), {1, 10}), "f.border[1]");
  EXPECT_EQ(field_of(Json::array(), 1), "f.inside");
  EXPECT_EQ(field_of(Json::array({a, a, a}), 1), "f.inside");
  EXPECT_EQ(field_of(a, 1), "f.inside");
  EXPECT_EQ(field_of(Json::array({a, "A"}), 1), "f.inside[1]");
  EXPECT_EQ(field_of(Json::array({a, {{"name", 3}}}), 1), "f.inside[1]");
  EXPECT_EQ(field_of(Json::array({a, {{"name", "A"}, {"arguments", 3}}}), 1), "f.inside[1]");
  EXPECT_EQ(field_of(Json::array({a, {{"name", "A"}, {"argument", {}}}}), 1), "f.inside[1]");
}

TEST(CheckArgumentsTest, AValueInAMessageIsShort) {
  const auto status =
      CheckArguments(ListSchema(), {{"inside", std::string(100000, 'x')}}, "f").status();
  EXPECT_LT(status.message().size(), 500u);
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
