// SPDX-License-Identifier: Apache-2.0
#include "server/memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "server/base/check.h"
#include "server/base/descriptors.h"
#include "server/base/status.h"

namespace batchd {

absl::StatusOr<std::unique_ptr<Segment>> Segment::Create(int slot_count, int64_t slab_size_bytes,
                                                         Budget* budget) {
  BATCHD_CHECK(slot_count > 0 && slab_size_bytes > 0 && slab_size_bytes % 4096 == 0);
  const int64_t size_bytes = slot_count * slab_size_bytes;
  BATCHD_RETURN_IF_ERROR(budget->Take(size_bytes));

  // From here on the destructor undoes whatever has been done.
  auto segment = std::unique_ptr<Segment>(new Segment);
  segment->budget_ = budget;
  segment->slot_count_ = slot_count;
  segment->slab_size_bytes_ = slab_size_bytes;

  const auto failed = [size_bytes](const char* call) {
    return Err(absl::StatusCode::kResourceExhausted, "shared memory of {} bytes: {}", size_bytes,
               ErrnoText(call, errno));
  };
  segment->fd_ = memfd_create("batchd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (segment->fd_ < 0) return failed("memfd_create");
  if (IsReserved(segment->fd_)) {
    return Err(absl::StatusCode::kResourceExhausted, "shared memory of {} bytes: {}", size_bytes,
               NoDescriptorText());
  }
  // fallocate, not ftruncate: the pages are there now, and a lack of them is an error now.
  if (fallocate(segment->fd_, 0, 0, size_bytes) != 0) return failed("fallocate");
  if (fcntl(segment->fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed("fcntl(F_ADD_SEALS)");
  }
  void* data = mmap(nullptr, static_cast<size_t>(size_bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_POPULATE, segment->fd_, 0);
  if (data == MAP_FAILED) return failed("mmap");
  segment->data_ = static_cast<uint8_t*>(data);
  return segment;
}

Segment::~Segment() {
  const int64_t size_bytes = slot_count_ * slab_size_bytes_;
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_bytes));
  if (fd_ >= 0) close(fd_);
  budget_->Give(size_bytes);
}

}  // namespace batchd
