// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/service_manager.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int kFirstPassedFd = 3;  // SD_LISTEN_FDS_START
constexpr int kPassedFdsMax = 64;

// A number that the manager has put into the environment; nothing if there is none.
std::optional<int64_t> EnvNumber(const char* name) {
  const char* const text = getenv(name);
  int64_t value = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &value)) return std::nullopt;
  return value;
}

// The manager says whom it means, since variables are handed down to children.
bool IsMeant(const char* pid_name) { return EnvNumber(pid_name) == getpid(); }

int SocketOption(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

// The path at which `fd` listens, or "" if it is no listening SOCK_SEQPACKET socket with a path.
std::string ListeningPath(int fd) {
  if (SocketOption(fd, SO_DOMAIN) != AF_UNIX || SocketOption(fd, SO_TYPE) != SOCK_SEQPACKET ||
      SocketOption(fd, SO_ACCEPTCONN) != 1) {
    return "";
  }
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_path[0] != '/') {
    return "";
  }
  return std::string(address.sun_path, strnlen(address.sun_path, sizeof(address.sun_path)));
}

}  // namespace

void NotifyServiceManager(const std::string& state) {
  const char* const path = getenv("NOTIFY_SOCKET");
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  // Whether it arrives is the manager's affair: there is nobody else to tell.
  (void)sendto(fd, state.data(), state.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
  close(fd);
}

std::optional<Duration> WatchdogTimeout() {
  const std::optional<int64_t> timeout_us = EnvNumber("WATCHDOG_USEC");
  if (!timeout_us.has_value() || *timeout_us <= 0) return std::nullopt;
  if (getenv("WATCHDOG_PID") != nullptr && !IsMeant("WATCHDOG_PID")) return std::nullopt;
  return std::chrono::microseconds(*timeout_us);
}

absl::StatusOr<std::map<std::string, UniqueFd>> TakePassedSockets() {
  std::map<std::string, UniqueFd> sockets;
  const std::optional<int64_t> count = EnvNumber("LISTEN_FDS");
  if (!count.has_value() || !IsMeant("LISTEN_PID")) return sockets;
  if (*count < 0 || *count > kPassedFdsMax) {
    return Err(absl::StatusCode::kInvalidArgument, "LISTEN_FDS={}: must be 0 to {}", *count,
               kPassedFdsMax);
  }
  for (int fd = kFirstPassedFd; fd < kFirstPassedFd + *count; ++fd) {
    UniqueFd owned(fd);
    const std::string path = ListeningPath(fd);
    if (path.empty()) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "descriptor {} of the {} that the service manager has passed is no listening "
                 "SOCK_SEQPACKET socket with a path; a .socket unit makes one by "
                 "ListenSequentialPacket=/run/batchd/sock",
                 fd, *count);
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets.insert_or_assign(path, std::move(owned));
  }
  return sockets;
}

}  // namespace batchd
