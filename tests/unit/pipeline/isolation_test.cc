// SPDX-License-Identifier: Apache-2.0
//
// A column whose pictures are decoded in processes: the same rows, and no byte of a picture is
// looked into in this one.

#include <gtest/gtest.h>

#include "server/pipeline/plan.h"
#include "tests/support/memory_dataset.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

std::vector<uint8_t> Doing(const std::string& what) {
  const std::string text = "P6\n#do " + what + "\n";
  return {text.begin(), text.end()};
}

std::vector<uint8_t> Good() {
  Draws draws({.seed = 4});
  return EncodePpm(NoisePicture({90, 70}, &draws));
}

class IsolationTest : public testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const PipelinePlan>> Compile(
      const std::vector<std::vector<uint8_t>>& pictures, const Json& options,
      DecodeIsolation* isolation) {
    std::vector<MemorySample> samples;
    for (const auto& bytes : pictures) {
      samples.push_back({std::to_string(samples.size()), bytes, 0});
    }
    dataset_ = std::make_shared<MemoryDataset>(samples);
    return PipelinePlan::Compile({{{"image", {{"DecodeImage", options}}}}}, dataset_, isolation);
  }

  absl::StatusOr<std::vector<uint8_t>> Row(const PipelinePlan& plan,
                                           const std::vector<uint8_t>& picture, Worker* worker) {
    std::vector<uint8_t> row(static_cast<size_t>(plan.shapes()[0].row_size_bytes));
    BATCHD_RETURN_IF_ERROR(
        plan.column(0).MakeRow(*dataset_, picture, {.seed = 5}, worker, row.data()));
    return row;
  }

  Metrics metrics_;
  DecodeIsolation isolation_{{.program = BATCHD_TEST_WORKER,
                              .encoded_bytes_max = int64_t{1} << 20,
                              .memory_bytes_max = int64_t{1} << 28},
                             &metrics_};
  std::shared_ptr<MemoryDataset> dataset_;
};

TEST_F(IsolationTest, RowsAndFingerprintAreThoseWithoutIt) {
  const auto plan = Compile({Good()}, Json::object(), nullptr);
  const auto isolated = Compile({Good()}, Json::object(), &isolation_);
  ASSERT_OK(plan);
  ASSERT_OK(isolated);
  Worker here;
  Worker there(&isolation_);

  EXPECT_EQ((*plan)->fingerprint(), (*isolated)->fingerprint());
  EXPECT_EQ(*Row(**plan, Good(), &here), *Row(**isolated, Good(), &there));
}

TEST_F(IsolationTest, AHeaderIsReadInTheWorkerToo) {
  // Opening looks at the first pictures, for their size.
  const auto plan = Compile({Doing("header:segv"), Good()}, Json::object(), &isolation_);

  ASSERT_OK(plan);
  EXPECT_EQ((*plan)->shapes()[0].shape, (std::vector<int64_t>{90, 70, 3}));
}

TEST_F(IsolationTest, OfAPictureThatBreaksItsDecoderNoRowIsAccepted) {
  // Some rows have come, but not for what is in the picture: another run might give fewer.
  const auto plan = Compile({Doing("header:")}, {{"damaged", "accept"}}, &isolation_);
  ASSERT_OK(plan);
  Worker worker(&isolation_);

  EXPECT_THAT(Row(**plan, Doing("segv"), &worker), IsBadSample(SampleReason::kUnsupported));
  EXPECT_EQ(worker.damaged_count, 0);
  EXPECT_OK(Row(**plan, Doing("nothing"), &worker));
}

}  // namespace
}  // namespace batchd
