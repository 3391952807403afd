// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/batch.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/unit/pipeline/pipeline_rig.h"

namespace batchd {
namespace {

constexpr auto kOk = wire::RowStatus::kOk;

class BatchTest : public testing::Test {
 protected:
  // Writes `value` over the row and ends it.
  void Finish(Batch* batch, int64_t row, uint8_t value, wire::RowStatus status = kOk) {
    for (int i = 0; i < rig_.plan.pipeline->column_count(); ++i) {
      std::memset(rig_.plan.layout.row(batch->slab(), i, row), value,
                  static_cast<size_t>(rig_.plan.layout.columns()[i].row_size_bytes));
    }
    batch->FinishRow(row, 100 + row, status);
  }

  PipelineRig rig_{/*sample_count=*/10, /*batch_size=*/6};
  std::atomic<int> done_{0};
  std::unique_ptr<Batch> batch_ = rig_.MakeBatch(0, [this](Batch*) { ++done_; });
};

TEST_F(BatchTest, TheOrderInWhichRowsEndDoesNotShow) {
  auto other = rig_.MakeBatch(1, [](Batch*) {});
  batch_->Begin({0, 0, 0, 1});
  other->Begin({0, 0, 0, 1});

  for (int64_t row = 0; row < 6; ++row) Finish(batch_.get(), row, static_cast<uint8_t>(row));
  for (const int64_t row : {4, 1, 5, 0, 3, 2}) {
    Finish(other.get(), row, static_cast<uint8_t>(row));
  }

  EXPECT_EQ(rig_.Content(*batch_), rig_.Content(*other));
  EXPECT_EQ(done_, 1);
}

TEST_F(BatchTest, AShorterBatchLeavesNothingOfTheOneBefore) {
  auto fresh = rig_.MakeBatch(1, [](Batch*) {});
  batch_->Begin({0, 0, 0, 1});
  for (int64_t row = 0; row < 6; ++row) Finish(batch_.get(), row, 0xAA);

  for (Batch* batch : {batch_.get(), fresh.get()}) {
    batch->Begin({0, 1, 0, 1});  // four rows
    ASSERT_EQ(batch->rows().size(), 4u);
    for (int64_t row = 0; row < 4; ++row) Finish(batch, row, 0x55);
  }

  EXPECT_EQ(rig_.Content(*batch_), rig_.Content(*fresh));
}

TEST_F(BatchTest, TheLowestRowsFaultIsReportedWhicheverComesFirst) {
  for (const std::vector<int64_t>& order : {std::vector<int64_t>{1, 4}, {4, 1}}) {
    batch_->Begin({0, 0, 0, 1});
    for (const int64_t row : order) {
      batch_->FailRow(row, 100 + row, Err(absl::StatusCode::kDataLoss, "row {}", row));
    }
    for (const int64_t row : {0, 2, 3, 5}) Finish(batch_.get(), row, 0);

    ASSERT_TRUE(batch_->failure().has_value());
    EXPECT_EQ(batch_->failure()->row, 1);
    EXPECT_EQ(batch_->failure()->ordinal, 101);
  }
  batch_->Begin({0, 0, 0, 1});
  for (int64_t row = 0; row < 6; ++row) Finish(batch_.get(), row, 0);
  EXPECT_FALSE(batch_->failure().has_value()) << "a fault of the batch before";
  EXPECT_EQ(done_, 3);
}

TEST_F(BatchTest, ABatchWithoutRowsEndsAsItBegins) {
  batch_->Begin({0, 1, 7, 8});  // ranks 6 and 7 of 8 have nothing of the last four rows

  EXPECT_TRUE(batch_->rows().empty());
  EXPECT_EQ(done_, 1);
  EXPECT_EQ(batch_->valid_rows(), 0);
}

TEST_F(BatchTest, CountsValidRowsOnly) {
  batch_->Begin({0, 0, 0, 1});
  Finish(batch_.get(), 0, 0, wire::RowStatus::kSkipped);
  Finish(batch_.get(), 1, 0, wire::RowStatus::kSubstituted);
  for (int64_t row = 2; row < 6; ++row) Finish(batch_.get(), row, 0);

  EXPECT_EQ(batch_->valid_rows(), 5);
  EXPECT_EQ(std::count(batch_->row_status().begin(), batch_->row_status().end(), kOk), 4);
}

TEST_F(BatchTest, ManyThreadsEndItOnce) {
  for (int round = 1; round <= 200; ++round) {
    batch_->Begin({0, 0, 0, 1});
    std::vector<std::thread> threads;
    for (int64_t row = 0; row < 6; ++row) {
      threads.emplace_back([&, row] {
        if (row == 2) {
          batch_->DropRow();
        } else if (row == 3) {
          batch_->FailRow(row, row, absl::DataLossError("bad"));
        } else {
          Finish(batch_.get(), row, 1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(done_, round);
    ASSERT_EQ(batch_->valid_rows(), 4);
  }
}

}  // namespace
}  // namespace batchd
