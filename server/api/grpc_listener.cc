// SPDX-License-Identifier: Apache-2.0
#include "server/api/grpc_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "server/base/descriptors.h"
#include "server/base/log.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int kBacklog = 128;
// After an accept that has failed for want of descriptors or memory. The listening socket stays
// readable, so the thread would spin.
constexpr int kPauseMilliseconds = 100;
constexpr std::string_view kUnixPrefix = "unix:";

absl::Status CannotListen(std::string_view address, std::string_view what) {
  return Err(absl::StatusCode::kUnavailable,
             "cannot listen on {} for gRPC; is the address taken, or not this machine's? ({})",
             address, what);
}

UniqueFd OpenSocket(int family) {
  return UniqueFd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Of a bound socket.
int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

void SetPort(sockaddr* address, int port) {
  auto& place = address->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                               : reinterpret_cast<sockaddr_in*>(address)->sin_port;
  place = htons(static_cast<uint16_t>(port));
}

struct AddressList {
  addrinfo* first = nullptr;
  ~AddressList() {
    if (first != nullptr) freeaddrinfo(first);
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Listen(
    const std::vector<std::string>& addresses) {
  std::unique_ptr<GrpcListener> listener(new GrpcListener);
  listener->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener->stop_.is_open()) return absl::UnavailableError(ErrnoText("eventfd", errno));
  for (const std::string& address : addresses) {
    BATCHD_RETURN_IF_ERROR(
        address.starts_with(kUnixPrefix)
            ? listener->ListenAtPath(std::string_view(address).substr(kUnixPrefix.size()))
            : listener->ListenAtPort(address));
  }
  return listener;
}

void GrpcListener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  listeners_.clear();
  for (const std::string& path : paths_) unlink(path.c_str());
  paths_.clear();
}

absl::Status GrpcListener::ListenAtPath(std::string_view path) {
  const std::string address = fmt::format("{}{}", kUnixPrefix, path);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.size() >= sizeof(name.sun_path)) return CannotListen(address, "the path is too long");
  std::memcpy(name.sun_path, path.data(), path.size());
  struct stat info;
  if (lstat(name.sun_path, &info) == 0 && S_ISSOCK(info.st_mode)) unlink(name.sun_path);
  UniqueFd fd = OpenSocket(AF_UNIX);
  if (!fd.is_open()) return CannotListen(address, ErrnoText("socket", errno));
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) {
    return CannotListen(address, ErrnoText("bind", errno));
  }
  paths_.emplace_back(path);
  if (listen(fd.get(), kBacklog) != 0) return CannotListen(address, ErrnoText("listen", errno));
  listeners_.push_back(std::move(fd));
  addresses_.push_back(address);
  return absl::OkStatus();
}

// Every address that the name has, at one port.
absl::Status GrpcListener::ListenAtPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return CannotListen(address, "it has no port");
  std::string host = address.substr(0, colon);
  const std::string port_text = address.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  AddressList found;
  if (const int error = getaddrinfo(host.c_str(), port_text.c_str(), &hints, &found.first)) {
    return CannotListen(address, gai_strerror(error));
  }
  std::string trouble = "it has no address";
  int port = 0;
  for (addrinfo* each = found.first; each != nullptr; each = each->ai_next) {
    if (port != 0) SetPort(each->ai_addr, port);
    UniqueFd fd = OpenSocket(each->ai_family);
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (!fd.is_open() || bind(fd.get(), each->ai_addr, each->ai_addrlen) != 0 ||
        listen(fd.get(), kBacklog) != 0) {
      trouble = ErrnoText("listen", errno);
      continue;
    }
    port = PortOf(fd.get());
    listeners_.push_back(std::move(fd));
  }
  if (port == 0) return CannotListen(address, trouble);
  addresses_.push_back(fmt::format("{}:{}", address.substr(0, colon), port));
  return absl::OkStatus();
}

void GrpcListener::Start(std::function<void(int)> on_connection) {
  on_connection_ = std::move(on_connection);
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Run() {
  std::vector<pollfd> waits = {{stop_.get(), POLLIN, 0}};
  for (const UniqueFd& listener : listeners_) waits.push_back({listener.get(), POLLIN, 0});
  bool was_told = false;
  bool has_room = true;
  for (;;) {
    // Without room only the end is waited for, a while.
    const size_t count = has_room ? waits.size() : 1;
    if (poll(waits.data(), count, has_room ? -1 : kPauseMilliseconds) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    has_room = true;
    for (size_t i = 1; i < waits.size() && has_room; ++i) has_room = AcceptAll(waits[i].fd);
    if (!has_room && !std::exchange(was_told, true)) {
      log::Warn("no new gRPC connections for now", {{"error", ErrnoText("accept", errno)}});
    }
  }
}

bool GrpcListener::AcceptAll(int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0 && IsReserved(fd)) {
      close(fd);
      errno = EMFILE;
      return false;
    }
    if (fd >= 0) {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // no more than refused for a path
      on_connection_(fd);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return false;
    }
    // Anything else concerns the connection that was about to come.
  }
}

}  // namespace batchd
