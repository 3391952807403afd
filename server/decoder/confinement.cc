// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/confinement.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <fstream>
#include <vector>

#include "server/base/status.h"

namespace batchd {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;
#endif

// With any arguments.
constexpr uint32_t kAllowed[] = {
    SYS_recvfrom,       SYS_sendto,  // requests and answers
    SYS_munmap,         SYS_mremap,          SYS_brk,
    SYS_madvise,  // malloc
    SYS_futex,          SYS_getrandom,       SYS_clock_gettime,
    SYS_sysinfo,  // the C library; qsort asks for the last
    SYS_rt_sigprocmask, SYS_rt_sigaction,    SYS_getpid,
    SYS_gettid,  // abort, as tgkill below
    SYS_rt_sigreturn,   SYS_restart_syscall, SYS_exit,          SYS_exit_group,
};

// A program for the kernel that looks at one system call: 32-bit words of seccomp_data, of which an
// argument's lower half comes first on both architectures.
class Filter {
 public:
  Filter() {
    Load(offsetof(seccomp_data, arch));
    Add(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0);
    Return(SECCOMP_RET_KILL_PROCESS);
    Load(offsetof(seccomp_data, nr));
  }
  void Allow(uint32_t call) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    Return(SECCOMP_RET_ALLOW);
  }
  // If argument `i` is `value`, and argument `k` is `value_k`.
  void AllowIfEqual(uint32_t call, int i, uint32_t value, int k, uint32_t value_k) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 6);
    LoadArgument(i);
    Add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 3);
    LoadArgument(k);
    Add(BPF_JMP | BPF_JEQ | BPF_K, value_k, 0, 1);
    Return(SECCOMP_RET_ALLOW);
    Return(SECCOMP_RET_KILL_PROCESS);
  }
  void AllowIfEqual(uint32_t call, int i, uint32_t value) {
    AllowIfEqual(call, i, value, i, value);
  }
  // If argument `i` has none of `bits`.
  void AllowWithout(uint32_t call, int i, uint32_t bits) {
    Add(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    LoadArgument(i);
    Add(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1);
    Return(SECCOMP_RET_KILL_PROCESS);
    Return(SECCOMP_RET_ALLOW);
  }
  // From here on, for this process. False: errno says why not.
  bool Install() {
    Return(SECCOMP_RET_KILL_PROCESS);
    const sock_fprog program = {static_cast<unsigned short>(steps_.size()), steps_.data()};
    // Not seccomp(2), which a service manager's own filter may lack.
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

 private:
  void Add(uint32_t code, uint32_t k, uint8_t if_true = 0, uint8_t if_false = 0) {
    steps_.push_back({static_cast<uint16_t>(code), if_true, if_false, k});
  }
  void Load(size_t offset) { Add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
  void Return(uint32_t action) { Add(BPF_RET | BPF_K, action); }
  void LoadArgument(int i) { Load(offsetof(seccomp_data, args) + i * sizeof(uint64_t)); }

  std::vector<sock_filter> steps_;
};

bool AllowFewSystemCalls() {
  Filter filter;
  for (const uint32_t call : kAllowed) filter.Allow(call);
  filter.AllowWithout(SYS_mmap, 2, PROT_EXEC);
  filter.AllowWithout(SYS_mprotect, 2, PROT_EXEC);
  filter.AllowIfEqual(SYS_write, 0, STDERR_FILENO);
  filter.AllowIfEqual(SYS_writev, 0, STDERR_FILENO);
  // Of itself, for abort. With SIGKILL it could make believe that somebody else has ended it.
  filter.AllowIfEqual(SYS_tgkill, 0, static_cast<uint32_t>(getpid()), 2, SIGABRT);
  return filter.Install();
}

bool Limit(int resource, rlim_t most) {
  const rlimit limit = {most, most};
  return setrlimit(static_cast<__rlimit_resource_t>(resource), &limit) == 0;
}

}  // namespace

absl::Status Confine(int64_t memory_bytes_max) {
  const auto failed = [](const char* call) {
    return Err(absl::StatusCode::kUnavailable, "a decode worker cannot be confined: {}",
               ErrnoText(call, errno));
  };
  if (kArchitecture == 0) {
    return Err(absl::StatusCode::kUnavailable,
               "decode workers are confined on x86-64 and arm64 only; use --decode-isolation none");
  }
  int64_t pages = 0;
  if (!(std::ifstream("/proc/self/statm") >> pages)) return failed("read /proc/self/statm");
  const int64_t now_bytes = pages * sysconf(_SC_PAGESIZE);
  if (!Limit(RLIMIT_AS, now_bytes + memory_bytes_max)) return failed("setrlimit(RLIMIT_AS)");
  if (!Limit(RLIMIT_NOFILE, 0)) return failed("setrlimit(RLIMIT_NOFILE)");
  if (!Limit(RLIMIT_CORE, 0)) return failed("setrlimit(RLIMIT_CORE)");
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return failed("prctl(PR_SET_DUMPABLE)");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return failed("prctl(PR_SET_NO_NEW_PRIVS)");
  if (!AllowFewSystemCalls()) return failed("prctl(PR_SET_SECCOMP)");
  return absl::OkStatus();
}

}  // namespace batchd
