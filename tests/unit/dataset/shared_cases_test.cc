// SPDX-License-Identifier: Apache-2.0
//
// The group `dir` of the shared cases: trees of folders in tars.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "server/dataset/dataset.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/source/temp_folder.h"

namespace batchd {
namespace {

// tar -xf, as the cases' README says.
bool Unpack(const std::string& tar, const std::string& folder) {
  const char* arguments[] = {"tar", "-xf", tar.c_str(), "-C", folder.c_str(), nullptr};
  pid_t pid = 0;
  if (posix_spawnp(&pid, "tar", nullptr, nullptr, const_cast<char**>(arguments), environ) != 0) {
    return false;
  }
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool IsOneOf(const Json& names, const absl::Status& status) {
  return std::any_of(names.begin(), names.end(), [&](const Json& name) {
    return std::string(status.message()).find(name.get<std::string>()) != std::string::npos;
  });
}

void ExpectDataset(const Dataset& dataset, const Json& expect) {
  std::vector<std::string> classes;
  for (int64_t i = 0; i < dataset.num_classes(); ++i) classes.push_back(dataset.ClassName(i));
  EXPECT_EQ(Json(classes), expect["classes"]);
  Json samples = Json::array();
  const Json bad = expect.value("bad_samples", Json::object());
  const Json may_also = expect.value("may_also", Json::array());
  const Json not_samples = expect.value("not_samples", Json::array());
  int64_t bad_listed = 0;
  for (int64_t i = 0; i < dataset.num_samples(); ++i) {
    const std::string name = dataset.NameOf(i);
    EXPECT_EQ(std::count(not_samples.begin(), not_samples.end(), name), 0) << name;
    SampleLocation location;
    ReadBuffer buffer;
    dataset.Locate(i, &location);
    const absl::Status status = dataset.source()->Read(location, size_t{1} << 30, &buffer);
    if (bad.contains(name)) {
      ++bad_listed;
      EXPECT_TRUE(status.ok() || IsOneOf(bad[name], status)) << name << ": " << status;
      continue;
    }
    EXPECT_OK(status) << name;
    const Json sample = {name, dataset.LabelOf(i)};
    const bool is_extra = std::any_of(may_also.begin(), may_also.end(), [&](const Json& also) {
      return also == sample || also == name;
    });
    if (!is_extra) samples.push_back(sample);
  }
  EXPECT_TRUE(bad_listed == static_cast<int64_t>(bad.size()) || !dataset.warnings().empty());
  EXPECT_EQ(samples, expect["samples"]);
}

TEST(SharedFolderCasesTest, AllOfThem) {
  if (!std::filesystem::exists(BATCHD_CASES_DIR)) {
    GTEST_SKIP() << "the shared cases are not here: " << BATCHD_CASES_DIR;
  }
  std::ifstream file(BATCHD_CASES_DIR "/expected.json");
  const Json table = Json::parse(file);
  int count = 0;
  for (const Json& entry : table["cases"]) {
    if (entry["group"] != "dir") continue;
    ++count;
    SCOPED_TRACE(entry["id"].get<std::string>());
    TempFolder folder;
    ASSERT_TRUE(Unpack(BATCHD_CASES_DIR "/" + entry["file"].get<std::string>(), folder.str()));
    const Json& expect = entry["expect"];
    const std::string root =
        expect.contains("root") ? folder / expect["root"].get<std::string>() : folder.str();
    const auto dataset = FindDataset("ImageFolder")->open({{"root", root}}, {});
    if (expect["result"] == "ok") {
      ASSERT_OK(dataset);
      ExpectDataset(**dataset, expect);
    } else {
      EXPECT_TRUE(IsOneOf(expect["error"], dataset.status())) << dataset.status();
    }
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace batchd
