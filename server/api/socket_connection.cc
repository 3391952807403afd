// SPDX-License-Identifier: Apache-2.0
#include "server/api/socket_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "server/api/convert.h"
#include "server/base/status.h"

namespace batchd {
namespace {

// Datagrams that one wake-up reads: a client that floods gets no more of the loop than that.
constexpr int kDatagramsPerWakeUp = 32;
// With more than this waiting for a client, nothing more is read from it: its questions stop before
// the answers fill memory.
constexpr size_t kWaitingBytesMax = size_t{1} << 20;
// How long a client that does not read may keep a closed connection.
constexpr Duration kClosingTimeout = std::chrono::seconds(5);
// The control buffer holds what Linux lets one datagram carry, so that none is cut off unseen.
constexpr size_t kPassedFdsMax = 253;

wire::Hello MakeHello(uint16_t version_min, uint16_t version_max) {
  wire::Hello hello{};
  hello.magic = wire::kHelloMagic;
  hello.version_min = version_min;
  hello.version_max = version_max;
  return hello;
}

std::string_view BytesOf(const wire::Hello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof(hello)};
}

// A client has no descriptors to pass; what it sends must not pile up.
void CloseReceived(msghdr* message) {
  for (cmsghdr* h = CMSG_FIRSTHDR(message); h != nullptr; h = CMSG_NXTHDR(message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
      close(fd);
    }
  }
}

}  // namespace

SocketConnection::SocketConnection(int fd, const ConnectionContext& context, absl::Status refusal,
                                   std::function<void()> ended)
    : fd_(fd),
      context_(context),
      refusal_(std::move(refusal)),
      ended_(std::move(ended)),
      queue_(fd),
      session_(context.manager, this, TransportKind::kShm),
      watch_(context.loop->WatchFd(fd, [this](bool r, bool w) { OnEvent(r, w); })),
      peer_(
          std::make_unique<PeerWatcher>(fd, context.peer_watch, context.loop, [this] { End(); })) {
  UpdateWanted();
}

SocketConnection::~SocketConnection() {
  state_ = State::kEnded;
  session_.Close();
  watch_.reset();
  peer_.reset();
  // What a client still says is read away: data unread at the close would make its kernel report a
  // reset before it hands out the Error that lies there. After the shutdown nothing more can come.
  shutdown(fd_, SHUT_RD);
  while (Receive() > 0) {
  }
  close(fd_);
}

void SocketConnection::OnEvent(bool readable, bool writable) {
  if (writable) AfterPush(queue_.Flush());
  if (readable && (state_ == State::kHello || state_ == State::kTalking)) ReadSome();
  if (state_ != State::kEnded) UpdateWanted();
}

void SocketConnection::ReadSome() {
  for (int i = 0; i < kDatagramsPerWakeUp; ++i) {
    if (state_ != State::kHello && state_ != State::kTalking) return;
    if (queue_.size_bytes() > kWaitingBytesMax) return;
    const ssize_t size = Receive();
    if (size < 0) return;
    if (size == 0) {
      End();
      return;
    }
    Handle({context_.receive_buffer.data(), static_cast<size_t>(size)});
  }
}

