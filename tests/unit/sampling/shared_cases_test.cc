// SPDX-License-Identifier: Apache-2.0
//
// The tables of the shared cases: which positions belong to which step and rank, and torch's order.
#include <filesystem>
#include <fstream>

#include "nlohmann/json.hpp"
#include "server/sampling/sampler.h"
#include "server/sampling/torch_order.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/base/sha256.h"

namespace batchd {
namespace {

using Json = nlohmann::json;

Json Load(const char* name) {
  std::ifstream file(std::string(BATCHD_CASES_DIR "/transforms/") + name);
  return Json::parse(file);
}

class SharedCasesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(BATCHD_CASES_DIR)) {
      GTEST_SKIP() << "the shared cases are not here: " << BATCHD_CASES_DIR;
    }
  }
  static std::shared_ptr<const Sampler> SamplerOf(const Json& entry, Shuffle shuffle) {
    const std::string policy = entry["policy"];
    const auto sampler = MakeSampler({.num_samples = entry["n"],
                                      .seed = 0,
                                      .shuffle = shuffle,
                                      .global_batch_size = entry["global_batch"],
                                      .last_batch = policy == "drop"  ? LastBatch::kDrop
                                                    : policy == "pad" ? LastBatch::kPad
                                                                      : LastBatch::kPartial});
    EXPECT_OK(sampler) << entry.dump();
    return *sampler;
  }
  static std::vector<SampleRow> RowsOf(const Sampler& sampler, int64_t step, int32_t rank,
                                       int32_t world) {
    std::vector<SampleRow> rows;
    sampler.Rows({0, step, rank, world}, &rows);
    return rows;
  }
  // [rank, begin, end, real]: positions [begin, end) of which `real` are below n.
  static void ExpectPart(const std::vector<SampleRow>& rows, int64_t n, int64_t begin, int64_t end,
                         int64_t real, const std::string& what) {
    ASSERT_EQ(static_cast<int64_t>(rows.size()), end - begin) << what;
    for (int64_t i = 0; i < end - begin; ++i) {
      const SampleRow want = {(begin + i) % n, static_cast<uint16_t>((begin + i) / n), i >= real};
      ASSERT_EQ(rows[static_cast<size_t>(i)], want) << what << " row " << i;
    }
  }
};

TEST_F(SharedCasesTest, SmallPartitions) {
  const Json cases = Load("partition.json")["small"];
  for (const Json& entry : cases) {
    if (entry["steps"] == 0) {  // an empty epoch is refused at open
      EXPECT_FALSE(MakeSampler({.num_samples = entry["n"],
                                .global_batch_size = entry["global_batch"],
                                .last_batch = LastBatch::kDrop})
                       .ok());
      continue;
    }
    const auto sampler = SamplerOf(entry, Shuffle::kNone);
    ASSERT_EQ(sampler->steps(0), entry["steps"]) << entry.dump();
    const int32_t world = entry["world_size"];
    for (int64_t step = 0; step < sampler->steps(0); ++step) {
      for (int32_t rank = 0; rank < world; ++rank) {
        std::vector<int64_t> positions, valid;
        for (const SampleRow& row : RowsOf(*sampler, step, rank, world)) {
          positions.push_back(row.ordinal);
          valid.push_back(row.is_pad ? 0 : 1);
        }
        ASSERT_EQ(Json(positions), entry["positions"][step][rank]) << entry.dump();
        ASSERT_EQ(Json(valid), entry["valid"][step][rank]) << entry.dump();
      }
    }
  }
}

TEST_F(SharedCasesTest, LargePartitions) {
  const Json cases = Load("partition.json")["large"];
  for (const Json& entry : cases) {
    const auto sampler = SamplerOf(entry, Shuffle::kNone);
    ASSERT_EQ(sampler->steps(0), entry["steps"]);
    for (const Json& part : entry["parts"]) {
      ExpectPart(RowsOf(*sampler, entry["step"], part[0], entry["world_size"]), entry["n"], part[1],
                 part[2], part[3], entry.dump());
    }
  }
}

TEST_F(SharedCasesTest, WorldsThatChangeOnTheWay) {
  const Json cases = Load("partition.json")["elastic"];
  for (const Json& entry : cases) {
    const auto sampler = SamplerOf(entry, Shuffle::kNone);
    for (const Json& run : entry["runs"]) {
      for (int32_t rank = 0; rank < run["world_size"]; ++rank) {
        const Json& part = run["parts"][rank];
        ExpectPart(RowsOf(*sampler, run["step"], rank, run["world_size"]), entry["n"], part[0],
                   part[1], part[2], run.dump());
      }
    }
  }
}

