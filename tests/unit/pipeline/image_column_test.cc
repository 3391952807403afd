// SPDX-License-Identifier: Apache-2.0
//
// What DecodeImage's options do to a row.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>
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

// How far two rows are apart: mean and most, in levels of 255.
struct Difference {
  double mean = 0;
  int most = 0;
};
Difference DifferenceOf(const Row& a, const Row& b) {
  EXPECT_EQ(a.bytes.size(), b.bytes.size());
  Difference difference;
  for (size_t i = 0; i < a.bytes.size(); ++i) {
    const int here = std::abs(a.bytes[i] - b.bytes[i]);
    difference.mean += here;
    difference.most = std::max(difference.most, here);
  }
  difference.mean /= static_cast<double>(a.bytes.size());
  return difference;
}

TEST(ImageColumn, FastIsNearExact) {
  BATCHD_NEEDS_CASES();
  for (const char* file : {"photo_400x300.jpg", "photo_420.jpg", "photo_444.jpg", "photo_grey.jpg",
                           "photo_progressive.jpg"}) {
    const auto jpeg = ReadFileBytes(CasesPath(std::string("transforms/inputs/") + file));
    // From no reduction to one to an eighth.
    for (const int size : {90, 60, 40, 20, 10}) {
      SCOPED_TRACE(std::string(file) + " to " + std::to_string(size));
      const Operations crop = {{"RandomResizedCrop", {{"size", size}, {"scale", {0.9, 1}}}}};
      Operations exact = {{"DecodeImage", {}}}, fast = {{"DecodeImage", {{"decode", "fast"}}}};
      exact.insert(exact.end(), crop.begin(), crop.end());
      fast.insert(fast.end(), crop.begin(), crop.end());
      const Row exact_row = MakeRow(jpeg, exact), fast_row = MakeRow(jpeg, fast);
      ASSERT_OK(fast_row.status);
      const Difference difference = DifferenceOf(exact_row, fast_row);
      EXPECT_LT(difference.mean, 2.5);
      EXPECT_GT(difference.most, size < 50 ? 0 : -1);  // it is not the same work
    }
  }
}

// The picture with an EXIF segment that says it is to be turned.
std::vector<uint8_t> Turned(std::vector<uint8_t> jpeg, uint8_t orientation) {
  const uint8_t exif[] = {0xFF, 0xE1, 0, 34, 'E',         'x', 'i', 'f', 0,    0, 'I', 'I',
                          42,   0,    8, 0,  0,           0,   1,   0,   0x12, 1, 3,   0,
                          1,    0,    0, 0,  orientation, 0,   0,   0,   0,    0, 0,   0};
  jpeg.insert(jpeg.begin() + 2, std::begin(exif), std::end(exif));
  return jpeg;
}

TEST(ImageColumn, FastIsExactWhereThereIsNothingToGain) {
  BATCHD_NEEDS_CASES();
  const auto row = [](const std::vector<uint8_t>& bytes, const char* decode,
                      const char* orientation, const char* filter) {
    const Row made =
        MakeRow(bytes, {{"DecodeImage", {{"decode", decode}, {"orientation", orientation}}},
                        {"Resize", {{"size", {9, 9}}, {"interpolation", filter}}}});
    EXPECT_OK(made.status);
    return made.bytes;
  };
  const auto png = ReadFileBytes(CasesPath("transforms/inputs/chart.png"));
  EXPECT_EQ(row(png, "fast", "stored", "bilinear"), row(png, "exact", "stored", "bilinear"));

  // With chroma at full size only the reduction can make a difference.
  const auto jpeg = Turned(ReadFileBytes(CasesPath("transforms/inputs/photo_444.jpg")), 6);
  EXPECT_NE(row(jpeg, "fast", "stored", "bilinear"), row(jpeg, "exact", "stored", "bilinear"));
  EXPECT_EQ(row(jpeg, "fast", "stored", "nearest"), row(jpeg, "exact", "stored", "nearest"));
  EXPECT_EQ(row(jpeg, "fast", "upright", "bilinear"), row(jpeg, "exact", "upright", "bilinear"));
  EXPECT_NE(row(jpeg, "exact", "upright", "bilinear"), row(jpeg, "exact", "stored", "bilinear"));
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
