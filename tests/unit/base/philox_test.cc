// SPDX-License-Identifier: Apache-2.0
#include "server/base/philox.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/base/hash.h"
#include "tests/unit/base/sha256.h"

namespace batchd {
namespace {

using Json = nlohmann::json;

std::vector<uint32_t> WordsOf(const std::string& text) {
  std::istringstream stream(text);
  std::vector<uint32_t> words;
  for (std::string word; stream >> word;) {
    words.push_back(static_cast<uint32_t>(std::stoul(word, nullptr, 16)));
  }
  return words;
}

TEST(Sha256Test, GivesThePublishedSums) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(PhiloxTest, GivesTheVectorsOfItsAuthors) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(PhiloxTest, GivesTheSharedVectorsAndRuns) {
  if (!std::filesystem::exists(BATCHD_CASES_DIR)) {
    GTEST_SKIP() << "the shared cases are not here: " << BATCHD_CASES_DIR;
  }
  std::ifstream file(BATCHD_CASES_DIR "/transforms/philox.json");
  const Json table = Json::parse(file);
  for (const Json& vector : table["vectors"]) {
    const auto c = WordsOf(vector["counter"]), k = WordsOf(vector["key"]);
    const auto out = WordsOf(vector["out"]);
    EXPECT_EQ(Philox4x32({c[0], c[1], c[2], c[3]}, {k[0], k[1]}),
              (PhiloxWords{out[0], out[1], out[2], out[3]}))
        << vector.dump();
  }
  for (const Json& run : table["runs"]) {
    uint32_t count = 0;
    const std::string counters = run["counters"];
    ASSERT_EQ(sscanf(counters.c_str(), "(i, 0, 0, 0) for i below %u", &count), 1) << counters;
    const auto k = WordsOf(run["key"]);
    std::vector<uint32_t> words;
    for (uint32_t i = 0; i < count; ++i) {
      for (const uint32_t word : Philox4x32({i, 0, 0, 0}, {k[0], k[1]})) words.push_back(word);
    }
    EXPECT_EQ(Sha256OfWords(words), run["sha256"]) << run.dump();
  }
}

TEST(DrawsTest, TheCounterIsThatOfTheDesign) {
  // Ordinal low; ordinal high and occurrence; epoch; op id and draw. Key: the seed, low word first.
  const Draws draws(DrawKey{.seed = 0x0123456789abcdef,
                            .ordinal = 0x7fff12345678,
                            .occurrence = 0x0203,
                            .epoch = 0x04050607,
                            .op_id = 0x0809});
  EXPECT_EQ(draws.U32At(0x0a0b), Philox4x32({0x12345678, 0x7fff0203, 0x04050607, 0x08090a0b},
                                            {0x89abcdef, 0x01234567})[0]);
}

TEST(DrawsTest, EveryPartOfTheKeyMatters) {
  std::set<uint32_t> seen;
  for (const DrawKey& key : {DrawKey{}, DrawKey{.seed = 1}, DrawKey{.seed = uint64_t{1} << 32},
                             DrawKey{.ordinal = 1}, DrawKey{.ordinal = uint64_t{1} << 32},
                             DrawKey{.occurrence = 1}, DrawKey{.epoch = 1}, DrawKey{.op_id = 1}}) {
    seen.insert(Draws(key).U32At(0));
    seen.insert(Draws(key).U32At(1));
  }
  EXPECT_EQ(seen.size(), 16u);
}

TEST(DrawsTest, ComeInOrder) {
  Draws draws(DrawKey{.seed = 5});
  const Draws at(DrawKey{.seed = 5});
  EXPECT_EQ(draws.NextU32(), at.U32At(0));
  EXPECT_EQ(draws.NextUniform(), at.U32At(1) / 4294967296.0);
  EXPECT_EQ(draws.NextUniform(2, 6), 2 + 4 * (at.U32At(2) / 4294967296.0));
  EXPECT_EQ(draws.NextBelow(10), static_cast<uint32_t>(at.U32At(3) * uint64_t{10} >> 32));
}

TEST(DrawsTest, IntegersBelowNAreSpreadEvenly) {
  Draws draws(DrawKey{.seed = 1});
  int counts[5] = {};
  for (int i = 0; i < 50'000; ++i) ++counts[draws.NextBelow(5)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 450);  // five standard deviations
}

TEST(HashTest, IsXxhash) {
  EXPECT_EQ(Xxh32(""), 0x02CC5D05u);  // published for seed 0
  EXPECT_EQ(Xxh32("abc"), 0x32D153FFu);
  EXPECT_EQ(Xxh3("", 0), 0x2D06800538D394C2u);
}

TEST(FingerprinterTest, TellsHowBytesAreParted) {
  const auto print = [](std::initializer_list<std::string_view> parts) {
    Fingerprinter fingerprinter;
    for (const std::string_view part : parts) fingerprinter.Add(part);
    return fingerprinter.Hex();
  };
  EXPECT_EQ(print({"ab", "c"}), print({"ab", "c"}));
  EXPECT_NE(print({"ab", "c"}), print({"a", "bc"}));
  EXPECT_NE(print({"ab"}), print({"ab", ""}));
  EXPECT_EQ(print({}).size(), 32u);
  EXPECT_EQ(print({}).find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace batchd
