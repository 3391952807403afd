// SPDX-License-Identifier: Apache-2.0
#include "server/api/peer_watch.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "fmt/format.h"

namespace batchd {
namespace {

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; Debian 12 has older headers
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

int PeerPidfd(int fd) {
  int pidfd = -1;
  socklen_t size = sizeof(pidfd);
  return getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0 ? pidfd : -1;
}

// Start time of a process in clock ticks since boot, as text; empty if there is no such process.
std::string StartTime(pid_t pid) {
  const int fd = open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[1024];
  const ssize_t size = read(fd, text, sizeof(text));
  close(fd);
  if (size <= 0) return "";
  // Field 22; counted from the last ')', since the name in field 2 may have blanks and brackets.
  const std::string stat(text, static_cast<size_t>(size));
  size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return "";
  return stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

// A pid may have been given to another process before it is opened: then its start time differs
// from the one seen first.
int PidfdOpen(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return -1;
  const std::string before = StartTime(peer.pid);
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  if (pidfd < 0) return -1;
  if (before.empty() || StartTime(peer.pid) != before) {
    close(pidfd);
    return -1;
  }
  return pidfd;
}

}  // namespace

PeerWatcher::PeerWatcher(int fd, PeerWatch wanted, EventLoop* loop, std::function<void()> died) {
  if (wanted == PeerWatch::kBest || wanted == PeerWatch::kPeerPidfd) {
    pidfd_ = PeerPidfd(fd);
    if (pidfd_ >= 0) way_ = PeerWatch::kPeerPidfd;
  }
  if (pidfd_ < 0 && (wanted == PeerWatch::kBest || wanted == PeerWatch::kPidfdOpen)) {
    pidfd_ = PidfdOpen(fd);
    if (pidfd_ >= 0) way_ = PeerWatch::kPidfdOpen;
  }
  if (pidfd_ < 0) return;
  watch_ = loop->WatchFd(pidfd_, [this, died = std::move(died)](bool, bool) {
    watch_->SetWanted(false, false);  // a dead process stays readable
    died();
  });
  watch_->SetWanted(true, false);
}

PeerWatcher::~PeerWatcher() {
  watch_.reset();
  if (pidfd_ >= 0) close(pidfd_);
}

}  // namespace batchd
