// SPDX-License-Identifier: Apache-2.0
#include "server/memory/budget.h"

#include "server/base/check.h"
#include "server/base/status.h"

namespace batchd {

bool Budget::TryTake(int64_t size_bytes) {
  int64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (size_bytes > limit_bytes_ - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes, std::memory_order_relaxed));
  if (watch_) watch_(size_bytes);
  return true;
}

absl::Status Budget::Take(int64_t size_bytes) {
  if (TryTake(size_bytes)) return absl::OkStatus();
  return Err(absl::StatusCode::kResourceExhausted, "{} bytes of {} are needed, {} of {} are in use",
             size_bytes, name_, used_bytes(), limit_bytes_);
}

void Budget::Give(int64_t size_bytes) {
  const int64_t before = used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
  BATCHD_CHECK(before >= size_bytes);
  if (watch_) watch_(-size_bytes);
}

}  // namespace batchd
