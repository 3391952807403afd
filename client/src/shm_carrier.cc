// SPDX-License-Identifier: Apache-2.0
//
// Batches through shared memory: the data socket of a daemon on this machine (proto/shm/wire.h).
// The trainer's batches lie in the daemon's segments; nothing is copied.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "client/src/carrier.h"
#include "client/src/data_socket.h"

namespace batchd::internal {
namespace {

constexpr int kHelloTimeoutSeconds = 30;
constexpr size_t kDatagramBytesMax = wire::kFragmentBytesMax + sizeof(wire::FragmentHeader);
constexpr int kFdsPerDatagramMax = 16;

Result<std::vector<std::string>> Fragments(const Json& message) {
  Result<std::string> written = Write(message);
  if (!written.ok()) return written.status();
  const std::string_view body = *written;
  if (body.size() > wire::kMessageBytesMax) {
    return ArgumentError("a message of ", body.size(), " bytes is above the limit of ",
                         wire::kMessageBytesMax, "; ask for less at once");
  }
  std::vector<std::string> datagrams;
  wire::FragmentHeader header{};
  header.kind = wire::kJsonByte;
  header.message_size_bytes = static_cast<uint32_t>(body.size());
  for (size_t start = 0; start < body.size(); start += wire::kFragmentBytesMax) {
    const std::string_view part = body.substr(start, wire::kFragmentBytesMax);
    header.last = start + part.size() == body.size() ? 1 : 0;
    std::string& datagram =
        datagrams.emplace_back(reinterpret_cast<const char*>(&header), sizeof(header));
    datagram.append(part);
  }
  return datagrams;
}

// Puts the fragments of JSON messages together again.
class Assembler {
 public:
  // The message that this datagram completes, or null. Errors: kProtocol.
  Result<Json> Add(std::string_view datagram) {
    wire::FragmentHeader header;
    if (datagram.size() < sizeof(header)) {
      return ProtocolError("a fragment of ", datagram.size(), " bytes has no header");
    }
    std::memcpy(&header, datagram.data(), sizeof(header));
    body_.append(datagram.substr(sizeof(header)));
    const size_t size_bytes = header.message_size_bytes;
    if (size_bytes > wire::kMessageBytesMax || body_.size() > size_bytes ||
        (header.last != 0 && body_.size() != size_bytes)) {
      return ProtocolError("the fragments of a message do not fit together: ", body_.size(),
                           " bytes of ", size_bytes, " have come, last=", int{header.last});
    }
    if (header.last == 0) return Json();
    Json message = Json::parse(body_, nullptr, /*allow_exceptions=*/false);
    body_.clear();
    if (!message.is_object()) return ProtocolError("a message is no JSON object");
    return message;
  }

 private:
  std::string body_;
};

class ShmCarrier final : public Carrier {
 public:
  explicit ShmCarrier(int fd) : socket_(std::make_shared<DataSocket>(fd)) {}

  ~ShmCarrier() override {
    Result<std::vector<std::string>> farewell = Fragments({{"close", Json::object()}});
    socket_->Close(*std::move(farewell));
    for (const int fd : fds_) close(fd);
  }

  Status Send(const Json& message) override {
    Result<std::vector<std::string>> datagrams = Fragments(message);
    if (!datagrams.ok()) return datagrams.status();
    socket_->Send(*std::move(datagrams));
    return Status();
  }