ssize_t SocketConnection::Receive() {
  alignas(cmsghdr) char control[CMSG_SPACE(kPassedFdsMax * sizeof(int))];
  iovec part{context_.receive_buffer.data(), context_.receive_buffer.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? -1 : 0;  // a reset is an end too
  CloseReceived(&message);
  return size;
}

void SocketConnection::Handle(std::string_view datagram) {
  if (state_ == State::kHello) {
    HandleHello(datagram);
    return;
  }
  absl::Status status;
  const auto kind = static_cast<uint8_t>(datagram[0]);
  if (datagram.size() > kDatagramBytesMax) {
    status = Err(absl::StatusCode::kInvalidArgument, "a datagram exceeds the limit of {} bytes",
                 kDatagramBytesMax);
  } else if (kind == wire::kJsonByte) {
    status = HandleFragment(datagram);
  } else {
    status = HandleRecords(datagram);
  }
  if (!status.ok()) Fail(status);
}

void SocketConnection::HandleHello(std::string_view datagram) {
  wire::Hello hello{};
  const bool is_hello = datagram.size() == sizeof(hello);
  if (is_hello) std::memcpy(&hello, datagram.data(), sizeof(hello));
  if (!is_hello || hello.magic != wire::kHelloMagic) {
    AfterPush(queue_.Push(BytesOf(MakeHello(wire::kProtocolVersionMin, wire::kProtocolVersion))));
    Fail(Err(absl::StatusCode::kInvalidArgument,
             "the first datagram is no Hello of batchd; is this the right socket?"));
    return;
  }
  const uint16_t version = std::min(hello.version_max, wire::kProtocolVersion);
  if (version < std::max(hello.version_min, wire::kProtocolVersionMin)) {
    // Its range tells the client which of the two is too old.
    AfterPush(queue_.Push(BytesOf(MakeHello(wire::kProtocolVersionMin, wire::kProtocolVersion))));
    BeginClosing();
    return;
  }
  state_ = State::kTalking;
  AfterPush(queue_.Push(BytesOf(MakeHello(version, version))));
  if (!refusal_.ok()) Fail(refusal_);
}

absl::Status SocketConnection::HandleFragment(std::string_view datagram) {
  BATCHD_ASSIGN_OR_RETURN(const bool whole, assembler_.Add(datagram));
  if (!whole) return absl::OkStatus();
  BATCHD_ASSIGN_OR_RETURN(const v1::ClientMessage message,
                          ClientMessageFromJson(assembler_.message()));
  v1::ServerMessage reply;
  BATCHD_RETURN_IF_ERROR(session_.Handle(message, &reply));
  if (reply.message_case() != v1::ServerMessage::MESSAGE_NOT_SET) SendMessage(reply);
  if (session_.closed()) BeginClosing();
  return absl::OkStatus();
}

absl::Status SocketConnection::HandleRecords(std::string_view datagram) {
  constexpr size_t kSize = sizeof(wire::Record);
  if (datagram.size() % kSize != 0 || datagram.size() > wire::kRecordsPerDatagramMax * kSize) {
    return Err(
        absl::StatusCode::kInvalidArgument,
        "a datagram of {} bytes that begins with {} is neither a message nor 1 to {} records "
        "of {} bytes",
        datagram.size(), static_cast<uint8_t>(datagram[0]), wire::kRecordsPerDatagramMax, kSize);
  }
  if (assembler_.in_message()) {
    return Err(absl::StatusCode::kInvalidArgument, "a record between the fragments of a message");
  }
  // The session may end at any of them.
  for (; !datagram.empty() && state_ == State::kTalking; datagram.remove_prefix(kSize)) {
    wire::Record record;
    std::memcpy(&record, datagram.data(), kSize);
    switch (static_cast<wire::RecordKind>(record.kind)) {
      case wire::RecordKind::kTake:
        BATCHD_RETURN_IF_ERROR(
            session_.Take(SlotOf(record), WaitedOf(record), (record.flags & wire::kWasReady) != 0));
        break;
      case wire::RecordKind::kRelease:
        BATCHD_RETURN_IF_ERROR(session_.Release(SlotOf(record)));
        break;
      default:
        return Err(absl::StatusCode::kInvalidArgument,
                   "a record of kind {}; a client sends TAKE ({}) and RELEASE ({})", record.kind,
                   static_cast<int>(wire::RecordKind::kTake),
                   static_cast<int>(wire::RecordKind::kRelease));
    }
  }
  return absl::OkStatus();
}

void SocketConnection::OnOpened(const OpenedInfo& info) {
  v1::ServerMessage message;
  ToProto(info, message.mutable_opened());
  SendMessage(message);
}

void SocketConnection::OnSegment(int index, const Segment& segment) {
  v1::ServerMessage message;
  ToProto(index, segment, message.mutable_segment());
  SendMessage(message, segment.fd());
}

void SocketConnection::OnReady(const ReadyBatch& batch) {
  if (state_ != State::kTalking) return;
  AfterPush(queue_.Push(ReadyRecord(batch)));
}

void SocketConnection::OnFailure(const BatchFailure& failure) {
  v1::ServerMessage message;
  ToProto(failure, message.mutable_failure());
  SendMessage(message);
}

void SocketConnection::OnExhausted(const ExhaustedInfo& info) {
  v1::ServerMessage message;
  ToProto(info, message.mutable_exhausted());
  SendMessage(message);
}

void SocketConnection::OnDraining(int64_t deadline_milliseconds) {
  v1::ServerMessage message;
  message.mutable_draining()->set_deadline_milliseconds(
      static_cast<int32_t>(std::clamp<int64_t>(deadline_milliseconds, 0, INT32_MAX)));
  SendMessage(message);
}

void SocketConnection::OnError(const absl::Status& status) { Fail(status); }

void SocketConnection::SendMessage(const v1::ServerMessage& message, int passed_fd) {
  if (state_ != State::kTalking) return;
  const absl::StatusOr<std::string> text = ServerMessageToJson(message);
  if (!text.ok()) {
    Fail(text.status());
    return;
  }
  AfterPush(ForEachFragment(*text, [&](std::string_view datagram, bool is_first) {
    return queue_.Push(datagram, is_first ? passed_fd : -1);
  }));
}

void SocketConnection::AfterPush(const absl::Status& pushed) {
  if (state_ == State::kEnded) return;
  if (!pushed.ok() || (state_ == State::kClosing && queue_.empty())) {
    End();
  } else {
    UpdateWanted();
  }
}

void SocketConnection::UpdateWanted() {
  const bool reads = (state_ == State::kHello || state_ == State::kTalking) &&
                     queue_.size_bytes() <= kWaitingBytesMax;
  const bool writes = !queue_.empty();
  if (reads == wants_read_ && writes == wants_write_) return;
  wants_read_ = reads;
  wants_write_ = writes;
  watch_->SetWanted(reads, writes);
}

void SocketConnection::Fail(const absl::Status& status) {
  if (state_ == State::kClosing || state_ == State::kEnded) return;
  state_ = State::kTalking;  // an Error may answer a broken Hello too
  v1::ServerMessage message;
  ToProto(status, message.mutable_error());
  SendMessage(message);
  BeginClosing();
}

void SocketConnection::BeginClosing() {
  if (state_ == State::kEnded) return;
  state_ = State::kClosing;
  closing_timer_ = context_.loop->After(kClosingTimeout, [this] { End(); });
  AfterPush(absl::OkStatus());
}

void SocketConnection::End() {
  if (state_ == State::kEnded) return;
  state_ = State::kEnded;
  // The door destroys this object later: End may be called from inside the manager, which must not
  // lose its output meanwhile.
  watch_->SetWanted(false, false);
  ended_();
}

}  // namespace batchd
