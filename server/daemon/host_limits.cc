// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/host_limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <vector>

#include "server/base/status.h"

namespace batchd {
namespace {

// v1 says "no limit" by a huge number of bytes, rounded to pages.
constexpr int64_t kNoLimitBytes = int64_t{1} << 60;
constexpr int kAffinityCpusMax = 8192;

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> ToInt(const std::string& word) {
  int64_t value = 0;
  const char* const end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

// The words of a file; none if it cannot be read.
std::vector<std::string> ReadWords(const std::string& path) {
  std::vector<std::string> words;
  std::istringstream text(ReadText(path).value_or(""));
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

// "0-3,8" → 5.
int CountCpuList(const std::string& list) {
  int count = 0;
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    while (!part.empty() && (part.back() == '\n' || part.back() == ' ')) part.pop_back();
    const size_t dash = part.find('-');
    const auto first = ToInt(part.substr(0, dash));
    const auto last = dash == std::string::npos ? first : ToInt(part.substr(dash + 1));
    if (first.has_value() && last.has_value()) count += static_cast<int>(*last - *first + 1);
  }
  return count;
}

int64_t ReadMemTotal(const std::string& root) {
  const std::vector<std::string> words = ReadWords(root + "/proc/meminfo");
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "MemTotal:") return ToInt(words[i + 1]).value_or(0) * 1024;
  }
  return 0;
}

// Our place in the hierarchies: from lines "0::/path" and "4:cpu,cpuacct:/path".
struct CgroupPaths {
  std::optional<std::string> unified;
  std::optional<std::string> cpu;
  std::optional<std::string> memory;
};

CgroupPaths ReadCgroupPaths(const std::string& root) {
  CgroupPaths paths;
  std::istringstream lines(ReadText(root + "/proc/self/cgroup").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") paths.unified = path;
    if (controllers.find(",cpu,") != std::string::npos) paths.cpu = path;
    if (controllers.find(",memory,") != std::string::npos) paths.memory = path;
  }
  return paths;
}

// Calls `fn` for the cgroup's folder and each of its parents, up to the mount. In a container the
// path may be the host's and not exist below the mount, which then is our own cgroup.
void ForEachLevel(const std::string& mount, std::string path,
                  const std::function<void(const std::string&)>& fn) {
  while (path.size() > 1) {
    fn(mount + path);
    path.resize(path.rfind('/'));
  }
  fn(mount);
}

void LowerTo(int64_t value, int64_t* lowest) {
  if (*lowest == 0 || value < *lowest) *lowest = value;
}

void TakeQuota(std::optional<int64_t> quota, std::optional<int64_t> period, int64_t* cpus) {
  if (!quota.has_value() || !period.has_value() || *quota <= 0 || *period <= 0) return;
  LowerTo((*quota + *period - 1) / *period, cpus);
}

void TakeMemory(const std::vector<std::string>& words, int64_t* limit_bytes) {
  if (words.empty()) return;
  const auto value = ToInt(words[0]);  // nothing for "max"
  if (value.has_value() && *value > 0 && *value < kNoLimitBytes) LowerTo(*value, limit_bytes);
}

void ReadUnified(const std::string& mount, const std::string& path, int64_t* cpus,
                 int64_t* memory_bytes) {
  ForEachLevel(mount, path, [&](const std::string& folder) {
    const std::vector<std::string> cpu = ReadWords(folder + "/cpu.max");
    if (cpu.size() == 2) TakeQuota(ToInt(cpu[0]), ToInt(cpu[1]), cpus);
    TakeMemory(ReadWords(folder + "/memory.max"), memory_bytes);
  });
}

void ReadVersion1(const std::string& mounts, const CgroupPaths& paths, int64_t* cpus,
                  int64_t* memory_bytes) {
  if (paths.cpu.has_value()) {
    for (const char* const name : {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu"}) {
      ForEachLevel(mounts + name, *paths.cpu, [&](const std::string& folder) {
        const std::vector<std::string> quota = ReadWords(folder + "/cpu.cfs_quota_us");
        const std::vector<std::string> period = ReadWords(folder + "/cpu.cfs_period_us");
        if (!quota.empty() && !period.empty()) TakeQuota(ToInt(quota[0]), ToInt(period[0]), cpus);
      });
    }
  }
  if (paths.memory.has_value()) {
    ForEachLevel(mounts + "/memory", *paths.memory, [&](const std::string& folder) {
      TakeMemory(ReadWords(folder + "/memory.limit_in_bytes"), memory_bytes);
    });
  }
}

}  // namespace

int HostLimits::allowed_cpus() const {
  const int cpus = quota_cpus > 0 ? std::min(affinity_cpus, quota_cpus) : affinity_cpus;
  return std::max(cpus, 1);
}

int64_t HostLimits::memory_ceiling_bytes() const {
  return cgroup_limit_bytes > 0 ? cgroup_limit_bytes : memory_total_bytes;
}

int64_t HostLimits::default_memory_bytes() const {
  return cgroup_limit_bytes > 0 ? cgroup_limit_bytes / 10 * 8 : memory_total_bytes / 2;
}

HostLimits ReadHostLimits(const std::string& root, int affinity_cpus) {
  HostLimits limits;
  limits.affinity_cpus = std::max(affinity_cpus, 1);
  const int online = CountCpuList(ReadText(root + "/sys/devices/system/cpu/online").value_or(""));
  limits.machine_cpus = online > 0 ? online : limits.affinity_cpus;
  limits.memory_total_bytes = ReadMemTotal(root);

  const CgroupPaths paths = ReadCgroupPaths(root);
  const std::string mounts = root + "/sys/fs/cgroup";
  int64_t cpus = 0;
  int64_t memory_bytes = 0;
  if (paths.unified.has_value()) {
    // The second place is that of a hybrid system.
    ReadUnified(mounts, *paths.unified, &cpus, &memory_bytes);
    ReadUnified(mounts + "/unified", *paths.unified, &cpus, &memory_bytes);
  }
  ReadVersion1(mounts, paths, &cpus, &memory_bytes);
  limits.quota_cpus = static_cast<int>(std::min<int64_t>(cpus, kAffinityCpusMax));
  const bool binds = limits.memory_total_bytes == 0 || memory_bytes < limits.memory_total_bytes;
  limits.cgroup_limit_bytes = binds ? memory_bytes : 0;
  limits.cgroup_version = paths.cpu || paths.memory ? "v1" : paths.unified ? "v2" : "none";
  return limits;
}

HostLimits ReadHostLimits() {
  int count = 1;
  cpu_set_t* const set = CPU_ALLOC(kAffinityCpusMax);
  const size_t size_bytes = CPU_ALLOC_SIZE(kAffinityCpusMax);
  if (sched_getaffinity(0, size_bytes, set) == 0) count = CPU_COUNT_S(size_bytes, set);
  CPU_FREE(set);
  return ReadHostLimits("", count);
}

MemorySplit SplitMemory(int64_t memory_bytes) {
  MemorySplit split;
  // Enough for one picture of the default max_pixels, where that is not half of all there is.
  constexpr int64_t kOnePictureBytes = int64_t{900} << 20;
  split.scratch_bytes =
      std::min(memory_bytes / 2, std::max(memory_bytes / 100 * 15, kOnePictureBytes));
  split.encoded_bytes = memory_bytes / 10;
  split.slab_bytes = memory_bytes - split.scratch_bytes - split.encoded_bytes;
  return split;
}

DecodeIsolationOptions IsolationOptions(const MemorySplit& split) {
  constexpr int64_t kLostBytes = int64_t{256} << 20;
  return {.encoded_bytes_max = split.encoded_bytes / 2,
          .memory_bytes_max = split.scratch_bytes + kLostBytes};
}

absl::StatusOr<int64_t> ChooseMemory(const HostLimits& limits, int64_t wanted_bytes) {
  const int64_t ceiling = limits.memory_ceiling_bytes();
  if (wanted_bytes == 0) return limits.default_memory_bytes();
  if (ceiling > 0 && wanted_bytes > ceiling) {
    return Err(
        absl::StatusCode::kResourceExhausted,
        "--memory={} ({}) is above {}, {} bytes ({}); lower --memory, or leave it out for {}",
        wanted_bytes, HumanBytes(wanted_bytes),
        limits.cgroup_limit_bytes > 0 ? "the cgroup's memory limit" : "the machine's memory",
        ceiling, HumanBytes(ceiling), HumanBytes(limits.default_memory_bytes()));
  }
  return wanted_bytes;
}

std::string HumanBytes(int64_t size_bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(size_bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} bytes", size_bytes)
                   : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace batchd
