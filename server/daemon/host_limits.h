// SPDX-License-Identifier: Apache-2.0
//
// What this process may use of the machine: CPUs by affinity and cgroup quota, memory by cgroup
// limit and MemTotal. Both versions of cgroups are read, up to the root, since a parent's limit
// binds too.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/decoder/isolated_decoder.h"

namespace batchd {

struct HostLimits {
  int machine_cpus = 1;            // online
  int affinity_cpus = 1;           // sched_getaffinity
  int quota_cpus = 0;              // cgroup CPU quota, rounded up; 0 for none
  int64_t memory_total_bytes = 0;  // MemTotal
  int64_t cgroup_limit_bytes = 0;  // the lowest cgroup memory limit; 0 for none below MemTotal
  std::string cgroup_version;      // "v2", "v1" or "none"

  // CPUs that may be used at once; at least 1.
  int allowed_cpus() const;
  // What the budgets together may never exceed.
  int64_t memory_ceiling_bytes() const;
  // 80 % of the cgroup limit, or half of MemTotal where there is none.
  int64_t default_memory_bytes() const;
};

// Reads below `root` ("/"; tests give a tree of their own). What cannot be read counts as no limit.
HostLimits ReadHostLimits(const std::string& root, int affinity_cpus);
// Of this process.
HostLimits ReadHostLimits();

// How the memory is divided: decode scratch 15 %, but 900 MiB where that is at most half of all;
// encoded bytes in flight 10 %; slabs the rest.
struct MemorySplit {
  int64_t slab_bytes = 0;
  int64_t scratch_bytes = 0;
  int64_t encoded_bytes = 0;
};
MemorySplit SplitMemory(int64_t memory_bytes);

// What decode workers may have: half of the encoded bytes, since they hold a copy of what is in
// flight, which leaves the daemon the other half; for decoding, all of the scratch at once, and
// what allocation loses on the way.
DecodeIsolationOptions IsolationOptions(const MemorySplit& split);

// The memory to use: `wanted_bytes`, or the default where that is 0. Errors: RESOURCE_EXHAUSTED if
// it is above the ceiling, with both numbers.
absl::StatusOr<int64_t> ChooseMemory(const HostLimits& limits, int64_t wanted_bytes);

// "1.5 GiB".
std::string HumanBytes(int64_t size_bytes);

}  // namespace batchd
