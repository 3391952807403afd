// SPDX-License-Identifier: Apache-2.0
//
// geometry="name", and the masks that it is for.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/pipeline/plan.h"
#include "tests/support/memory_dataset.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using Operations = std::vector<OperationSpec>;

// A grey picture whose pixels are all of a different level, as far as there are levels.
std::vector<uint8_t> GreyRamp(int height, int width) {
  const std::string header = fmt::format("P5\n{} {}\n255\n", width, height);
  std::vector<uint8_t> bytes(header.begin(), header.end());
  for (int i = 0; i < height * width; ++i) bytes.push_back(static_cast<uint8_t>(i * 7 + i / 256));
  return bytes;
}

std::shared_ptr<const Dataset> RampDataset() {
  return std::make_shared<MemoryDataset>(
      std::vector<MemorySample>{{"a", GreyRamp(24, 31), 0}, {"b", GreyRamp(19, 40), 1}});
}

absl::StatusOr<std::shared_ptr<const PipelinePlan>> Compile(std::vector<ColumnSpec> columns) {
  return PipelinePlan::Compile({std::move(columns)}, RampDataset());
}

std::vector<std::vector<uint8_t>> MakeRows(const PipelinePlan& plan, uint32_t epoch,
                                           Worker* worker) {
  std::vector<std::vector<uint8_t>> rows;
  std::vector<uint8_t*> places;
  for (const ColumnShape& shape : plan.shapes()) {
    rows.emplace_back(static_cast<size_t>(shape.row_size_bytes));
  }
  for (auto& row : rows) places.push_back(row.data());
  EXPECT_OK(plan.MakeRows(GreyRamp(24, 31), {.seed = 1, .epoch = epoch}, worker, places));
  return rows;
}

Operations CropAndFlip(const char* source, const Json& arguments, const char* filter) {
  return {{source, arguments},
          {"RandomResizedCrop", {{"size", {13, 17}}, {"interpolation", filter}}},
          {"RandomHorizontalFlip", Json::object()}};
}

std::vector<uint8_t> FirstChannel(const std::vector<uint8_t>& rgb) {
  std::vector<uint8_t> values;
  for (size_t i = 0; i < rgb.size(); i += 3) values.push_back(rgb[i]);
  return values;
}

TEST(SharedGeometry, PictureAndMaskGoAlike) {
  const Json geometry = {{"geometry", "scene"}};
  const auto plan = Compile({{"image", CropAndFlip("DecodeImage", geometry, "nearest")},
                             {"mask", CropAndFlip("DecodeMask", geometry, "bilinear")},
                             {"alone", CropAndFlip("DecodeMask", Json::object(), "bilinear")}});
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->shapes()[1].shape, (std::vector<int64_t>{13, 17}));
  Worker worker;
  std::set<std::vector<uint8_t>> different;
  int alone_differs = 0;
  for (uint32_t epoch = 0; epoch < 30; ++epoch) {
    const auto rows = MakeRows(**plan, epoch, &worker);
    ASSERT_EQ(FirstChannel(rows[0]), rows[1]);  // masks take the nearest pixel anyway
    alone_differs += rows[1] != rows[2];
    different.insert(rows[1]);
  }
  EXPECT_GE(different.size(), 25u);
  EXPECT_GE(alone_differs, 25);
}

// What does not move pixels draws for its column: between two views of one picture only the colours
// differ. (What a name shares is by kind and number: other operations between them do not matter.)
TEST(SharedGeometry, OperationsThatMoveNothingAreNotPartOfIt) {
  const Json geometry = {{"geometry", "view"}};
  Operations with_grey = CropAndFlip("DecodeImage", geometry, "nearest");
  with_grey.insert(with_grey.begin() + 2, {"Grayscale", {{"num_output_channels", 3}}});
  const auto plan =
      Compile({{"a", CropAndFlip("DecodeImage", geometry, "nearest")}, {"b", with_grey}});
  ASSERT_OK(plan);
  Worker worker;
  const auto rows = MakeRows(**plan, 3, &worker);
  EXPECT_EQ(rows[0], rows[1]);  // the picture is grey
}

