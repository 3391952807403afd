// SPDX-License-Identifier: Apache-2.0
#include "server/base/descriptors.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>

#include "server/base/status.h"

namespace batchd {
namespace {

std::atomic<int> first_reserved{INT_MAX};

int DescriptorsMax() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return INT_MAX;
  return static_cast<int>(std::min<rlim_t>(files.rlim_cur, INT_MAX));
}

}  // namespace

absl::Status ReserveDescriptors(int count, int least) {
  const int lowest = dup(STDERR_FILENO);
  if (lowest >= 0) close(lowest);
  const int max = DescriptorsMax();
  if (lowest < 0 || max - count - lowest < least) {
    return Err(absl::StatusCode::kResourceExhausted,
               "the daemon may open {} files, which leaves too few for clients; raise `ulimit -n` "
               "to {} or more",
               max, std::max(lowest, 0) + count + least);
  }
  first_reserved.store(max - count);
  return absl::OkStatus();
}

bool IsReserved(int fd) { return fd >= first_reserved.load(std::memory_order_relaxed); }

std::string NoDescriptorText() {
  return fmt::format(
      "the daemon may open {} files, and none is left for another client; close some, or raise its "
      "`ulimit -n`",
      DescriptorsMax());
}

}  // namespace batchd
