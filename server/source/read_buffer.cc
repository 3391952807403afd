// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "server/base/check.h"
#include "server/source/source.h"

namespace batchd {

void ReadBuffer::FreeDeleter::operator()(uint8_t* p) const { std::free(p); }

uint8_t* ReadBuffer::Resize(size_t size_bytes) {
  if (size_bytes > capacity_bytes_) {
    // A half more than asked for, so that sizes that creep up do not allocate every time; but not
    // of what others wait for. The old bytes are not wanted, hence no realloc, which would copy
    // them.
    const size_t capacity_bytes = gate_ != nullptr ? size_bytes : size_bytes + size_bytes / 2;
    Free();
    if (gate_ != nullptr) gate_->Acquire(static_cast<int64_t>(capacity_bytes));
    data_.reset(static_cast<uint8_t*>(std::malloc(capacity_bytes)));
    BATCHD_CHECK(data_ != nullptr);
    capacity_bytes_ = capacity_bytes;
  }
  size_bytes_ = size_bytes;
  return data_.get();
}

void ReadBuffer::Free() {
  data_.reset();
  if (gate_ != nullptr && capacity_bytes_ > 0)
    gate_->Release(static_cast<int64_t>(capacity_bytes_));
  size_bytes_ = 0;
  capacity_bytes_ = 0;
}

}  // namespace batchd