// The draws are those of geometry/Transform#n, whichever columns there are.
TEST(SharedGeometry, ANameDrawsTheSameInEveryPipeline) {
  Worker worker;
  const Json geometry = {{"geometry", "scene"}};
  const auto one = Compile({{"x", CropAndFlip("DecodeMask", geometry, "nearest")}});
  const auto column_of_that_name =
      Compile({{"scene", CropAndFlip("DecodeMask", Json::object(), "nearest")}});
  ASSERT_OK(one);
  ASSERT_OK(column_of_that_name);
  EXPECT_EQ(MakeRows(**one, 2, &worker), MakeRows(**column_of_that_name, 2, &worker));
  EXPECT_NE((*one)->fingerprint(), (*column_of_that_name)->fingerprint());
  // Together they would share draws that they have not asked to share.
  EXPECT_THAT(Compile({{"x", CropAndFlip("DecodeMask", geometry, "nearest")},
                       {"scene", CropAndFlip("DecodeMask", Json::object(), "nearest")}}),
              FailsWith(absl::StatusCode::kInvalidArgument, "rename a column or geometry"));
}

TEST(SharedGeometry, RefusesColumnsThatDiffer) {
  const Json g = {{"geometry", "g"}};
  const Operations base = CropAndFlip("DecodeImage", g, "bilinear");
  const auto refused = [&](Operations other, const char* part) {
    EXPECT_THAT(Compile({{"image", base}, {"mask", std::move(other)}}),
                FailsWith(absl::StatusCode::kInvalidArgument, part));
  };
  refused({{"DecodeMask", g},
           {"RandomResizedCrop", {{"size", {13, 18}}}},
           {"RandomHorizontalFlip", {}}},
          "pipeline.mask[1]: RandomResizedCrop{");
  refused({{"DecodeMask", g},
           {"RandomHorizontalFlip", {}},
           {"RandomResizedCrop", {{"size", {13, 17}}}}},
          "pipeline.mask[1]: RandomHorizontalFlip{");
  refused({{"DecodeMask", g},
           {"RandomResizedCrop", {{"size", {13, 17}}}},
           {"CenterCrop", {{"size", 5}}}},
          "pipeline.mask: pipeline.image of the same geometry \"g\" has RandomHorizontalFlip{");
  refused({{"DecodeMask", g},
           {"Resize", {{"size", {20, 20}}}},
           {"RandomResizedCrop", {{"size", {13, 17}}}},
           {"RandomHorizontalFlip", {}}},
          "pipeline.mask[1]: Resize{");
  refused({{"DecodeMask", {{"geometry", "g"}, {"orientation", "upright"}}},
           {"RandomResizedCrop", {{"size", {13, 17}}}},
           {"RandomHorizontalFlip", {}}},
          "pipeline.mask[0].orientation: ");
  EXPECT_THAT(Compile({{"image", CropAndFlip("DecodeImage", {{"geometry", "a/b"}}, "bilinear")}}),
              FailsWith(absl::StatusCode::kInvalidArgument, "pipeline.image[0].geometry: \"a/b\""));
}

// Behind the last draw every column goes its own way: a mask for a coarser output, say.
TEST(SharedGeometry, WhatFollowsTheLastDrawIsFree) {
  const Json g = {{"geometry", "g"}};
  Operations mask = CropAndFlip("DecodeMask", g, "bilinear");
  mask.push_back({"Resize", {{"size", {4, 5}}}});
  EXPECT_OK(Compile({{"image", CropAndFlip("DecodeImage", g, "bicubic")}, {"mask", mask}}));
}

