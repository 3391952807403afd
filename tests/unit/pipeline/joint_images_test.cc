// SPDX-License-Identifier: Apache-2.0
//
// Columns that share a decode: to the same bytes and the same errors as each for itself.

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/pipeline/plan.h"
#include "tests/support/cases.h"
#include "tests/support/memory_dataset.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

struct Rows {
  absl::Status status;
  std::vector<std::vector<uint8_t>> bytes;
  int damaged_count = 0;
};

Rows EmptyRows(const PipelinePlan& plan) {
  Rows rows;
  for (const ColumnShape& shape : plan.shapes()) {
    rows.bytes.emplace_back(static_cast<size_t>(shape.row_size_bytes), uint8_t{0xA5});
  }
  return rows;
}

Rows Together(const PipelinePlan& plan, Bytes bytes, const DrawKey& key, Worker* worker) {
  Rows rows = EmptyRows(plan);
  std::vector<uint8_t*> places;
  for (auto& row : rows.bytes) places.push_back(row.data());
  worker->damaged_count = 0;
  rows.status = plan.MakeRows(bytes, key, worker, places);
  rows.damaged_count = worker->damaged_count;
  return rows;
}

Rows OneByOne(const PipelinePlan& plan, Bytes bytes, const DrawKey& key, Worker* worker) {
  Rows rows = EmptyRows(plan);
  worker->damaged_count = 0;
  for (int i = 0; i < plan.column_count() && rows.status.ok(); ++i) {
    rows.status =
        plan.column(i).MakeRow(plan.dataset(), bytes, key, worker, rows.bytes[size_t(i)].data());
  }
  rows.damaged_count = worker->damaged_count;
  return rows;
}

// Two global and two local crops, and what reads the picture in other ways.
PipelineSpec Crops(const Json& decode) {
  const auto crop = [&](const char* name, int size, double least, double most) {
    return ColumnSpec{name,
                      {{"DecodeImage", decode},
                       {"RandomResizedCrop", {{"size", size}, {"scale", {least, most}}}},
                       {"RandomHorizontalFlip", Json::object()}}};
  };
  PipelineSpec spec = {{crop("global0", 24, 0.4, 1),
                        crop("global1", 24, 0.4, 1),
                        {"label", {{"Label", Json::object()}}},
                        crop("local0", 9, 0.01, 0.2),
                        crop("local1", 9, 0.01, 0.2)}};
  spec.columns.push_back({"middle",
                          {{"DecodeImage", decode},
                           {"Resize", {{"size", {30, 31}}}},
                           {"CenterCrop", {{"size", 20}}}}});
  spec.columns.push_back({"grey",
                          {{"DecodeImage", decode},
                           {"RandomResizedCrop", {{"size", 11}}},
                           {"Grayscale", {{"num_output_channels", 1}}},
                           {"ToTensor", Json::object()}}});
  return spec;
}

void ExpectEqualRows(const PipelinePlan& plan, Bytes bytes, int draws) {
  Worker worker, other_worker;
  for (uint32_t epoch = 0; epoch < uint32_t(draws); ++epoch) {
    const DrawKey key = {.seed = 3, .epoch = epoch};
    const Rows together = Together(plan, bytes, key, &worker);
    const Rows one_by_one = OneByOne(plan, bytes, key, &other_worker);
    // The text may name another row of the same damage.
    ASSERT_EQ(together.status.code(), one_by_one.status.code())
        << together.status << ' ' << one_by_one.status;
    ASSERT_EQ(SampleReasonOf(together.status), SampleReasonOf(one_by_one.status))
        << together.status << ' ' << one_by_one.status;
    if (!together.status.ok()) continue;
    for (size_t i = 0; i < together.bytes.size(); ++i) {
      ASSERT_EQ(together.bytes[i], one_by_one.bytes[i])
          << plan.shapes()[i].name << ", epoch " << epoch;
    }
    // A picture that was decoded for each column was damaged for each, of those that reached it.
    ASSERT_LE(together.damaged_count, 1);
    ASSERT_EQ(together.damaged_count > 0, one_by_one.damaged_count > 0);
  }
}

TEST(JointImages, EqualSeparateDecodesForEveryPictureOfTheSharedCases) {
  BATCHD_NEEDS_CASES();
  int good = 0, bad = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CasesPath("images"))) {
    const std::vector<uint8_t> bytes = ReadFileBytes(entry.path().string());
    for (const char* orientation : {"stored", "upright"}) {
      const Json options[] = {{{"orientation", orientation}, {"damaged", "raise"}},
                              {{"orientation", orientation}, {"damaged", "accept"}},
                              {{"orientation", orientation}, {"decode", "fast"}}};
      for (const Json& decode : options) {
        SCOPED_TRACE(entry.path().filename().string() + " " + decode.dump());
        const auto dataset =
            std::make_shared<MemoryDataset>(std::vector<MemorySample>{{"a/0", bytes, 0}});
        const auto plan = PipelinePlan::Compile(Crops(decode), dataset);
        ASSERT_OK(plan);
        ExpectEqualRows(**plan, bytes, 6);
        Worker worker;
        (Together(**plan, bytes, {}, &worker).status.ok() ? good : bad) += 1;
      }
    }
  }
  EXPECT_GE(good, 100);
  EXPECT_GE(bad, 50);
}

