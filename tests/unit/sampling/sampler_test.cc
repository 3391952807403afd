// SPDX-License-Identifier: Apache-2.0
#include "server/sampling/sampler.h"

#include <set>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using absl::StatusCode;

absl::Status Refusal(const SamplerOptions& options) { return MakeSampler(options).status(); }

TEST(MakeSamplerTest, RefusesAnEmptyDataset) {
  EXPECT_THAT(Refusal({.num_samples = 0, .global_batch_size = 1}),
              FailsWith(StatusCode::kFailedPrecondition, "no samples"));
}

TEST(MakeSamplerTest, RefusesAGlobalBatchOutOfRange) {
  for (const int64_t g : {int64_t{-1}, int64_t{0}, kGlobalBatchSizeMax + 1}) {
    const absl::Status status = Refusal({.num_samples = 1 << 30, .global_batch_size = g});
    EXPECT_EQ(FieldOf(status), "sampling.global_batch_size");
    EXPECT_THAT(status, FailsWith(StatusCode::kInvalidArgument, std::to_string(g)));
  }
  EXPECT_OK(Refusal({.num_samples = 1 << 30, .global_batch_size = kGlobalBatchSizeMax}));
}

TEST(MakeSamplerTest, RefusesDropWithFewerSamplesThanABatchAndSaysTheWayOut) {
  SamplerOptions options = {
      .num_samples = 7, .global_batch_size = 8, .last_batch = LastBatch::kDrop};
  const absl::Status status = Refusal(options);
  EXPECT_THAT(status, FailsWith(StatusCode::kFailedPrecondition, "7 samples"));
  EXPECT_THAT(status, FailsWith(StatusCode::kFailedPrecondition, "global_batch_size=8"));
  EXPECT_THAT(status, FailsWith(StatusCode::kFailedPrecondition, "partial"));
  options.num_samples = 8;
  EXPECT_OK(Refusal(options));
}

TEST(MakeSamplerTest, RefusesToPadWithMoreRepeatsThanADrawCanTell) {
  SamplerOptions options = {
      .num_samples = 2, .global_batch_size = 2 * 65536 + 1, .last_batch = LastBatch::kPad};
  EXPECT_EQ(FieldOf(Refusal(options)), "sampling.global_batch_size");
  options.global_batch_size = 2 * 65536;
  const auto sampler = MakeSampler(options);
  ASSERT_OK(sampler);
  std::vector<SampleRow> rows;
  (*sampler)->Rows({}, &rows);
  EXPECT_EQ(rows.back(), (SampleRow{1, 65535, true}));
}

TEST(MakeSamplerTest, RefusesTorchsOrderOfTooManySamples) {
  const absl::Status status = Refusal(
      {.num_samples = kTorchSamplesMax + 1, .shuffle = Shuffle::kTorch, .global_batch_size = 1});
  EXPECT_EQ(FieldOf(status), "sampling.shuffle");
}

TEST(SamplerTest, ManySamplesCostNothing) {
  const int64_t n = int64_t{1} << 48;
  const auto sampler = MakeSampler({.num_samples = n,
                                    .shuffle = Shuffle::kFeistel,
                                    .global_batch_size = 1000,
                                    .last_batch = LastBatch::kPartial});
  ASSERT_OK(sampler);
  std::vector<SampleRow> rows;
  (*sampler)->Rows({kEpochMax, (*sampler)->steps(0) - 1, 0, 1}, &rows);
  EXPECT_EQ(static_cast<int64_t>(rows.size()), n % 1000);
}

TEST(SamplerTest, WithoutShuffleTheOrderIsTheDatasets) {
  const auto sampler = MakeSampler({.num_samples = 10, .global_batch_size = 4});
  ASSERT_OK(sampler);
  std::vector<SampleRow> rows;
  (*sampler)->Rows({9, 2, 0, 1}, &rows);
  EXPECT_THAT(rows, testing::ElementsAre(SampleRow{8, 0, false}, SampleRow{9, 0, false}));
}

TEST(SamplerNamesTest, AreTheProtocols) {
  EXPECT_EQ(ShuffleName(Shuffle::kNone), "none");
  EXPECT_EQ(ShuffleName(Shuffle::kFeistel), "feistel");
  EXPECT_EQ(ShuffleName(Shuffle::kTorch), "torch");
  EXPECT_EQ(LastBatchName(LastBatch::kDrop), "drop");
  EXPECT_EQ(LastBatchName(LastBatch::kPad), "pad");
  EXPECT_EQ(LastBatchName(LastBatch::kPartial), "partial");
  EXPECT_EQ(OnBadSampleName(OnBadSample::kFail), "fail");
  EXPECT_EQ(OnBadSampleName(OnBadSample::kSkip), "skip");
  EXPECT_EQ(OnBadSampleName(OnBadSample::kSubstitute), "substitute");
}

TEST(SubstituteOrdinalTest, GivesTheGoldenOrdinals) {
  EXPECT_EQ(SubstituteOrdinal(0, 0, 0, 0, 1000), 898);
  EXPECT_EQ(SubstituteOrdinal(0, 0, 0, 15, 1000), 711);
  EXPECT_EQ(SubstituteOrdinal(7, 3, 12, 1, 1281167), 148011);
  EXPECT_EQ(
      SubstituteOrdinal(0x123456789abcdef, 4294967295, (int64_t{1} << 40) + 5, 2, int64_t{1} << 32),
      3789125481);
  EXPECT_EQ(SubstituteOrdinal(5, 1, 2, 3, (int64_t{1} << 40) + 17), 223333172790);
}

TEST(SubstituteOrdinalTest, DependsOnEveryArgumentAndStaysInRange) {
  std::set<int64_t> seen;
  for (int k = 0; k < kSubstituteChainMax; ++k) seen.insert(SubstituteOrdinal(1, 1, 1, k, 1 << 30));
  seen.insert(SubstituteOrdinal(2, 1, 1, 0, 1 << 30));
  seen.insert(SubstituteOrdinal(1, 2, 1, 0, 1 << 30));
  seen.insert(SubstituteOrdinal(1, 1, 2, 0, 1 << 30));
  EXPECT_EQ(seen.size(), static_cast<size_t>(kSubstituteChainMax + 3));
  for (int64_t ordinal = 0; ordinal < 1000; ++ordinal) {
    const int64_t candidate = SubstituteOrdinal(1, 1, ordinal, 0, 3);
    EXPECT_TRUE(candidate >= 0 && candidate < 3);
  }
  EXPECT_EQ(SubstituteOrdinal(1, 1, 0, 5, 1), 0);
}

}  // namespace
}  // namespace batchd
