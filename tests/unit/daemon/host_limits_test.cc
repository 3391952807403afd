// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/host_limits.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine with 8 cores and 16 GiB, in a folder.
class HostLimitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path() / "batchd_host_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    Write("/sys/devices/system/cpu/online", "0-5,8-9\n");
    Write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         100 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  std::string root_;
};

TEST_F(HostLimitsTest, WithoutCgroupsTheMachineIsTheLimit) {
  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.machine_cpus, 8);
  EXPECT_EQ(limits.allowed_cpus(), 8);
  EXPECT_EQ(limits.memory_total_bytes, 16 * kGiB);
  EXPECT_EQ(limits.cgroup_version, "none");
  EXPECT_EQ(limits.default_memory_bytes(), 8 * kGiB);
}

TEST_F(HostLimitsTest, AffinityBelowTheMachineIsTheLimit) {
  EXPECT_EQ(ReadHostLimits(root_, 3).allowed_cpus(), 3);
}

TEST_F(HostLimitsTest, AVersion2QuotaIsRoundedUp) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  Write("/sys/fs/cgroup/memory.max", std::to_string(4 * kGiB) + "\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.cgroup_version, "v2");
  EXPECT_EQ(limits.allowed_cpus(), 3);
  EXPECT_EQ(limits.cgroup_limit_bytes, 4 * kGiB);
  EXPECT_EQ(limits.default_memory_bytes(), 4 * kGiB / 10 * 8);
}

TEST_F(HostLimitsTest, AQuotaBelowOneCoreGivesOne) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "20000 100000\n");

  EXPECT_EQ(ReadHostLimits(root_, 8).allowed_cpus(), 1);
}

TEST_F(HostLimitsTest, MaxIsNoLimit) {
  Write("/proc/self/cgroup", "0::/user.slice\n");
  Write("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/user.slice/memory.max", "max\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.allowed_cpus(), 8);
  EXPECT_EQ(limits.cgroup_limit_bytes, 0);
}

TEST_F(HostLimitsTest, AParentsLowerLimitBinds) {
  Write("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  Write("/sys/fs/cgroup/slurm/cpu.max", "200000 100000\n");
  Write("/sys/fs/cgroup/slurm/job_7/memory.max", std::to_string(2 * kGiB) + "\n");
  Write("/sys/fs/cgroup/slurm/job_7/step_0/memory.max", std::to_string(6 * kGiB) + "\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.allowed_cpus(), 2);
  EXPECT_EQ(limits.cgroup_limit_bytes, 2 * kGiB);
}

TEST_F(HostLimitsTest, Version1IsRead) {
  Write("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "150000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", std::to_string(kGiB) + "\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.cgroup_version, "v1");
  EXPECT_EQ(limits.allowed_cpus(), 2);
  EXPECT_EQ(limits.cgroup_limit_bytes, kGiB);
}

TEST_F(HostLimitsTest, InAContainerWhoseCgroupIsTheMountTheHostsPathIsPassedOver) {
  Write("/proc/self/cgroup", "5:memory:/docker/abc\n4:cpu:/docker/abc\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(3 * kGiB) + "\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.allowed_cpus(), 4);
  EXPECT_EQ(limits.cgroup_limit_bytes, 3 * kGiB);
}

TEST_F(HostLimitsTest, Version1WithoutALimitIsNone) {
  Write("/proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.allowed_cpus(), 8);
  EXPECT_EQ(limits.cgroup_limit_bytes, 0);
}

TEST_F(HostLimitsTest, AMemoryLimitAboveTheMachineIsNone) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", std::to_string(64 * kGiB) + "\n");

  EXPECT_EQ(ReadHostLimits(root_, 8).default_memory_bytes(), 8 * kGiB);
}

TEST_F(HostLimitsTest, GarbageCountsAsNoLimit) {
  Write("/proc/self/cgroup", "nonsense\n0:\n0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "many some\n");
  Write("/sys/fs/cgroup/memory.max", "-5\n");

  const HostLimits limits = ReadHostLimits(root_, 8);

  EXPECT_EQ(limits.allowed_cpus(), 8);
  EXPECT_EQ(limits.cgroup_limit_bytes, 0);
}

TEST(HostLimitsOfThisProcessTest, AreSane) {
  const HostLimits limits = ReadHostLimits();

  EXPECT_GE(limits.allowed_cpus(), 1);
  EXPECT_GT(limits.default_memory_bytes(), 0);
  EXPECT_LE(limits.default_memory_bytes(), limits.memory_total_bytes);
}

TEST(ChooseMemoryTest, AboveTheCgroupIsRefusedWithBothNumbers) {
  HostLimits limits;
  limits.memory_total_bytes = 16 * kGiB;
  limits.cgroup_limit_bytes = 4 * kGiB;

  const auto memory = ChooseMemory(limits, 5 * kGiB);

  EXPECT_THAT(memory, FailsWith(absl::StatusCode::kResourceExhausted, "5368709120"));
  EXPECT_THAT(memory, FailsWith(absl::StatusCode::kResourceExhausted, "4294967296"));
  EXPECT_EQ(*ChooseMemory(limits, 4 * kGiB), 4 * kGiB);
  EXPECT_EQ(*ChooseMemory(limits, 0), limits.default_memory_bytes());
}

TEST(SplitMemoryTest, ThePartsAreTheWhole) {
  for (const int64_t bytes : {int64_t{16} << 20, kGiB + 7, 100 * kGiB}) {
    const MemorySplit split = SplitMemory(bytes);
    EXPECT_EQ(split.slab_bytes + split.scratch_bytes + split.encoded_bytes, bytes);
    EXPECT_GE(split.slab_bytes, bytes / 10 * 4);
    EXPECT_GT(split.scratch_bytes, 0);
  }
}

}  // namespace
}  // namespace batchd
