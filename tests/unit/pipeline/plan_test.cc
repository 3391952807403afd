// SPDX-License-Identifier: Apache-2.0

#include "server/pipeline/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "server/base/hash.h"
#include "tests/support/memory_dataset.h"
#include "tests/support/status_matchers.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
using Operations = std::vector<OperationSpec>;

TestPicture Noise(int height, int width, uint64_t seed = 1) {
  Draws draws({.seed = seed});
  return NoisePicture({height, width}, &draws);
}

// Three pictures, the last of another size.
std::shared_ptr<MemoryDataset> SmallDataset() {
  return std::make_shared<MemoryDataset>(std::vector<MemorySample>{
      {"a/0.ppm", EncodePpm(Noise(20, 30, 1)), 0},
      {"b/1.ppm", EncodePpm(Noise(20, 30, 2)), 1},
      {"b/2.ppm", EncodePpm(Noise(25, 30, 3)), 1},
  });
}

absl::StatusOr<std::shared_ptr<const PipelinePlan>> CompileColumns(
    std::vector<ColumnSpec> columns, std::shared_ptr<const Dataset> dataset = SmallDataset()) {
  return PipelinePlan::Compile({std::move(columns)}, std::move(dataset));
}
absl::StatusOr<std::shared_ptr<const PipelinePlan>> CompileImage(
    Operations operations, std::shared_ptr<const Dataset> dataset = SmallDataset()) {
  operations.insert(operations.begin(), {"DecodeImage", {}});
  return CompileColumns({{"image", std::move(operations)}}, std::move(dataset));
}

// A row with guard bytes behind it.
absl::StatusOr<std::vector<uint8_t>> MakeRow(const PipelinePlan& plan, int column, DrawKey key,
                                             Worker* worker) {
  const auto& dataset = static_cast<const MemoryDataset&>(plan.dataset());
  const auto size = static_cast<size_t>(plan.column(column).shape().row_size_bytes);
  std::vector<uint8_t> row(size + 8, 0xC7);
  BATCHD_RETURN_IF_ERROR(plan.column(column).MakeRow(
      dataset, dataset.at(static_cast<int64_t>(key.ordinal)).bytes, key, worker, row.data()));
  EXPECT_EQ(std::count(row.end() - 8, row.end(), 0xC7), 8);
  row.resize(size);
  return row;
}
absl::StatusOr<std::vector<uint8_t>> MakeRow(const PipelinePlan& plan, int column, DrawKey key) {
  Worker worker;
  return MakeRow(plan, column, key, &worker);
}

TEST(PipelinePlan, ColumnsHaveNameTypeAndShape) {
  const auto plan = CompileColumns(
      {{"image",
        {{"DecodeImage", {}}, {"RandomResizedCrop", {{"size", {8, 12}}}}, {"ToTensor", {}}}},
       {"raw", {{"DecodeImage", {}}, {"CenterCrop", {{"size", 4}}}}},
       {"label", {{"Label", {}}}}});
  ASSERT_OK(plan);
  const auto shapes = (*plan)->shapes();
  ASSERT_EQ(shapes.size(), 3u);
  EXPECT_EQ(shapes[0].name, "image");
  EXPECT_EQ(shapes[0].dtype, DType::kFloat32);
  EXPECT_EQ(shapes[0].shape, (std::vector<int64_t>{3, 8, 12}));
  EXPECT_EQ(shapes[0].row_size_bytes, 3 * 8 * 12 * 4);
  EXPECT_EQ(shapes[1].dtype, DType::kUint8);
  EXPECT_EQ(shapes[1].shape, (std::vector<int64_t>{4, 4, 3}));
  EXPECT_EQ(shapes[2].dtype, DType::kInt64);
  EXPECT_TRUE(shapes[2].shape.empty());
  EXPECT_EQ(shapes[2].row_size_bytes, 8);
  EXPECT_TRUE((*plan)->needs_bytes());
  EXPECT_FALSE((*plan)->column(2).needs_bytes());
}

