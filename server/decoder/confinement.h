// SPDX-License-Identifier: Apache-2.0
//
// Taking from a decode worker what decoding does not need: once confined, it can compute, have
// memory up to a limit, and talk over the socket that it has. It can open nothing, make no socket,
// start no program or thread and make no memory executable; the kernel ends it when it tries.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace batchd {

// Sanitizers need more than the allow-list has: their builds run workers unconfined.
#ifdef BATCHD_SANITIZED
inline constexpr bool kConfinesWorkers = false;
#else
inline constexpr bool kConfinesWorkers = true;
#endif

// Of the calling process, which has one thread, for the rest of its life: no core dumps, nobody
// attaches a debugger, at most `memory_bytes_max` more of address space than now, no new
// descriptor, no new privileges, and the allow-list of system calls. Receiving and sending stay
// allowed, and writing to standard error. Errors: UNAVAILABLE naming the call that the kernel
// refuses; the process is then half confined and ends.
absl::Status Confine(int64_t memory_bytes_max);

}  // namespace batchd
