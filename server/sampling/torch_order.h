// SPDX-License-Identifier: Apache-2.0
//
// The order of torch's DistributedSampler, bit for bit: torch.randperm(n) of a CPU generator that
// is seeded with seed + epoch.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace batchd {

using TorchOrder = std::shared_ptr<const std::vector<uint32_t>>;

// The permutation of [0, n). The generator uses the low 32 bits of `seed`, so `seed` is
// the sum of seed and epoch modulo 2^32. Takes O(n) time; those that are in use somewhere in the
// process are shared. Requires 0 < n <= kTorchSamplesMax. Thread-safe.
TorchOrder GetTorchOrder(int64_t n, uint32_t seed);

}  // namespace batchd
