// SPDX-License-Identifier: Apache-2.0
#include "server/api/socket_door.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "server/api/socket_connection.h"
#include "server/base/descriptors.h"
#include "server/base/log.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int kBacklog = 128;
constexpr int kAcceptsPerWakeUp = 16;
// Room for several fragments; the kernel caps it at net.core.wmem_max.
constexpr int kSendBufferBytes = 512 * 1024;
// After accept has failed for want of descriptors or memory. The listening socket stays readable,
// so the loop would spin.
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
// So many of the reserved descriptors may be used to say that there is no other.
constexpr int kRefusedOfReserve = 4;

absl::Status ErrnoErr(std::string_view call, const std::string& path, int error) {
  const auto code = error == EACCES || error == EPERM || error == EROFS
                        ? absl::StatusCode::kPermissionDenied
                    : error == ENOENT || error == ENOTDIR ? absl::StatusCode::kNotFound
                                                          : absl::StatusCode::kUnavailable;
  return Err(code, "{}: {}", path, ErrnoText(call, error));
}

std::string HolderOf(int lock_fd) {
  char text[32] = {};
  const ssize_t size = pread(lock_fd, text, sizeof(text) - 1, 0);
  std::string pid(text, size > 0 ? static_cast<size_t>(size) : 0);
  pid = pid.substr(0, pid.find_first_not_of("0123456789"));
  return pid.empty() ? "unknown" : pid;
}

bool IsSameFile(int fd, const std::string& path) {
  struct stat own, there;
  return fstat(fd, &own) == 0 && stat(path.c_str(), &there) == 0 && own.st_dev == there.st_dev &&
         own.st_ino == there.st_ino;
}

absl::StatusOr<UniqueFd> TakeLock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  for (;;) {
    UniqueFd lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (lock.get() < 0) return ErrnoErr("open", lock_path, errno);
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoErr("flock", lock_path, errno);
      return Err(absl::StatusCode::kAlreadyExists,
                 "{}: the daemon with pid {} serves here; stop it or listen elsewhere", path,
                 HolderOf(lock.get()));
    }
    // A daemon that ends removes the file before it lets go of it: then this lock is on nothing.
    if (!IsSameFile(lock.get(), lock_path)) continue;
    const std::string pid = fmt::format("{}\n", getpid());
    if (ftruncate(lock.get(), 0) != 0 ||
        pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
      return ErrnoErr("write", lock_path, errno);
    }
    return lock;
  }
}

absl::Status RemoveStale(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : ErrnoErr("lstat", path, errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return Err(absl::StatusCode::kAlreadyExists,
               "{}: there is a file that is no socket; remove it or listen elsewhere", path);
  }
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : ErrnoErr("unlink", path, errno);
}

absl::StatusOr<UniqueFd> BindAndListen(const SocketDoorOptions& options) {
  const std::string& path = options.path;
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return ErrnoErr("socket", path, errno);
  // bind takes the mode from the socket, so there is no moment when others could connect.
  fchmod(fd.get(), 0600);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoErr("bind", path, errno);
  }
  if (!options.same_user_only && chmod(path.c_str(), 0660) != 0) {
    return ErrnoErr("chmod", path, errno);
  }
  if (listen(fd.get(), kBacklog) != 0) return ErrnoErr("listen", path, errno);
  return fd;
}

absl::Status SetNonblocking(int fd, const std::string& path) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return ErrnoErr("fcntl", path, errno);
  }
  return absl::OkStatus();
}

class UnixSocketDoor final : public SocketDoor {
 public:
  UnixSocketDoor(const SocketDoorOptions& options, EventLoop* loop, SessionManager* manager,
                 UniqueFd lock, UniqueFd listener, bool is_passed)
      : options_(options),
        loop_(loop),
        is_passed_(is_passed),
        lock_(std::move(lock)),
        listener_(std::move(listener)),
        receive_buffer_(kReceiveBufferBytes),
        context_{loop, manager, options.peer_watch, receive_buffer_},
        watch_(loop->WatchFd(listener_.get(), [this](bool, bool) { AcceptSome(); })) {
    watch_->SetWanted(true, false);
  }

  ~UnixSocketDoor() override {
    listener_fn_ = nullptr;
    watch_.reset();
    connections_.clear();
    // Both under the lock: a daemon that starts now waits for neither and finds neither.
    RemoveSocket();
    unlink((options_.path + ".lock").c_str());
  }

