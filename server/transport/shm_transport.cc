// SPDX-License-Identifier: Apache-2.0
#include "server/transport/shm_transport.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "server/base/status.h"

namespace batchd {
namespace {

constexpr size_t kRecordBytes = sizeof(wire::Record);

std::string_view BytesOf(const wire::Record& record) {
  return {reinterpret_cast<const char*>(&record), kRecordBytes};
}

}  // namespace

wire::Record ReadyRecord(const ReadyBatch& batch) {
  wire::Record record{};
  record.kind = static_cast<uint8_t>(wire::RecordKind::kReady);
  record.flags = batch.last_in_epoch ? wire::kLastInEpoch : 0;
  record.segment = static_cast<uint16_t>(batch.ref.segment);
  record.slot = static_cast<uint32_t>(batch.ref.slot);
  record.sequence = batch.ref.sequence;
  record.generation = batch.generation;
  record.rows = static_cast<uint32_t>(batch.rows);
  record.valid_rows = static_cast<uint32_t>(batch.valid_rows);
  record.rank = static_cast<uint32_t>(batch.address.rank);
  record.epoch = static_cast<uint64_t>(batch.address.epoch);
  record.step = static_cast<uint64_t>(batch.address.step);
  record.world_size = static_cast<uint32_t>(batch.address.world_size);
  return record;
}

SlotRef SlotOf(const wire::Record& record) {
  // A slot beyond an int is no slot of any segment; -1 says so to the session.
  const int slot = record.slot <= INT32_MAX ? static_cast<int>(record.slot) : -1;
  return SlotRef{record.segment, slot, record.sequence};
}

Duration WaitedOf(const wire::Record& record) {
  constexpr auto kLongest = static_cast<uint64_t>(Duration::max().count());
  return Duration(static_cast<int64_t>(std::min(record.waited_ns, kLongest)));
}

DatagramQueue::~DatagramQueue() {
  for (const Datagram& datagram : waiting_) {
    if (datagram.passed_fd >= 0) close(datagram.passed_fd);
  }
}

absl::StatusOr<bool> DatagramQueue::Send(std::string_view datagram, int passed_fd) {
  iovec part{const_cast<char*>(datagram.data()), datagram.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed_fd, sizeof(int));
  }
  while (sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    return Err(absl::StatusCode::kUnavailable, "the client cannot be reached: {}",
               ErrnoText("sendmsg", errno));
  }
  return true;
}

absl::Status DatagramQueue::Push(std::string_view datagram, int passed_fd) {
  if (waiting_.empty()) {
    BATCHD_ASSIGN_OR_RETURN(const bool sent, Send(datagram, passed_fd));
    if (sent) return absl::OkStatus();
  }
  int own_fd = -1;
  if (passed_fd >= 0) {
    own_fd = fcntl(passed_fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0) {
      return Err(absl::StatusCode::kResourceExhausted,
                 "no file descriptor for a segment on its way to the client: {}; raise `ulimit -n`",
                 ErrnoText("fcntl", errno));
    }
  }
  waiting_.push_back({std::string(datagram), own_fd, false});
  size_bytes_ += datagram.size();
  return absl::OkStatus();
}

absl::Status DatagramQueue::Push(const wire::Record& record) {
  const std::string_view bytes = BytesOf(record);
  if (waiting_.empty()) {
    BATCHD_ASSIGN_OR_RETURN(const bool sent, Send(bytes, -1));
    if (sent) return absl::OkStatus();
  }
  constexpr size_t kFull = wire::kRecordsPerDatagramMax * kRecordBytes;
  if (waiting_.empty() || !waiting_.back().is_records || waiting_.back().bytes.size() >= kFull) {
    waiting_.push_back({std::string(), -1, true});
  }
  waiting_.back().bytes.append(bytes);
  size_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status DatagramQueue::Flush() {
  while (!waiting_.empty()) {
    Datagram& first = waiting_.front();
    BATCHD_ASSIGN_OR_RETURN(const bool sent, Send(first.bytes, first.passed_fd));
    if (!sent) break;
    if (first.passed_fd >= 0) close(first.passed_fd);
    size_bytes_ -= first.bytes.size();
    waiting_.pop_front();
  }
  return absl::OkStatus();
}

}  // namespace batchd
