// SPDX-License-Identifier: Apache-2.0
//
// What DecodeImage's options do to a row.

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "server/pipeline/plan.h"
#include "tests/support/cases.h"
#include "tests/support/memory_dataset.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using Operations = std::vector<OperationSpec>;

struct Row {
  absl::Status status;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
  int damaged_count = 0;
};

// The row of this sample, made by these operations.
Row MakeRow(const std::vector<uint8_t>& sample, Operations operations) {
  auto dataset = std::make_shared<MemoryDataset>(std::vector<MemorySample>{{"a/0", sample, 0}});
  Row row;
  const auto plan = PipelinePlan::Compile({{{"image", std::move(operations)}}}, dataset);
  row.status = plan.status();
  if (!plan.ok()) return row;
  row.shape = (*plan)->shapes()[0].shape;
  row.bytes.resize(static_cast<size_t>((*plan)->shapes()[0].row_size_bytes));
  Worker worker;
  row.status = (*plan)->column(0).MakeRow(*dataset, sample, {.seed = 5}, &worker, row.bytes.data());
  row.damaged_count = worker.damaged_count;
  return row;
}

TEST(ImageColumn, UprightIsPlannedCroppedAndResizedLikeAPictureThatWasStoredSo) {
  BATCHD_NEEDS_CASES();
  for (int orientation : {3, 5, 6, 8}) {
    SCOPED_TRACE(orientation);
    const auto jpeg =
        ReadFileBytes(CasesPath("images/exif_orientation_" + std::to_string(orientation) + ".jpg"));
    const Row whole = MakeRow(jpeg, {{"DecodeImage", {{"orientation", "upright"}}}});
    ASSERT_OK(whole.status);
    TestPicture upright({static_cast<int>(whole.shape[0]), static_cast<int>(whole.shape[1])});
    upright.pixels = whole.bytes;
    const Row stored = MakeRow(jpeg, {{"DecodeImage", {}}});
    const bool turns = orientation >= 5;
    EXPECT_EQ(stored.shape[0], whole.shape[turns ? 1 : 0]);
    EXPECT_NE(stored.bytes, whole.bytes);

    const Operations chain = {{"RandomResizedCrop", {{"size", {9, 11}}}},
                              {"RandomHorizontalFlip", {{"p", 1.0}}}};
    Operations of_jpeg = {{"DecodeImage", {{"orientation", "upright"}}}};
    Operations of_upright = {{"DecodeImage", {}}};
    for (Operations* operations : {&of_jpeg, &of_upright}) {
      operations->insert(operations->end(), chain.begin(), chain.end());
    }
    const Row row = MakeRow(jpeg, of_jpeg);
    ASSERT_OK(row.status);
    EXPECT_EQ(row.bytes, MakeRow(EncodePpm(upright), of_upright).bytes);
  }
}

TEST(ImageColumn, DamageIsABadSampleUnlessItIsAccepted) {
  BATCHD_NEEDS_CASES();
  const auto jpeg = ReadFileBytes(CasesPath("images/trunc_half.jpg"));
  const Row whole =
      MakeRow(ReadFileBytes(CasesPath("ref/img-jpeg-trunc-whole.png")), {{"DecodeImage", {}}});
  ASSERT_OK(whole.status);
  EXPECT_EQ(whole.damaged_count, 0);

  const Row refused = MakeRow(jpeg, {{"DecodeImage", {}}});
  const Row taken = MakeRow(jpeg, {{"DecodeImage", {{"damaged", "accept"}}}});

  EXPECT_THAT(refused.status, IsBadSample(SampleReason::kTruncated));
  EXPECT_EQ(refused.damaged_count, 0);
  ASSERT_OK(taken.status);
  EXPECT_EQ(taken.damaged_count, 1);
  constexpr int kGoodBytes = 40 * 96 * 3;
  EXPECT_TRUE(
      std::equal(taken.bytes.begin(), taken.bytes.begin() + kGoodBytes, whole.bytes.begin()));
  EXPECT_EQ(std::count(taken.bytes.end() - 96 * 3, taken.bytes.end(), 128), 96 * 3);
}

// A format whose decoder stops at the damage: the rest is grey all the same.
TEST(ImageColumn, RowsThatAreNotThereAreGrey) {
  TestPicture picture({10, 6});
  std::fill(picture.pixels.begin(), picture.pixels.end(), 7);
  auto ppm = EncodePpm(picture);
  ppm.resize(ppm.size() - 5 * 6 * 3 - 1);

  const Row row = MakeRow(ppm, {{"DecodeImage", {{"damaged", "accept"}}}});

  ASSERT_OK(row.status);
  EXPECT_EQ(row.damaged_count, 1);
  EXPECT_EQ(std::count(row.bytes.begin(), row.bytes.begin() + 4 * 6 * 3, 7), 4 * 6 * 3);
  EXPECT_EQ(std::count(row.bytes.begin() + 4 * 6 * 3, row.bytes.end(), 128), 6 * 6 * 3);
}

TEST(ImageColumn, APictureWithoutAnyGoodRowIsBadEvenWhereDamageIsAccepted) {
  TestPicture picture({10, 6});
  auto ppm = EncodePpm(picture);
  ppm.resize(ppm.size() - 10 * 6 * 3 + 3);

  EXPECT_THAT(MakeRow(ppm, {{"DecodeImage", {{"damaged", "accept"}}}}).status,
              IsBadSample(SampleReason::kTruncated));
}

}  // namespace
}  // namespace batchd
