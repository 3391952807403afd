// SPDX-License-Identifier: Apache-2.0
#include "server/sampling/torch_order.h"

#include <map>
#include <random>
#include <utility>

#include "server/base/sync.h"

namespace batchd {
namespace {

std::vector<uint32_t> MakeTorchOrder(int64_t n, uint32_t seed) {
  std::vector<uint32_t> order(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
  std::mt19937 words(seed);
  for (size_t i = 0; i + 1 < order.size(); ++i) {
    const size_t j = i + words() % static_cast<uint32_t>(order.size() - i);
    std::swap(order[i], order[j]);
  }
  return order;
}

// The orders that some sampler holds: ranks and sessions of one job share theirs.
struct Registry {
  Mutex mu;
  std::map<std::pair<int64_t, uint32_t>, std::weak_ptr<const std::vector<uint32_t>>> orders
      ABSL_GUARDED_BY(mu);
};

Registry& TheRegistry() {
  static auto* registry = new Registry;  // never destroyed: samplers may outlive static objects
  return *registry;
}

}  // namespace

TorchOrder GetTorchOrder(int64_t n, uint32_t seed) {
  Registry& registry = TheRegistry();
  // Held while the order is made: whoever wants the same one waits for it and makes no second.
  MutexLock lock(&registry.mu);
  std::erase_if(registry.orders, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = registry.orders[{n, seed}];
  TorchOrder order = entry.lock();
  if (order == nullptr) {
    // Not make_shared: the weak pointer must not keep the array's memory.
    order = TorchOrder(new const std::vector<uint32_t>(MakeTorchOrder(n, seed)));
    entry = order;
  }
  return order;
}

}  // namespace batchd