TEST(PipelinePlan, ALabelAloneReadsNothing) {
  const auto dataset = SmallDataset();
  const auto plan = CompileColumns({{"label", {{"Label", {}}}}}, dataset);
  ASSERT_OK(plan);
  EXPECT_FALSE((*plan)->needs_bytes());
  EXPECT_EQ((*plan)->encoded_bytes_max(), 0);
  EXPECT_EQ((*plan)->scratch_bytes_max(), 0);
  EXPECT_EQ(dataset->source()->reads, 0);
}

TEST(PipelinePlan, LimitsComeFromTheLargestColumn) {
  const auto plan = CompileColumns(
      {{"a", {{"DecodeImage", {{"max_pixels", 5000}, {"max_encoded_bytes", 70000}}}}},
       {"b", {{"DecodeImage", {{"max_pixels", 9000}, {"max_encoded_bytes", 60000}}}}}});
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->encoded_bytes_max(), 70000);
  EXPECT_EQ((*plan)->scratch_bytes_max(), 17 * 9000 + (16 << 20));
}

TEST(PipelinePlan, RefusesColumnsByWhatIsWrong) {
  EXPECT_THAT(CompileColumns({}), FailsWith(kInvalid, "pipeline: 0 columns; give 1 to 64"));
  EXPECT_THAT(CompileColumns(std::vector<ColumnSpec>(65, {"x", {{"Label", {}}}})),
              FailsWith(kInvalid, "65 columns"));
  for (const char* name : {"", "a b", "a.b", "\xff"}) {
    EXPECT_THAT(CompileColumns({{name, {{"Label", {}}}}}), FailsWith(kInvalid, "column name"));
  }
  EXPECT_THAT(CompileColumns({{std::string(65, 'x'), {{"Label", {}}}}}),
              FailsWith(kInvalid, "column name"));
  EXPECT_THAT(CompileColumns({{"x", {{"Label", {}}}}, {"x", {{"Label", {}}}}}),
              FailsWith(kInvalid, "pipeline.x: there are two columns"));
  EXPECT_THAT(CompileColumns({{"x", {}}}), FailsWith(kInvalid, "pipeline.x: 0 operations"));
}

TEST(PipelinePlan, RefusesOperationsByTheirPath) {
  EXPECT_THAT(CompileImage({{"resise", {}}}),
              FailsWith(kInvalid,
                        "pipeline.image[1]: no such operation \"resise\"; there are "
                        "RandomResizedCrop, RandomCrop, Resize"));
  EXPECT_THAT(CompileColumns({{"image", {{"Dekode", {}}}}}),
              FailsWith(kInvalid,
                        "pipeline.image[0]: no such operation \"Dekode\"; begin a column with one "
                        "of DecodeImage, DecodeMask, Label"));
  EXPECT_THAT(CompileColumns({{"image", {{"Resize", {{"size", 3}}}}}}),
              FailsWith(kInvalid, "pipeline.image[0]: Resize cannot begin a column"));
  EXPECT_THAT(CompileImage({{"Label", {}}}),
              FailsWith(kInvalid, "pipeline.image[1]: Label must be the first"));
  EXPECT_THAT(CompileColumns({{"y", {{"Label", {}}, {"ToTensor", {}}}}}),
              FailsWith(kInvalid, "pipeline.y[1]: ToTensor may not follow Label"));
  EXPECT_THAT(CompileImage({{"ToTensor", {}}, {"RandomHorizontalFlip", {}}}),
              FailsWith(kInvalid, "pipeline.image[2]: RandomHorizontalFlip works on 8-bit pixels"));
  EXPECT_THAT(CompileImage({{"Normalize", {}}}),
              FailsWith(kInvalid, "pipeline.image[1]: Normalize needs float32 values"));
}

