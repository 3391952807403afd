// SPDX-License-Identifier: Apache-2.0
//
// A segment is one piece of shared memory: a memfd that can neither shrink nor grow, mapped by the
// daemon and, through its descriptor, by the one trainer whose session owns it. It has no name, so
// a crash leaves nothing behind, and it is not part of /dev/shm, so no container limit applies. Its
// pages are touched when it is made: a shortage shows then and not in the middle of training.

#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "server/memory/budget.h"

namespace batchd {

// Immutable but for its bytes: thread-safe. Gives its bytes back to the budget when destroyed.
class Segment {
 public:
  // A segment of `slot_count` slabs, `slab_size_bytes` apart, all zero and populated.
  // `slab_size_bytes` is a multiple of the page size. `budget` outlives the segment.
  // Errors: RESOURCE_EXHAUSTED if the budget or the machine does not have the memory; nothing is
  // held then.
  static absl::StatusOr<std::unique_ptr<Segment>> Create(int slot_count, int64_t slab_size_bytes,
                                                         Budget* budget);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int fd() const { return fd_; }
  int slot_count() const { return slot_count_; }
  int64_t slab_size_bytes() const { return slab_size_bytes_; }
  uint8_t* slab(int slot) const { return data_ + slot * slab_size_bytes_; }

 private:
  Segment() = default;

  int fd_ = -1;
  int slot_count_ = 0;
  int64_t slab_size_bytes_ = 0;
  uint8_t* data_ = nullptr;
  Budget* budget_ = nullptr;
};

}  // namespace batchd
