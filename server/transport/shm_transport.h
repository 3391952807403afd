// SPDX-License-Identifier: Apache-2.0
//
// A transport announces sealed slabs to one client. Its door's SessionOutput calls it from OnReady
// and OnSegment; all other events are messages that the door writes itself.
//
//   shm_transport   READY records of 64 bytes; segments by file descriptor; no copy.
//   grpc_transport  a Ready message and the slab image in chunks of at most 1 MiB; one copy.
//
// Adding one: `<name>_transport.{h,cc}`, its line in CMakeLists.txt, its door's hello.
//
// This is the transport of shared memory: what a batch is as a record, and the queue of datagrams
// that wait for their socket.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "proto/shm/wire.h"
#include "server/base/clock.h"
#include "server/session/output.h"

namespace batchd {

// The READY record of a batch.
wire::Record ReadyRecord(const ReadyBatch& batch);

// What a client's TAKE or RELEASE names.
SlotRef SlotOf(const wire::Record& record);

// How long a TAKE says that it waited; what no clock can have measured becomes the longest
// Duration.
Duration WaitedOf(const wire::Record& record);

// Datagrams on their way into one SOCK_SEQPACKET socket, in order. What the socket takes goes out
// at once; the rest waits here, READY records of the same stretch together in one datagram. Nothing
// is allocated for a record but by the growth of the queue. Event loop only.
class DatagramQueue {
 public:
  // `fd` is a non-blocking socket that outlives the queue.
  explicit DatagramQueue(int fd) : fd_(fd) {}
  ~DatagramQueue();
  DatagramQueue(const DatagramQueue&) = delete;
  DatagramQueue& operator=(const DatagramQueue&) = delete;

  // Sends or queues one datagram. `passed_fd` (-1: none) travels with it; a datagram that has to
  // wait holds its own duplicate, so the caller may close it. Errors: UNAVAILABLE if the peer is
  // gone; RESOURCE_EXHAUSTED if there is no descriptor for the duplicate.
  absl::Status Push(std::string_view datagram, int passed_fd = -1);

  // The same for one record.
  absl::Status Push(const wire::Record& record);

  // Sends what the socket takes. Errors: as Push.
  absl::Status Flush();

  bool empty() const { return waiting_.empty(); }
  // Bytes that wait here.
  size_t size_bytes() const { return size_bytes_; }

 private:
  struct Datagram {
    std::string bytes;
    int passed_fd = -1;
    bool is_records = false;
  };

  // True if the socket took it, false if it is full.
  absl::StatusOr<bool> Send(std::string_view datagram, int passed_fd);

  const int fd_;
  std::deque<Datagram> waiting_;
  size_t size_bytes_ = 0;
};

}  // namespace batchd