TEST(PipelinePlan, RefusesArgumentsByTheirPath) {
  const auto field_of = [](Operations operations) {
    return FieldOf(CompileImage(std::move(operations)).status());
  };
  EXPECT_EQ(field_of({{"Resize", {{"size", {4, 0}}}}}), "pipeline.image[1].size[1]");
  EXPECT_EQ(field_of({{"Resize", {{"size", 9}, {"max_size", 3}}}}), "pipeline.image[1].max_size");
  EXPECT_EQ(field_of({{"CenterCrop", {{"size", 9}, {"pad", 3}}}}), "pipeline.image[1].pad");
  EXPECT_THAT(CompileImage({{"Resize", {{"size", 9}, {"max_size", 3}}}}),
              FailsWith(kInvalid, "pipeline.image[1].max_size: 3 must be more than size"));
  EXPECT_EQ(FieldOf(CompileColumns({{"x", {{"DecodeImage", {{"max_pixels", 0}}}}}}).status()),
            "pipeline.x[0].max_pixels");
}

TEST(PipelinePlan, TakesMorePassesThanAGeometryPlanHolds) {
  Operations resizes;
  for (int i = 1; i <= 9; ++i) resizes.push_back({"Resize", {{"size", {i, i}}}});
  const auto plan = CompileImage(resizes);
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->shapes()[0].shape, (std::vector<int64_t>{9, 9, 3}));
  EXPECT_OK(MakeRow(**plan, 0, {.ordinal = 0}));
}

TEST(PipelinePlan, RefusesRowsAboveMaxPixels) {
  EXPECT_THAT(
      CompileColumns(
          {{"image", {{"DecodeImage", {{"max_pixels", 1000}}}, {"Resize", {{"size", {40, 40}}}}}}}),
      FailsWith(kInvalid, "40x40"));
}

TEST(PipelinePlan, RefusesTwoRandomOperationsWithOneOpId) {
  // Column names are tried until two hashes agree in their low 16 bits.
  std::map<uint32_t, std::string> seen;
  std::string first, second;
  for (int i = 0; first.empty(); ++i) {
    const std::string name = fmt::format("c{}", i);
    const auto [it, is_new] = seen.emplace(Xxh32(name + "/RandomHorizontalFlip#0") & 0xFFFF, name);
    if (!is_new) first = it->second, second = name;
  }
  const Operations flip = {{"DecodeImage", {}}, {"RandomHorizontalFlip", {}}};
  EXPECT_OK(CompileColumns({{first, flip}}));
  const auto plan = CompileColumns({{first, flip}, {second, flip}});
  EXPECT_THAT(plan, FailsWith(kInvalid, first + "/RandomHorizontalFlip#0"));
  EXPECT_THAT(plan, FailsWith(kInvalid, second + "/RandomHorizontalFlip#0"));
}

Json Inside(const char* name, const Json& arguments = Json::object()) {
  return {{"name", name}, {"arguments", arguments}};
}

TEST(PipelinePlan, AnOperationInsideAnotherHasAnOpIdOfItsOwn) {
  std::map<uint32_t, std::string> seen;
  std::string first, second;
  for (int i = 0; first.empty(); ++i) {
    const std::string name = fmt::format("c{}", i);
    const std::string draws = name + "/RandomApply#0/RandomInvert#1";
    const auto [it, is_new] = seen.emplace(Xxh32(draws) & 0xFFFF, name);
    if (!is_new) first = it->second, second = name;
  }
  const Operations operations = {
      {"DecodeImage", {}},
      {"RandomApply", {{"transforms", {Inside("RandomInvert"), Inside("RandomInvert")}}}}};
  EXPECT_OK(CompileColumns({{first, operations}}));
  EXPECT_THAT(CompileColumns({{first, operations}, {second, operations}}),
              FailsWith(kInvalid, "pipeline." + second + "[1].transforms[1]: " + second +
                                      "/RandomApply#0/RandomInvert#1 and " + first));
}

TEST(PipelinePlan, CountsOperationsInsideOthers) {
  const Json ten = Json(std::vector<Json>(10, Inside("RandomInvert")));
  Operations operations(5, {"RandomApply", {{"transforms", ten}}});
  EXPECT_OK(CompileImage(operations));  // 1 + 5 * 11
  operations.push_back(operations[0]);
  EXPECT_THAT(CompileImage(operations),
              FailsWith(kInvalid,
                        "pipeline.image: 67 operations with those inside others; give at "
                        "most 64"));
}

