// SPDX-License-Identifier: Apache-2.0
#include "client/src/data_socket.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace batchd::internal {
namespace {

// A release that finds the list full still works, but allocates.
constexpr size_t kReleasesReserved = 1024;

// All open sockets of this process, so that a forked child lets go of its parent's connections: as
// long as it held them, the daemon would not see the parent's end. Never destroyed: a fork may come
// at any time.
struct OpenSockets {
  std::mutex mutex;
  std::vector<DataSocket*> sockets;
};
OpenSockets& Registry() {
  static OpenSockets* const registry = new OpenSockets;
  return *registry;
}

}  // namespace

DataSocket::DataSocket(int fd)
    : pid_(getpid()), fd_(fd), wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  releases_.reserve(kReleasesReserved);
  // Held over the fork: the child's copy of the list is then whole.
  static const int registered =
      pthread_atfork([] { Registry().mutex.lock(); }, [] { Registry().mutex.unlock(); },
                     &DataSocket::CloseAllInChild);
  static_cast<void>(registered);
  const std::lock_guard<std::mutex> lock(Registry().mutex);
  Registry().sockets.push_back(this);
}

DataSocket::~DataSocket() {
  {
    const std::lock_guard<std::mutex> lock(Registry().mutex);
    std::erase(Registry().sockets, this);
  }
  CloseFds();
  for (const Segment& segment : segments_) {
    if (segment.memory != nullptr) {
      munmap(segment.memory, segment.slot_count * segment.slab_size_bytes);
    }
  }
}

void DataSocket::CloseAllInChild() {
  // The sockets' own mutexes may be held by threads that do not exist here: none is touched.
  for (DataSocket* socket : Registry().sockets) socket->CloseFds();
  Registry().mutex.unlock();
}

void DataSocket::CloseFds() {
  if (fd_ >= 0) close(fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
  fd_ = wake_fd_ = -1;
}

Status DataSocket::AddSegment(int64_t index, int fd, int64_t slot_count, int64_t slab_size_bytes) {
  struct stat info {};
  fstat(fd, &info);
  if (index < 0 || index > UINT16_MAX || slot_count < 1 || slab_size_bytes < 1 ||
      slot_count > info.st_size / slab_size_bytes) {
    return ProtocolError("segment ", index, " of ", info.st_size, " bytes cannot hold ", slot_count,
                         " slabs of ", slab_size_bytes);
  }
  // Writable: the trainer owns what it has been given, and only writable memory can be pinned.
  void* memory = mmap(nullptr, slot_count * slab_size_bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) {
    return MakeError(ErrorKind::kOther, StatusCode::kResourceExhausted,
                     Cat("a segment of ", slot_count * slab_size_bytes,
                         " bytes cannot be mapped: ", ErrnoText(errno)));
  }
  if (segments_.size() <= static_cast<size_t>(index)) segments_.resize(index + 1);
  if (segments_[index].memory != nullptr) {
    munmap(memory, slot_count * slab_size_bytes);
    return ProtocolError("segment ", index, " has come twice");
  }
  segments_[index] = {static_cast<uint8_t*>(memory), slot_count, slab_size_bytes};
  return Status();
}

Result<Slab> DataSocket::Take(const wire::Record& ready, Duration waited, bool was_ready) {
  if (ready.segment >= segments_.size() || ready.slot >= segments_[ready.segment].slot_count) {
    return ProtocolError("segment ", ready.segment, " has no slot ", ready.slot);
  }
  const Segment& segment = segments_[ready.segment];
  wire::Record take = AnswerTo(ready, wire::RecordKind::kTake);
  take.flags = was_ready ? wire::kWasReady : 0;
  take.waited_ns = static_cast<uint64_t>(waited.count());
  leases_out_.fetch_add(1, std::memory_order_relaxed);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::array<wire::Record, wire::kRecordsPerDatagramMax> records;
    const size_t count = std::min(releases_.size(), records.size() - 1);
    std::copy_n(releases_.begin(), count, records.begin());
    releases_.erase(releases_.begin(), releases_.begin() + static_cast<ptrdiff_t>(count));
    records[count] = take;
    const size_t size_bytes = (count + 1) * sizeof(wire::Record);
    if (!unsent_.empty() || !SendLocked(records.data(), size_bytes)) {
      unsent_.emplace_back(reinterpret_cast<const char*>(records.data()), size_bytes);
    }
    if (!unsent_.empty() || !releases_.empty()) FlushLocked();
  }
  return Slab{shared_from_this(),
              segment.memory + static_cast<int64_t>(ready.slot) * segment.slab_size_bytes,
              static_cast<size_t>(segment.slab_size_bytes)};
}

void DataSocket::AddRelease(const wire::Record& release) {
  const std::lock_guard<std::mutex> lock(mutex_);
  releases_.push_back(release);
}

void DataSocket::GiveBack(const wire::Record& release, bool at_once) {
  if (getpid() != pid_)
    return;  // a forked child has the batches too, but the lease is its parent's
  leases_out_.fetch_sub(1, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fd_ < 0) return;  // the daemon has taken all back
  releases_.push_back(release);
  if (at_once) FlushLocked();
  if (waiting_) {
    const uint64_t one = 1;
    static_cast<void>(!write(wake_fd_, &one, sizeof(one)));  // it fails only when it is set already
  }
}

void DataSocket::Send(std::vector<std::string> datagrams) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::string& datagram : datagrams) unsent_.push_back(std::move(datagram));
  FlushLocked();
}

void DataSocket::Flush() {
  const std::lock_guard<std::mutex> lock(mutex_);
  FlushLocked();
}

bool DataSocket::BeginWait() {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_ = true;
  FlushLocked();
  return !unsent_.empty();
}

void DataSocket::EndWait() {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_ = false;
  uint64_t count = 0;
  static_cast<void>(!read(wake_fd_, &count, sizeof(count)));  // nothing there is as well
  FlushLocked();
}

void DataSocket::Close(std::vector<std::string> farewell) {
  if (getpid() == pid_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (fd_ < 0) return;
    for (std::string& datagram : farewell) unsent_.push_back(std::move(datagram));
    FlushLocked();
    CloseFds();
  } else {
    CloseFds();
  }
}

void DataSocket::FlushLocked() {
  while (!unsent_.empty()) {
    if (!SendLocked(unsent_.front().data(), unsent_.front().size())) return;
    unsent_.pop_front();
  }
  size_t sent = 0;
  while (sent < releases_.size()) {
    const size_t count = std::min(releases_.size() - sent, wire::kRecordsPerDatagramMax);
    if (!SendLocked(&releases_[sent], count * sizeof(wire::Record))) break;
    sent += count;
  }
  if (sent == 0) return;
  releases_.erase(releases_.begin(), releases_.begin() + static_cast<ptrdiff_t>(sent));
}

bool DataSocket::SendLocked(const void* data, size_t size_bytes) {
  if (fd_ < 0) return true;
  for (;;) {
    if (send(fd_, data, size_bytes, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    // Another error: the connection is gone, which the next receive finds out.
    return errno != EAGAIN && errno != EWOULDBLOCK;
  }
}

}  // namespace batchd::internal
