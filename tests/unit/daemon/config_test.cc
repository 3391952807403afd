// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using ::testing::ElementsAre;

constexpr auto kUsage = absl::StatusCode::kInvalidArgument;
constexpr auto kFile = absl::StatusCode::kFailedPrecondition;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "batchd_config_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = std::filesystem::canonical(pattern);
    flags_["listen"] = {"unix:/tmp/x.sock"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Writes the configuration file and names it in --config.
  void WriteFile(const std::string& text) {
    std::ofstream(folder_ + "/batchd.json") << text;
    flags_["config"] = {folder_ + "/batchd.json"};
  }
  absl::StatusOr<ServeConfig> Resolve() {
    return ResolveServeConfig(flags_, [this](const std::string& name) {
      const auto it = env_.find(name);
      return it == env_.end() ? std::nullopt : std::optional<std::string>(it->second);
    });
  }

  std::string folder_;
  RawFlags flags_;
  std::map<std::string, std::string> env_;
};

TEST_F(ConfigTest, DefaultsAreThoseOfTheHelp) {
  const auto config = Resolve();

  ASSERT_OK(config);
  EXPECT_THAT(config->sockets, ElementsAre("/tmp/x.sock"));
  EXPECT_EQ(config->http, "127.0.0.1:9475");
  EXPECT_EQ(config->cpus, 0);
  EXPECT_EQ(config->memory_bytes, 0);
  EXPECT_EQ(config->drain_timeout_seconds, 30);
  EXPECT_FALSE(config->is_private);
}

TEST_F(ConfigTest, AFlagWinsOverAVariableAndThatOverTheFile) {
  WriteFile(R"({"cpus": 1, "memory": "1G", "drain_timeout": 7, "log_format": "json"})");
  env_ = {{"BATCHD_CPUS", "2"}, {"BATCHD_MEMORY", "2G"}};
  flags_["cpus"] = {"3"};

  const auto config = Resolve();

  ASSERT_OK(config);
  EXPECT_EQ(config->cpus, 3);
  EXPECT_EQ(config->memory_bytes, int64_t{2} << 30);
  EXPECT_EQ(config->drain_timeout_seconds, 7);
  EXPECT_TRUE(config->json_log);
}

TEST_F(ConfigTest, TheFileMayComeFromAVariable) {
  WriteFile(R"({"cpus": 5})");
  env_["BATCHD_CONFIG"] = flags_["config"].front();
  flags_.erase("config");

  EXPECT_EQ(Resolve()->cpus, 5);
}

TEST_F(ConfigTest, AFaultNamesWhereTheValueCameFrom) {
  flags_["cpus"] = {"0"};
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "--cpus=0: must be a whole number from 1 to 1024"));
  flags_.erase("cpus");
  env_["BATCHD_CPUS"] = "two";
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "BATCHD_CPUS=two"));
  env_.clear();
  WriteFile(R"({"cpus": 1.5})");
  EXPECT_THAT(Resolve(), FailsWith(kFile, "batchd.json: \"cpus\": 1.5"));
}

TEST_F(ConfigTest, AnUnknownKeyIsRefusedWithTheKeyAndTheFile) {
  WriteFile(R"({"cpu": 2})");

  const auto config = Resolve();

  EXPECT_THAT(config, FailsWith(kFile, folder_ + "/batchd.json: unknown key \"cpu\""));
  EXPECT_THAT(config, FailsWith(kFile, "drain_timeout"));
}

TEST_F(ConfigTest, AFileThatIsNoObjectOfSettingsIsRefused) {
  for (const char* const text : {"", "{", "[]", "3", "{\"cpus\": {}}", "{\"cpus\": [1]}"}) {
    WriteFile(text);
    EXPECT_THAT(Resolve(), FailsWith(kFile, "batchd.json")) << text;
  }
  flags_["config"] = {folder_ + "/none.json"};
  EXPECT_THAT(Resolve(), FailsWith(kFile, "none.json: open: No such file"));
}