TEST(PipelinePlan, OneChannelIsOneInTheShapeToo) {
  const auto plan = CompileImage({{"CenterCrop", {{"size", {8, 12}}}}, {"Grayscale", {}}});
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->shapes()[0].shape, (std::vector<int64_t>{8, 12, 1}));
  EXPECT_EQ((*plan)->shapes()[0].row_size_bytes, 8 * 12);
  const auto row = MakeRow(**plan, 0, {.ordinal = 0});
  ASSERT_OK(row);
  const auto all = CompileImage(
      {{"CenterCrop", {{"size", {8, 12}}}}, {"Grayscale", {{"num_output_channels", 3}}}});
  ASSERT_OK(all);
  const auto three = MakeRow(**all, 0, {.ordinal = 0});
  ASSERT_OK(three);
  for (size_t i = 0; i < row->size(); ++i) {
    for (size_t c = 0; c < 3; ++c) EXPECT_EQ((*row)[i], (*three)[3 * i + c]);
  }
}

TEST(PipelinePlan, ASizeThatIsDrawnIsRefusedWithTheFirstRowThatDiffers) {
  const auto plan = CompileImage(
      {{"Resize", {{"size", {9, 9}}}}, {"RandomRotation", {{"degrees", 45}, {"expand", true}}}});
  ASSERT_OK(plan);
  absl::Status first_fault;
  for (uint32_t epoch = 0; epoch < 20 && first_fault.ok(); ++epoch) {
    first_fault = MakeRow(**plan, 0, {.ordinal = 0, .epoch = epoch}).status();
  }
  EXPECT_THAT(first_fault, FailsWith(kInvalid, "all rows of a column have one size"));
}

TEST(PipelinePlan, ASampleThatAnOperationCannotTakeIsNamed) {
  const auto plan = CompileImage({{"RandomCrop", {{"size", 22}}}});
  ASSERT_OK(plan);
  EXPECT_OK(MakeRow(**plan, 0, {.ordinal = 2}));
  EXPECT_THAT(MakeRow(**plan, 0, {.ordinal = 0}),
              FailsWith(kInvalid, "sample a/0.ppm: pipeline.image[1]: a picture of 20x30"));
}

// A picture operation needs no more scratch than a column without any, but for its own tables: the
// decoder's memory is given back first.
TEST(PipelinePlan, StepsTakeTheirOwnTablesOfScratch) {
  const auto bytes_of = [](Operations operations) {
    operations.push_back({"Resize", {{"size", {9, 9}}}});
    const auto plan = CompileImage(std::move(operations));
    EXPECT_OK(plan);
    return (*plan)->scratch_bytes_max();
  };
  const int64_t none = bytes_of({});
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(bytes_of({{"RandomCrop", {{"size", 9}, {"padding", 4}}}}), none);
  EXPECT_EQ(bytes_of({{"RandAugment", {}}}), none + 16 * kMiB);
  EXPECT_LE(bytes_of({{"GaussianBlur", {{"kernel_size", 23}}}}), none + 20 * kMiB);
  EXPECT_LE(none + 20 * kMiB, 900 * kMiB);  // what a daemon of 1.8 GiB gives
}

TEST(PipelinePlan, TheFingerprintIsOverWhatThePipelineDoes) {
  const auto print = [](std::vector<ColumnSpec> columns) {
    const auto plan = CompileColumns(std::move(columns));
    EXPECT_OK(plan);
    return plan.ok() ? (*plan)->fingerprint() : "";
  };
  const std::string flip = print({{"x", {{"DecodeImage", {}}, {"RandomHorizontalFlip", {}}}}});
  EXPECT_EQ(flip.size(), 32u);
  // Defaults written out, an integer for a number: the same.
  EXPECT_EQ(flip, print({{"x",
                          {{"DecodeImage", {{"max_pixels", 50000000.0}}},
                           {"RandomHorizontalFlip", {{"p", 0.5}}}}}}));
  EXPECT_NE(flip, print({{"x", {{"DecodeImage", {}}, {"RandomHorizontalFlip", {{"p", 1}}}}}}));
  EXPECT_NE(flip, print({{"y", {{"DecodeImage", {}}, {"RandomHorizontalFlip", {}}}}}));
  EXPECT_NE(flip, print({{"x", {{"DecodeImage", {}}}}}));
  const auto inside = [&](const Json& operation) {
    return print(
        {{"x",
          {{"DecodeImage", {}}, {"RandomApply", {{"transforms", Json::array({operation})}}}}}});
  };
  EXPECT_EQ(inside({{"name", "RandomInvert"}}), inside(Inside("RandomInvert", {{"p", 0.5}})));
  EXPECT_NE(inside({{"name", "RandomInvert"}}), inside(Inside("RandomInvert", {{"p", 0.6}})));
}