TEST_F(SharedCasesTest, WhereAPositionIs) {
  const Json cases = Load("partition.json")["locate"];
  for (const Json& entry : cases) {
    const int64_t position = entry["position"];
    const auto sampler =
        MakeSampler({.num_samples = position + 1000, .global_batch_size = entry["global_batch"]});
    ASSERT_OK(sampler);
    const auto rows = RowsOf(**sampler, entry["step"], entry["rank"], entry["world_size"]);
    ASSERT_EQ(rows.at(entry["row"]).ordinal, position) << entry.dump();
  }
}

// What each rank reads in torch: its rows, step after step. torch pads or cuts to a multiple of the
// world's size, which is what a global batch of one row a rank does; `drop` of fewer samples than
// ranks is an empty epoch there and refused here.
std::vector<std::vector<int64_t>> TorchRanks(const Json& entry) {
  const int32_t world = entry["world_size"];
  std::vector<std::vector<int64_t>> ranks(static_cast<size_t>(world));
  const auto sampler =
      MakeSampler({.num_samples = entry["n"],
                   .seed = entry["seed"],
                   .shuffle = Shuffle::kTorch,
                   .global_batch_size = world,
                   .last_batch = entry["drop_last"] ? LastBatch::kDrop : LastBatch::kPad});
  if (!sampler.ok()) return ranks;
  const int64_t epoch = entry["epoch"];
  std::vector<SampleRow> rows;
  for (int64_t step = 0; step < (*sampler)->steps(epoch); ++step) {
    for (int32_t rank = 0; rank < world; ++rank) {
      (*sampler)->Rows({epoch, step, rank, world}, &rows);
      for (const SampleRow& row : rows) ranks[static_cast<size_t>(rank)].push_back(row.ordinal);
    }
  }
  return ranks;
}

std::vector<int64_t> TorchOrderOf(const Json& entry) {
  const uint32_t seed =
      static_cast<uint32_t>(entry["seed"].get<uint64_t>() + entry["epoch"].get<uint64_t>());
  const TorchOrder order = GetTorchOrder(entry["n"], seed);
  return {order->begin(), order->end()};
}

TEST_F(SharedCasesTest, TorchsOrderOfFewSamples) {
  const Json cases = Load("order.json")["small"];
  for (const Json& entry : cases) {
    EXPECT_EQ(Json(TorchOrderOf(entry)), entry["order"]) << entry.dump();
    EXPECT_EQ(Json(TorchRanks(entry)), entry["ranks"]) << entry.dump();
  }
}

TEST_F(SharedCasesTest, TorchsOrderOfManySamples) {
  const Json table = Load("order.json");
  int64_t checked = 0;
  for (const auto& [name, entries] : table.items()) {
    if (name == "small" || !entries.is_array()) continue;
    for (const Json& entry : entries) {
      const std::vector<int64_t> order = TorchOrderOf(entry);
      EXPECT_EQ(Sha256OfWords(order), entry["order_sha256"]);
      const auto ranks = TorchRanks(entry);
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_EQ(ranks[rank].size(), entry["rank_length"].get<size_t>());
        EXPECT_EQ(Sha256OfWords(ranks[rank]), entry["rank_sha256"][rank]) << rank;
      }
      ++checked;
    }
  }
  EXPECT_GT(checked, 0);
}

TEST(TorchSamplerTest, RanksAreStridedInsideAGlobalBatchOfManyRowsARank) {
  const auto sampler = MakeSampler({.num_samples = 100,
                                    .seed = 3,
                                    .shuffle = Shuffle::kTorch,
                                    .global_batch_size = 12,
                                    .last_batch = LastBatch::kDrop});
  ASSERT_OK(sampler);
  const TorchOrder order = GetTorchOrder(100, 3 + 2);
  std::vector<SampleRow> rows;
  (*sampler)->Rows({2, 5, 1, 4}, &rows);
  ASSERT_EQ(rows.size(), 3u);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(rows[k].ordinal, (*order)[60 + 1 + 4 * k]);
}

TEST(TorchSamplerTest, KeepsTwoEpochsAndSharesThem) {
  const SamplerOptions options = {
      .num_samples = 1000, .shuffle = Shuffle::kTorch, .global_batch_size = 10};
  const auto a = MakeSampler(options);
  const auto b = MakeSampler(options);
  ASSERT_OK(a);
  ASSERT_OK(b);
  (*a)->PrepareEpoch(0);
  (*b)->PrepareEpoch(0);
  const TorchOrder shared = GetTorchOrder(1000, 0);
  EXPECT_EQ(shared.use_count(), 3);  // both samplers and this test
  (*a)->PrepareEpoch(1);
  (*a)->PrepareEpoch(2);
  EXPECT_FALSE((*a)->IsPrepared(0));
  EXPECT_TRUE((*a)->IsPrepared(1));
  EXPECT_TRUE((*a)->IsPrepared(2));
  EXPECT_EQ(shared.use_count(), 2);
}

}  // namespace
}  // namespace batchd
