// SPDX-License-Identifier: Apache-2.0
//
// The client's end of a data socket: what is shared between the carrier, which belongs to the
// Loader's thread, and the batches, which may be released in any.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/src/carrier.h"

namespace batchd::internal {

// Thread-safe, but for AddSegment() and Take(). Sending never blocks: what the socket does not take
// at once goes out with a later call.
class DataSocket final : public Lender, public std::enable_shared_from_this<DataSocket> {
 public:
  // Takes over the connected socket `fd`.
  explicit DataSocket(int fd);
  ~DataSocket() override;
  DataSocket(const DataSocket&) = delete;
  DataSocket& operator=(const DataSocket&) = delete;

  int fd() const { return fd_; }
  int wake_fd() const { return wake_fd_; }
  int64_t leases_out() const { return leases_out_.load(std::memory_order_relaxed); }

  // Maps a segment; it stays mapped as long as this object. The descriptor stays the caller's.
  Status AddSegment(int64_t index, int fd, int64_t slot_count, int64_t slab_size_bytes);

  // The slab of a batch that was announced, and its TAKE, with the releases that have gathered.
  Result<Slab> Take(const wire::Record& ready, Duration waited, bool was_ready);
  // Adds a RELEASE that goes out with the next message.
  void AddRelease(const wire::Record& release);
  void GiveBack(const wire::Record& release, bool at_once) override;
  void Send(std::vector<std::string> datagrams);
  void Flush();
  // From now on a lease that ends wakes the poll of wake_fd(). True if something is left to send.
  bool BeginWait();
  void EndWait();

  // Sends Close and closes the socket. Batches stay valid. In a forked child it only closes.
  void Close(std::vector<std::string> farewell);

 private:
  struct Segment {
    uint8_t* memory = nullptr;
    int64_t slot_count = 0;
    int64_t slab_size_bytes = 0;
  };

  void FlushLocked();
  // False if the socket does not take it now; true as well if the connection is gone.
  bool SendLocked(const void* data, size_t size_bytes);
  void CloseFds();
  static void CloseAllInChild();

  const pid_t pid_;
  int fd_;
  int wake_fd_;
  std::atomic<int64_t> leases_out_{0};
  std::vector<Segment> segments_;

  std::mutex mutex_;
  std::vector<wire::Record> releases_;  // not sent yet
  std::deque<std::string> unsent_;      // datagrams that the socket would not take
  bool waiting_ = false;
};

}  // namespace batchd::internal