TEST(LabelColumn, GivesTheClassAndMinus100ForASkippedSample) {
  const auto plan = CompileColumns({{"label", {{"Label", {}}}}});
  ASSERT_OK(plan);
  int64_t row = 0;
  Worker worker;
  ASSERT_OK((*plan)->column(0).MakeRow((*plan)->dataset(), {}, {.ordinal = 2}, &worker,
                                       reinterpret_cast<uint8_t*>(&row)));
  EXPECT_EQ(row, 1);
  (*plan)->column(0).MakeSkippedRow(reinterpret_cast<uint8_t*>(&row));
  EXPECT_EQ(row, -100);
}

TEST(ImageColumn, DecodeImageAloneIsThePictureInHwc) {
  const auto plan = CompileImage({});
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->column(0).shape().shape, (std::vector<int64_t>{20, 30, 3}));
  const auto row = MakeRow(**plan, 0, {.ordinal = 1});
  ASSERT_OK(row);
  EXPECT_EQ(*row, Noise(20, 30, 2).pixels);
}

TEST(ImageColumn, ACropAloneIsThatPartOfThePicture) {
  const auto plan = CompileImage({{"CenterCrop", {{"size", {4, 6}}}}});
  ASSERT_OK(plan);
  const auto row = MakeRow(**plan, 0, {.ordinal = 0});
  ASSERT_OK(row);
  const TestPicture picture = Noise(20, 30, 1);
  for (int y = 0; y < 4; ++y) {
    EXPECT_TRUE(
        std::equal(row->begin() + y * 18, row->begin() + y * 18 + 18, picture.at(y + 8, 12)));
  }
}

// The whole chain once more, by hand, with the draws that the design gives each operation.
TEST(ImageColumn, ATrainingRowIsCropResizeFlipAndValues) {
  const auto plan = CompileImage({{"RandomResizedCrop", {{"size", {9, 7}}}},
                                  {"RandomHorizontalFlip", {}},
                                  {"ToTensor", {}},
                                  {"Normalize", {}}});
  ASSERT_OK(plan);
  ValueTable table;
  table.DivideBy255();
  table.Normalize({0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f});
  const auto crop = MakeTransform("RandomResizedCrop", {{"size", {9, 7}}});
  Worker worker;
  Scratch scratch;
  int flips = 0;
  for (uint32_t epoch = 0; epoch < 40; ++epoch) {
    DrawKey key = {.seed = 99, .ordinal = epoch % 3, .occurrence = 1, .epoch = epoch};
    const auto row = MakeRow(**plan, 0, key, &worker);
    ASSERT_OK(row);

    const TestPicture picture = epoch % 3 == 2 ? Noise(25, 30, 3) : Noise(20, 30, 1 + epoch % 3);
    PicturePlan picture_plan(picture.size);
    key.op_id = static_cast<uint16_t>(Xxh32("image/RandomResizedCrop#0"));
    Draws crop_draws(key);
    ASSERT_OK((*crop)->Plan(&picture_plan, &crop_draws));
    key.op_id = static_cast<uint16_t>(Xxh32("image/RandomHorizontalFlip#0"));
    if (Draws(key).NextUniform() < 0.5) {
      picture_plan.FlipHorizontal();
      ++flips;
    }
    TestPicture small({9, 7});
    const GeometryPlan& geometry = picture_plan.segments()[0].geometry;
    RunStage(geometry.stage(0), picture.part(geometry.stage(0).box), small.view(), &scratch);
    std::vector<uint8_t> want(row->size());
    table.Write(std::as_const(small).view(), Layout::kChw, want.data());
    ASSERT_EQ(*row, want) << "epoch " << epoch;
  }
  EXPECT_GT(flips, 5);
  EXPECT_LT(flips, 35);
}