  const std::string& path() const override { return options_.path; }
  int connection_count() const override { return static_cast<int>(connections_.size()); }
  void SetConnectionCountListener(std::function<void(int)> fn) override {
    listener_fn_ = std::move(fn);
  }
  void RemoveSocket() override {
    if (!is_passed_) unlink(options_.path.c_str());
  }

 private:
  void AcceptSome() {
    for (int i = 0; i < kAcceptsPerWakeUp; ++i) {
      const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        Serve(fd);
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        PauseAccept(errno);
        return;
      }
      // Anything else concerns the connection that was about to come.
    }
  }

  void PauseAccept(int error) {
    if (!paused_before_) {
      log::Warn("no new connections for now",
                {{"path", options_.path}, {"error", ErrnoText("accept", error)}});
    }
    paused_before_ = true;
    watch_->SetWanted(false, false);
    pause_ = loop_->After(kAcceptPause, [this] { watch_->SetWanted(true, false); });
  }

  void Serve(int fd) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
    absl::Status refusal = MayConnect(fd);
    // A refused client hears why, unless there are too many of those as well.
    if (connection_count() >= 2 * options_.connections_max || IsReserved(fd - kRefusedOfReserve)) {
      close(fd);
      return;
    }
    if (refusal.ok() && IsReserved(fd)) {
      refusal = Err(absl::StatusCode::kResourceExhausted, "{}", NoDescriptorText());
    }
    if (refusal.ok() && connection_count() >= options_.connections_max) {
      refusal =
          Err(absl::StatusCode::kResourceExhausted,
              "{} connections are open, which is the limit; close some", options_.connections_max);
    }
    connections_.push_back(std::make_unique<SocketConnection>(fd, context_, std::move(refusal),
                                                              [this] { ReapLater(); }));
    CountChanged();
  }

  absl::Status MayConnect(int fd) const {
    if (!options_.same_user_only) return absl::OkStatus();
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
      return Err(absl::StatusCode::kPermissionDenied, "{}", ErrnoText("SO_PEERCRED", errno));
    }
    if (peer.uid == 0 || peer.uid == geteuid()) return absl::OkStatus();
    return Err(absl::StatusCode::kPermissionDenied,
               "this daemon serves uid {} only, not uid {}; start one of your own", geteuid(),
               peer.uid);
  }

  void ReapLater() {
    if (reap_ != nullptr) return;
    reap_ = loop_->After(Duration::zero(), [this] {
      reap_.reset();
      std::erase_if(connections_, [](const auto& connection) { return connection->ended(); });
      CountChanged();
    });
  }

  void CountChanged() {
    if (listener_fn_ != nullptr) listener_fn_(connection_count());
  }

  const SocketDoorOptions options_;
  EventLoop* const loop_;
  const bool is_passed_;
  const UniqueFd lock_;
  const UniqueFd listener_;
  std::vector<char> receive_buffer_;
  const ConnectionContext context_;
  std::function<void(int)> listener_fn_;
  bool paused_before_ = false;
  std::unique_ptr<EventLoop::Timer> pause_;
  std::unique_ptr<EventLoop::Timer> reap_;
  std::list<std::unique_ptr<SocketConnection>> connections_;
  std::unique_ptr<EventLoop::Watch> watch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SocketDoor>> SocketDoor::Listen(const SocketDoorOptions& options,
                                                               EventLoop* loop,
                                                               SessionManager* manager,
                                                               UniqueFd passed) {
  constexpr size_t kPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
  if (options.path.empty() || options.path.size() > kPathBytesMax) {
    return Err(
        absl::StatusCode::kInvalidArgument,
        "the socket's path \"{}\" has {} bytes; a Unix socket takes 1 to {}: choose a shorter "
        "folder",
        options.path, options.path.size(), kPathBytesMax);
  }
  BATCHD_ASSIGN_OR_RETURN(UniqueFd lock, TakeLock(options.path));
  const bool is_passed = passed.is_open();
  if (is_passed) {
    BATCHD_RETURN_IF_ERROR(SetNonblocking(passed.get(), options.path));
  } else {
    BATCHD_RETURN_IF_ERROR(RemoveStale(options.path));
    BATCHD_ASSIGN_OR_RETURN(passed, BindAndListen(options));
  }
  return std::unique_ptr<SocketDoor>(std::make_unique<UnixSocketDoor>(
      options, loop, manager, std::move(lock), std::move(passed), is_passed));
}

}  // namespace batchd
