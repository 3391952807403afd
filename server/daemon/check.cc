// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "server/daemon/commands.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/host_limits.h"

namespace batchd {
namespace {

constexpr rlim_t kFilesWanted = 4096;

// One line for each check; remembers whether any has failed.
class Report {
 public:
  void Line(bool ok, std::string_view what, const std::string& text) {
    failed_ = failed_ || !ok;
    std::cout << fmt::format("{:<4}  {:<10} {}\n", ok ? "ok" : "FAIL", what, text);
  }
  // Good to have: its lack is no failure.
  void Note(bool ok, std::string_view what, const std::string& text) {
    std::cout << fmt::format("{:<4}  {:<10} {}\n", ok ? "ok" : "note", what, text);
  }
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

void CheckHost(const HostLimits& host, Report* report) {
  report->Note(host.allowed_cpus() == host.machine_cpus, "cores",
               fmt::format("{} allowed of {} (affinity {}, cgroup quota {})", host.allowed_cpus(),
                           host.machine_cpus, host.affinity_cpus,
                           host.quota_cpus > 0 ? std::to_string(host.quota_cpus) : "none"));
  report->Line(host.memory_total_bytes > 0, "memory", HumanBytes(host.memory_total_bytes));
  report->Line(
      true, "cgroup",
      fmt::format("{}, memory limit {}", host.cgroup_version,
                  host.cgroup_limit_bytes > 0 ? HumanBytes(host.cgroup_limit_bytes) : "none"));
}

void CheckKernel(Report* report) {
  // Shared memory is asked for where it is made; here only whether the kernel has the call.
  const long memfd = syscall(SYS_memfd_create, "batchd-check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  report->Line(memfd >= 0, "memfd",
               memfd >= 0 ? "sealed shared memory" : ErrnoText("memfd_create", errno));
  if (memfd >= 0) close(static_cast<int>(memfd));

  open_how how{};
  how.flags = O_RDONLY | O_CLOEXEC | O_DIRECTORY;
  how.resolve = RESOLVE_BENEATH;
  const long opened = syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));
  report->Note(opened >= 0, "openat2",
               opened >= 0 ? "opening beneath a root" : ErrnoText("openat2", errno));
  if (opened >= 0) close(static_cast<int>(opened));

  const long pidfd = syscall(SYS_pidfd_open, getpid(), 0);
  report->Note(pidfd >= 0, "pidfd",
               pidfd >= 0
                   ? "dead clients are seen at once"
                   : ErrnoText("pidfd_open", errno) + "; dead clients are seen by end of file");
  if (pidfd >= 0) close(static_cast<int>(pidfd));

  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  report->Line(
      files.rlim_max >= kFilesWanted, "files",
      fmt::format("{} descriptors at most, {} or more wanted", files.rlim_max, kFilesWanted));
}

void CheckSocket(const std::string& path, Report* report) {
  const size_t length_max = sizeof(sockaddr_un{}.sun_path) - 1;
  const std::string folder = std::filesystem::path(path).parent_path();
  if (path.size() + std::string_view(".grpc").size() > length_max) {
    report->Line(false, "socket",
                 fmt::format("{}.grpc has {} bytes, a Unix socket's path at most {}", path,
                             path.size() + 5, length_max));
  } else if (access(folder.c_str(), W_OK | X_OK) != 0) {
    report->Line(false, "socket", fmt::format("{}: {}", folder, ErrnoText("access", errno)));
  } else {
    report->Line(true, "socket", path);
  }
}

void CheckIsolation(const MemorySplit& split, Report* report) {
  Metrics metrics;
  const absl::Status started = DecodeIsolation(IsolationOptions(split), &metrics).Check();
  report->Line(
      started.ok(), "isolation",
      started.ok() ? "decode workers start and are confined" : std::string(started.message()));
}

}  // namespace

int RunCheck(const RawFlags& flags, const EnvReader& env) {
  Report report;
  const HostLimits host = ReadHostLimits();
  CheckHost(host, &report);
  CheckKernel(&report);

  // `check` is also asked about a host alone: without an address to listen at.
  RawFlags all = flags;
  const auto typed = [&flags](const char* name) {
    const auto it = flags.find(name);
    return it != flags.end() && !it->second.empty();
  };
  const bool host_only = !typed("listen") && !typed("config") &&
                         !env("BATCHD_LISTEN").has_value() && !env("BATCHD_CONFIG").has_value();
  if (host_only) all["listen"] = {"unix:/tmp/batchd-check"};
  const absl::StatusOr<ServeConfig> config = ResolveServeConfig(all, env);
  if (!config.ok()) {
    report.Line(false, "config", std::string(config.status().message()));
    return config.status().code() == absl::StatusCode::kFailedPrecondition ? kExitConfig
                                                                           : kExitFailed;
  }
  report.Line(
      true, "config",
      fmt::format("{} roots, {} named datasets", config->roots.size(), config->datasets.size()));
  if (!host_only) {
    for (const std::string& path : config->sockets) CheckSocket(path, &report);
  }
  const absl::StatusOr<int64_t> memory = ChooseMemory(host, config->memory_bytes);
  if (memory.ok()) {
    const MemorySplit split = SplitMemory(*memory);
    report.Line(true, "budget",
                fmt::format("{} = slabs {} + decode scratch {} + encoded {}; {} CPU threads",
                            HumanBytes(*memory), HumanBytes(split.slab_bytes),
                            HumanBytes(split.scratch_bytes), HumanBytes(split.encoded_bytes),
                            config->cpus > 0 ? config->cpus : host.allowed_cpus()));
    if (config->isolates_decoding) CheckIsolation(split, &report);
  } else {
    report.Line(false, "budget", std::string(memory.status().message()));
  }
  return report.failed() ? kExitFailed : kExitOk;
}

}  // namespace batchd