TEST(ImageColumn, SeveralStagesGiveTheOperationsOneAfterTheOther) {
  const Operations operations = {{"Resize", {{"size", {15, 40}}}},
                                 {"CenterCrop", {{"size", {12, 44}}}},
                                 {"Resize", {{"size", {7, 9}}, {"interpolation", "bicubic"}}},
                                 {"RandomHorizontalFlip", {{"p", 1}}},
                                 {"Resize", {{"size", {20, 8}}}}};
  TestPicture now = Noise(20, 30, 1);
  Scratch scratch;
  for (const OperationSpec& operation : operations) {
    const auto transform = MakeTransform(operation.name, operation.arguments);
    ASSERT_OK(transform);
    PicturePlan plan_of_one(now.size);
    Draws draws({});
    ASSERT_OK((*transform)->Plan(&plan_of_one, &draws));
    const GeometryPlan& one = plan_of_one.segments()[0].geometry;
    TestPicture next(one.output());
    RunStage(one.stage(0), now.part(one.stage(0).box), next.view(), &scratch);
    now = std::move(next);
  }
  const auto plan = CompileImage(operations);
  ASSERT_OK(plan);
  const auto row = MakeRow(**plan, 0, {.ordinal = 0});
  ASSERT_OK(row);
  EXPECT_EQ(*row, now.pixels);
  // The same through a table, not straight into the row.
  Operations planar = operations;
  planar.push_back({"Layout", {{"layout", "NCHW"}}});
  const auto planar_plan = CompileImage(planar);
  ASSERT_OK(planar_plan);
  const auto planar_row = MakeRow(**planar_plan, 0, {.ordinal = 0});
  ASSERT_OK(planar_row);
  EXPECT_EQ((*planar_row)[0], now.pixels[0]);
  EXPECT_EQ((*planar_row)[20 * 8], now.pixels[1]);
}

TEST(ImageColumn, TakesTheSizeOfTheFirstSampleThatCanBeRead) {
  const auto dataset = std::make_shared<MemoryDataset>(std::vector<MemorySample>{
      {"empty", {}, 0}, {"text", {'h', 'i', '!', '!'}, 0}, {"good", EncodePpm(Noise(10, 20)), 0}});
  const auto plan = CompileImage({{"Resize", {{"size", 5}}}}, dataset);
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->column(0).shape().shape, (std::vector<int64_t>{5, 10, 3}));
}

TEST(ImageColumn, AFixedSizeReadsNoSample) {
  const auto dataset = SmallDataset();
  ASSERT_OK(CompileImage({{"CenterCrop", {{"size", 5}}}, {"Resize", {{"size", 3}}}}, dataset));
  EXPECT_EQ(dataset->source()->reads, 0);
}

TEST(ImageColumn, SaysSoWhenNoSampleGivesASize) {
  std::vector<MemorySample> samples(40, {"empty", {}, 0});
  const auto dataset = std::make_shared<MemoryDataset>(samples);
  const auto plan = CompileImage({}, dataset);
  EXPECT_THAT(plan, FailsWith(kInvalid, "pipeline.image: "));
  EXPECT_THAT(plan, FailsWith(kInvalid, "first 16"));
  EXPECT_THAT(plan, FailsWith(kInvalid, "empty"));
  EXPECT_EQ(dataset->source()->reads, 16);
}

TEST(ImageColumn, AnotherSizeNamesBothSamplesAndTheWayOut) {
  const auto plan = CompileImage({});
  ASSERT_OK(plan);
  const auto row = MakeRow(**plan, 0, {.ordinal = 2});
  for (const char* part : {"b/2.ppm", "25x30", "a/0.ppm", "20x30", "T.Resize((h, w))"}) {
    EXPECT_THAT(row, FailsWith(kInvalid, part));
  }
}