// Cut off or changed anywhere: damage above, in and below the crops.
TEST(JointImages, EqualSeparateDecodesForDamagedPictures) {
  BATCHD_NEEDS_CASES();
  for (const char* name : {"exif_orientation_6.jpg", "exif_orientation_3.jpg", "trunc_half.jpg",
                           "rgb8.png", "raw.ppm"}) {
    const std::vector<uint8_t> whole = ReadFileBytes(CasesPath(std::string("images/") + name));
    for (const char* orientation : {"stored", "upright"}) {
      for (const char* damaged : {"raise", "accept"}) {
        SCOPED_TRACE(std::string(name) + " " + orientation + " " + damaged);
        const auto dataset =
            std::make_shared<MemoryDataset>(std::vector<MemorySample>{{"a/0", whole, 0}});
        const auto plan = PipelinePlan::Compile(
            Crops({{"orientation", orientation}, {"damaged", damaged}}), dataset);
        ASSERT_OK(plan);
        Draws draws({.seed = 7});
        for (int i = 0; i < 40; ++i) {
          std::vector<uint8_t> bytes = whole;
          const auto at = draws.NextBelow(uint32_t(bytes.size()));
          if (i % 2 == 0) {
            bytes.resize(at + 1);
          } else {
            bytes[at] ^= uint8_t(1 + draws.NextBelow(255));
          }
          SCOPED_TRACE(i);
          ExpectEqualRows(**plan, bytes, 2);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A decode of a damaged picture is counted once however many columns it makes.
TEST(JointImages, APictureIsDecodedOnce) {
  TestPicture picture({20, 16});
  auto ppm = EncodePpm(picture);
  const auto dataset = std::make_shared<MemoryDataset>(std::vector<MemorySample>{{"a", ppm, 0}});
  const Json decode = {{"damaged", "accept"}};
  const auto plan = PipelinePlan::Compile(
      {{{"a", {{"DecodeImage", decode}}},
        {"b", {{"DecodeImage", decode}}},
        {"c", {{"DecodeImage", {{"damaged", "accept"}, {"max_pixels", 1000}}}}}}},
      dataset);
  ASSERT_OK(plan);
  ppm.resize(ppm.size() - 100);
  Worker worker;
  EXPECT_EQ(OneByOne(**plan, ppm, {}, &worker).damaged_count, 3);
  EXPECT_EQ(Together(**plan, ppm, {}, &worker).damaged_count, 2);  // other arguments: for itself
}

// Where a column's geometry fails, a fault of the picture that an earlier column meets comes first.
TEST(JointImages, TheFirstColumnsErrorComesFirst) {
  const std::vector<uint8_t> small = EncodePpm(TestPicture({10, 10}));
  const std::vector<uint8_t> large = EncodePpm(TestPicture({12, 10}));
  std::vector<uint8_t> cut = large;
  cut.resize(cut.size() - 12 * 10);
  const auto dataset = std::make_shared<MemoryDataset>(
      std::vector<MemorySample>{{"small", small, 0}, {"large", large, 0}, {"cut", cut, 0}});
  const auto plan = PipelinePlan::Compile(
      {{{"a", {{"DecodeImage", Json::object()}, {"Resize", {{"size", {5, 5}}}}}},
        {"b", {{"DecodeImage", Json::object()}}},
        {"c", {{"DecodeImage", Json::object()}, {"Resize", {{"size", {5, 5}}}}}}}},
      dataset);
  ASSERT_OK(plan);
  Worker worker;
  EXPECT_OK(Together(**plan, small, {.ordinal = 0}, &worker).status);
  EXPECT_THAT(Together(**plan, large, {.ordinal = 1}, &worker).status,
              FailsWith(absl::StatusCode::kInvalidArgument, "sample large makes rows of 12x10"));
  EXPECT_THAT(Together(**plan, cut, {.ordinal = 2}, &worker).status,
              IsBadSample(SampleReason::kTruncated));
  for (uint64_t ordinal = 0; ordinal < 3; ++ordinal) {
    const auto& bytes = dataset->at(int64_t(ordinal)).bytes;
    EXPECT_EQ(Together(**plan, bytes, {.ordinal = ordinal}, &worker).status,
              OneByOne(**plan, bytes, {.ordinal = ordinal}, &worker).status);
  }
}

}  // namespace
}  // namespace batchd
