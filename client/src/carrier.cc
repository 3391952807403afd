// SPDX-License-Identifier: Apache-2.0
#include "client/src/carrier.h"

#include <algorithm>
#include <cstdlib>

#include "proto/shm/slab.h"

namespace batchd::internal {
namespace {

// Memory that belongs to the batches that lie in it, and to no daemon.
class HeapLender final : public Lender {
 public:
  explicit HeapLender(uint8_t* data) : data_(data) {}
  ~HeapLender() override { std::free(data_); }
  HeapLender(const HeapLender&) = delete;
  HeapLender& operator=(const HeapLender&) = delete;
  void GiveBack(const wire::Record&, bool) override {}

 private:
  uint8_t* const data_;
};

}  // namespace

Result<Slab> MakeHeapSlab(size_t size_bytes) {
  const size_t unit = wire::kSlabAlignment;
  const size_t rounded = (std::max<size_t>(size_bytes, 1) + unit - 1) / unit * unit;
  auto* const data = static_cast<uint8_t*>(std::aligned_alloc(unit, rounded));
  if (data == nullptr) {
    return MakeError(ErrorKind::kOther, StatusCode::kResourceExhausted,
                     Cat("no memory for a batch of ", size_bytes, " bytes"));
  }
  return Slab{std::make_shared<HeapLender>(data), data, size_bytes};
}

}  // namespace batchd::internal