  Result<bool> Receive(Duration timeout) override {
    Result<bool> came = ReceiveNow();
    if (!came.ok() || *came) return came;
    const bool has_unsent = socket_->BeginWait();
    std::array<pollfd, 2> fds = {{{socket_->fd(), POLLIN, 0}, {socket_->wake_fd(), POLLIN, 0}}};
    if (has_unsent) fds[0].events |= POLLOUT;
    const Duration wait = std::clamp(timeout, Duration(0), kWaitMax);
    const timespec limit = {static_cast<time_t>(wait.count() / 1'000'000'000),
                            static_cast<long>(wait.count() % 1'000'000'000)};
    ppoll(fds.data(), fds.size(), &limit, nullptr);  // interrupted is as good as timed out
    socket_->EndWait();
    return ReceiveNow();
  }

  Result<bool> ReceiveNow() override;

  Result<Slab> Take(const wire::Record& record, Duration waited, bool was_ready) override {
    return socket_->Take(record, waited, was_ready);
  }
  void Drop(const wire::Record& record) override {
    socket_->AddRelease(AnswerTo(record, wire::RecordKind::kRelease));
  }
  int64_t leases_out() const override { return socket_->leases_out(); }

 private:
  void KeepFds(msghdr* header);
  Status OnDatagram(std::string_view datagram);
  Status OnSegment(const Json& segment);

  std::shared_ptr<DataSocket> socket_;
  Assembler assembler_;
  std::deque<int> fds_;  // that have come and belong to a Segment that is still on its way
  std::array<char, kDatagramBytesMax> buffer_;
};

Result<bool> ShmCarrier::ReceiveNow() {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kFdsPerDatagramMax)> control;
  iovec part = {buffer_.data(), buffer_.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = recvmsg(socket_->fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (size < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    return ConnectionLost("the connection to the daemon is lost: ", ErrnoText(errno));
  }
  if (header.msg_controllen > 0) KeepFds(&header);
  if (size == 0) return ConnectionLost("the daemon has closed the connection");
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return MakeError(ErrorKind::kOther, StatusCode::kResourceExhausted,
                     "a segment's file descriptor was lost on the way: this process may open no "
                     "more files; raise the limit with `ulimit -n`");
  }
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return ProtocolError("a datagram is longer than ", kDatagramBytesMax, " bytes");
  }
  BATCHD_CLIENT_RETURN_IF_ERROR(OnDatagram({buffer_.data(), static_cast<size_t>(size)}));
  return true;
}

void ShmCarrier::KeepFds(msghdr* header) {
  for (cmsghdr* item = CMSG_FIRSTHDR(header); item != nullptr; item = CMSG_NXTHDR(header, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(int));
      fds_.push_back(fd);
    }
  }
}

Status ShmCarrier::OnDatagram(std::string_view datagram) {
  const auto kind = static_cast<uint8_t>(datagram[0]);
  if (kind == static_cast<uint8_t>(wire::RecordKind::kReady) &&
      datagram.size() % sizeof(wire::Record) == 0) {
    for (size_t at = 0; at < datagram.size(); at += sizeof(wire::Record)) {
      wire::Record record;
      std::memcpy(&record, datagram.data() + at, sizeof(record));
      ready.Push(record);
    }
    return Status();
  }
  if (kind != wire::kJsonByte) {
    return ProtocolError("a datagram of ", datagram.size(), " bytes and kind ", int{kind},
                         " is unknown");
  }
  Result<Json> message = assembler_.Add(datagram);
  if (!message.ok()) return message.status();
  if (message->is_null()) return Status();
  if (message->contains("segment")) return OnSegment(ObjectIn(*message, "segment"));
  messages.push_back(*std::move(message));
  return Status();
}

Status ShmCarrier::OnSegment(const Json& segment) {
  if (fds_.empty()) return ProtocolError("a segment has come without its file descriptor");
  const int fd = fds_.front();
  fds_.pop_front();
  Status status = socket_->AddSegment(IntIn(segment, "index"), fd, IntIn(segment, "slotCount"),
                                      IntIn(segment, "slabSizeBytes"));
  close(fd);
  return status;
}

Status CheckHello(const char* data, ssize_t size) {
  wire::Hello hello;
  if (size != sizeof(hello)) {
    return ProtocolError("the peer's first datagram has ", size, " bytes; a hello has ",
                         sizeof(hello));
  }
  std::memcpy(&hello, data, sizeof(hello));
  if (hello.magic != wire::kHelloMagic) {
    return ProtocolError("the peer is no batchd daemon: its hello has another magic number");
  }
  if (hello.version_min == hello.version_max && hello.version_max >= wire::kProtocolVersionMin &&
      hello.version_max <= wire::kProtocolVersion) {
    return Status();
  }
  return MakeError(ErrorKind::kProtocol, StatusCode::kUnimplemented,
                   Cat("the daemon speaks protocol versions ", hello.version_min, " to ",
                       hello.version_max, ", this client ", wire::kProtocolVersionMin, " to ",
                       wire::kProtocolVersion, "; install the client of the daemon's release"));
}

// A connection that nobody answers has its error in errno.
Status SayHello(int fd, const sockaddr_un& address, const std::string& path) {
  const timeval limit = {kHelloTimeoutSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  wire::Hello hello{};
  hello.magic = wire::kHelloMagic;
  hello.version_min = wire::kProtocolVersionMin;
  hello.version_max = wire::kProtocolVersion;
  std::array<char, sizeof(hello) + 1> answer;
  ssize_t size = -1;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) >= 0) {
    size = recv(fd, answer.data(), answer.size(), 0);
  }
  if (size > 0) return CheckHello(answer.data(), size);
  if (size == 0) return Unavailable("the daemon at unix:", path, " has closed the connection");
  if (errno == EACCES || errno == EPERM) {
    return MakeError(ErrorKind::kOther, StatusCode::kPermissionDenied,
                     Cat("unix:", path, ": ", ErrnoText(errno),
                         "; run as the daemon's user or ask for access to it"));
  }
  const std::string why = errno == EAGAIN ? "timed out" : ErrnoText(errno);
  return Unavailable("no daemon answers at unix:", path, ": ", why,
                     "; start one with `batchd serve --listen unix:", path, "`");
}

}  // namespace

Result<std::unique_ptr<Carrier>> ConnectShm(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return ArgumentError("the socket path ", path, " has ", path.size(), " bytes; ",
                         sizeof(address.sun_path) - 1, " are the most");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return MakeError(ErrorKind::kOther, StatusCode::kResourceExhausted,
                     Cat("no socket can be made: ", ErrnoText(errno)));
  }
  if (Status status = SayHello(fd, address, path); !status.ok()) {
    close(fd);
    return status;
  }
  return std::unique_ptr<Carrier>(std::make_unique<ShmCarrier>(fd));
}

}  // namespace batchd::internal
