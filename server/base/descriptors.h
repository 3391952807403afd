// SPDX-License-Identifier: Apache-2.0
//
// File descriptors run out like memory, and who then goes on is no matter of luck: the last ones
// are for reading samples and for being watched. A client that would take one of them is refused,
// so that those who are there already keep what they have.

#pragma once

#include <string>

#include "absl/status/status.h"

namespace batchd {

// Keeps the last `count` of the descriptors that this process may have. Once, at the start.
// Errors: RESOURCE_EXHAUSTED if that leaves fewer than `least` from now on, with the numbers.
absl::Status ReserveDescriptors(int count, int least);

// Whether `fd`, just made, is one of those: the kernel gives the lowest number that is free. Never
// so before ReserveDescriptors. Thread-safe.
bool IsReserved(int fd);

// "the daemon may open 64 files, …", for who is refused.
std::string NoDescriptorText();

}  // namespace batchd