TEST(Masks, ValuesStayWhatTheyAre) {
  const auto plan = Compile(
      {{"small", {{"DecodeMask", Json::object()}, {"Resize", {{"size", {5, 6}}}}}},
       {"wide", {{"DecodeMask", {{"dtype", "int64"}}}, {"CenterCrop", {{"size", {24, 31}}}}}}});
  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->shapes()[0].dtype, wire::DType::kUint8);
  EXPECT_EQ((*plan)->shapes()[1].dtype, wire::DType::kInt64);
  EXPECT_EQ((*plan)->shapes()[1].shape, (std::vector<int64_t>{24, 31}));
  EXPECT_EQ((*plan)->shapes()[1].row_size_bytes, 24 * 31 * 8);
  Worker worker;
  const auto rows = MakeRows(**plan, 0, &worker);
  const std::vector<uint8_t> file = GreyRamp(24, 31);
  const uint8_t* const levels = &file[file.size() - 24 * 31];
  for (int i = 0; i < 24 * 31; ++i) {
    int64_t value;
    std::memcpy(&value, &rows[1][size_t(i) * 8], 8);
    ASSERT_EQ(value, levels[i]);
  }
  // Pillow's nearest: the middle of each part.
  for (int y = 0; y < 5; ++y) {
    for (int x = 0; x < 6; ++x) {
      const int row = int((y + 0.5) * 24 / 5), column = int((x + 0.5) * 31 / 6);
      ASSERT_EQ(rows[0][size_t(y * 6 + x)], levels[row * 31 + column]);
    }
  }
}

// Turns and borders: the nearest pixel as well, with a colour of its own outside.
TEST(Masks, TurnWithTheirPicturesAndFillWhatTheyAreTold) {
  const Json geometry = {{"geometry", "g"}};
  const auto moves = [](const char* source, const Json& arguments, const char* filter) {
    return Operations{
        {source, arguments},
        {"RandomCrop", {{"size", {26, 30}}, {"padding", 4}, {"fill", 255}}},
        {"RandomApply",
         {{"transforms",
           {{{"name", "RandomRotation"},
             {"arguments", {{"degrees", 40}, {"interpolation", filter}, {"fill", 255}}}}}}}}};
  };
  const auto plan = Compile({{"image", moves("DecodeImage", geometry, "nearest")},
                             {"mask", moves("DecodeMask", geometry, "bilinear")}});
  ASSERT_OK(plan);
  Worker worker;
  std::set<std::vector<uint8_t>> different;
  for (uint32_t epoch = 0; epoch < 40; ++epoch) {
    const auto rows = MakeRows(**plan, epoch, &worker);
    ASSERT_EQ(FirstChannel(rows[0]), rows[1]);
    EXPECT_GT(std::count(rows[1].begin(), rows[1].end(), 255), 26);
    different.insert(rows[1]);
  }
  EXPECT_GE(different.size(), 35u);
}

TEST(Masks, RefuseWhatChangesValues) {
  for (const char* name : {"Grayscale", "ToTensor", "Normalize", "ColorJitter", "RandAugment"}) {
    EXPECT_THAT(Compile({{"mask", {{"DecodeMask", {}}, {name, Json::object()}}}}),
                FailsWith(absl::StatusCode::kInvalidArgument,
                          fmt::format("pipeline.mask[1]: {} would change class numbers", name)));
  }
}

TEST(Masks, PicturesOfColoursAreUnsupported) {
  const auto plan = Compile({{"mask", {{"DecodeMask", {}}, {"Resize", {{"size", {5, 6}}}}}}});
  ASSERT_OK(plan);
  std::vector<uint8_t> row(30);
  Worker worker;
  EXPECT_THAT((*plan)->column(0).MakeRow((*plan)->dataset(), EncodePpm(TestPicture({9, 9})), {},
                                         &worker, row.data()),
              IsBadSample(SampleReason::kUnsupported));
}

}  // namespace
}  // namespace batchd