TEST_F(ConfigTest, NamedDatasetsAreChecked) {
  WriteFile(R"({"datasets": {"train": {"kind": "ImageFolder", "arguments": {"root": "/data"}}}})");
  const auto config = Resolve();
  ASSERT_OK(config);
  ASSERT_EQ(config->datasets.size(), 1u);
  EXPECT_EQ(config->datasets[0].first, "train");
  EXPECT_EQ(config->datasets[0].second.name, "ImageFolder");

  for (const char* const wrong : {R"({"kind": "NoSuch"})", R"({"kind": "ImageFolder"})", "{}", "7",
                                  R"({"kind": "ImageFolder", "arguments": {"root": "/d"}, "x": 1})",
                                  R"({"kind": "ImageFolder", "arguments": {"rot": "/d"}})"}) {
    WriteFile(fmt::format(R"({{"datasets": {{"train": {}}}}})", wrong));
    EXPECT_THAT(Resolve(), FailsWith(kFile, "\"train\"")) << wrong;
  }
}

TEST_F(ConfigTest, TcpWantsTrustToBeSaid) {
  flags_["listen"] = {"127.0.0.1:0"};
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "--i-trust-this-network"));

  flags_["i-trust-this-network"] = {"true"};

  const auto config = Resolve();
  ASSERT_OK(config);
  EXPECT_THAT(config->tcp, ElementsAre("127.0.0.1:0"));
}

TEST_F(ConfigTest, WhatIsNoAddressIsRefused) {
  flags_["i-trust-this-network"] = {"true"};
  for (const char* const address : {"unix:", "/tmp/x", "host", "host:", ":80", "host:65536"}) {
    flags_["listen"] = {address};
    EXPECT_THAT(Resolve(), FailsWith(kUsage, std::string("--listen=") + address)) << address;
  }
  flags_["listen"].clear();
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "--listen is missing"));
}

TEST_F(ConfigTest, APrivateDaemonTakesAnyHttpPortAndNoTcp) {
  flags_["private"] = {"true"};
  env_["BATCHD_PRIVATE_LINGER_SECONDS"] = "1.5";
  const auto config = Resolve();
  ASSERT_OK(config);
  EXPECT_EQ(config->http, "127.0.0.1:0");
  EXPECT_EQ(config->private_linger_seconds, 1.5);

  flags_["listen"].push_back("127.0.0.1:0");
  flags_["i-trust-this-network"] = {"true"};
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "--private"));
}

TEST_F(ConfigTest, RootsAreExistingFoldersAndMadeAbsolute) {
  std::filesystem::create_directory(folder_ + "/data");
  flags_["root"] = {folder_ + "/./data/../data"};
  EXPECT_THAT(Resolve()->roots, ElementsAre(folder_ + "/data"));

  flags_["root"] = {folder_ + "/none"};
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "/none: is no folder"));
}

TEST_F(ConfigTest, MemoryBelowAWorkingSizeIsRefused) {
  flags_["memory"] = {"1M"};
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "--memory=1M: must be"));
}

TEST_F(ConfigTest, DecodingIsIsolatedWhereThatIsSaid) {
  EXPECT_FALSE(Resolve()->isolates_decoding);
  env_["BATCHD_DECODE_ISOLATION"] = "process";
  EXPECT_TRUE(Resolve()->isolates_decoding);
  flags_["decode-isolation"] = {"none"};
  EXPECT_FALSE(Resolve()->isolates_decoding);
  flags_["decode-isolation"] = {"thread"};
  EXPECT_THAT(Resolve(), FailsWith(kUsage, "--decode-isolation=thread: must be none or process"));
}

TEST(ParseBytesTest, SuffixesArePowersOf1024) {
  EXPECT_EQ(ParseBytes("4096"), 4096);
  EXPECT_EQ(ParseBytes("64M"), int64_t{64} << 20);
  EXPECT_EQ(ParseBytes("3g"), int64_t{3} << 30);
  for (const char* const wrong : {"", "M", "1.5G", "1GB", "-1", "9999999999T", "0x10"}) {
    EXPECT_EQ(ParseBytes(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace batchd