TEST(ImageColumn, BadSamplesKeepTheirReason) {
  std::vector<uint8_t> cut = EncodePpm(Noise(20, 30));
  cut.resize(cut.size() / 2);
  const auto dataset = std::make_shared<MemoryDataset>(
      std::vector<MemorySample>{{"cut", cut, 0},
                                {"text", {'h', 'i', '!', '!'}, 0},
                                {"line", EncodePpm(Noise(1, 300)), 0},
                                {"large", EncodePpm(Noise(60, 60)), 0},
                                {"long", EncodePpm(Noise(33, 33)), 0}});
  const auto plan =
      CompileColumns({{"image",
                       {{"DecodeImage", {{"max_pixels", 3000}, {"max_encoded_bytes", 3000}}},
                        {"Resize", {{"size", 20}}},
                        {"CenterCrop", {{"size", 20}}}}}},
                     dataset);
  ASSERT_OK(plan);
  EXPECT_THAT(MakeRow(**plan, 0, {.ordinal = 0}), IsBadSample(SampleReason::kTruncated));
  EXPECT_THAT(MakeRow(**plan, 0, {.ordinal = 1}), IsBadSample(SampleReason::kNotAnImage));
  // 6000 pixels long, but only the middle of it is ever made.
  EXPECT_OK(MakeRow(**plan, 0, {.ordinal = 2}));
  EXPECT_THAT(MakeRow(**plan, 0, {.ordinal = 3}), IsBadSample(SampleReason::kTooLarge));
  EXPECT_THAT(MakeRow(**plan, 0, {.ordinal = 4}), IsBadSample(SampleReason::kTooLarge));
}

TEST(ImageColumn, WhatTheOperationsMakeIsLimitedToo) {
  const auto dataset = std::make_shared<MemoryDataset>(std::vector<MemorySample>{
      {"small", EncodePpm(Noise(20, 20)), 0}, {"line", EncodePpm(Noise(1, 300)), 0}});
  const auto plan = CompileColumns({{"image",
                                     {{"DecodeImage", {{"max_pixels", 3000}}},
                                      {"Resize", {{"size", 20}}},
                                      {"Resize", {{"size", {5, 5}}}}}}},
                                   dataset);
  ASSERT_OK(plan);
  EXPECT_OK(MakeRow(**plan, 0, {.ordinal = 0}));
  EXPECT_THAT(MakeRow(**plan, 0, {.ordinal = 1}), IsBadSample(SampleReason::kTooLarge));
}

TEST(ImageColumn, ASkippedRowIsZero) {
  const auto plan = CompileImage({{"CenterCrop", {{"size", 2}}}, {"ToTensor", {}}});
  ASSERT_OK(plan);
  std::vector<uint8_t> row(48, 1);
  (*plan)->column(0).MakeSkippedRow(row.data());
  EXPECT_EQ(row, std::vector<uint8_t>(48, 0));
}

TEST(ImageColumn, MeasuresItsTimeAndKeepsItsScratch) {
  const auto plan = CompileImage({{"RandomResizedCrop", {{"size", 9}}}, {"ToTensor", {}}});
  ASSERT_OK(plan);
  Worker worker;
  for (uint32_t epoch = 0; epoch < 50; ++epoch) {
    ASSERT_OK(MakeRow(**plan, 0, {.epoch = epoch}, &worker));
  }
  EXPECT_GT(worker.decode_time.count(), 0);
  EXPECT_GT(worker.transform_time.count(), 0);
  const size_t held = worker.scratch.held_bytes();
  for (uint32_t epoch = 0; epoch < 50; ++epoch) {
    ASSERT_OK(MakeRow(**plan, 0, {.epoch = epoch}, &worker));
  }
  EXPECT_EQ(worker.scratch.held_bytes(), held);
}

TEST(PipelinePlan, NamesWhatAColumnMayBeginWith) {
  const auto schemas = ColumnSourceSchemas();
  ASSERT_EQ(schemas.size(), 3u);
  EXPECT_EQ(schemas[0]->name, "DecodeImage");
  EXPECT_EQ(schemas[1]->name, "DecodeMask");
  EXPECT_EQ(schemas[2]->name, "Label");
}

}  // namespace
}  // namespace batchd
