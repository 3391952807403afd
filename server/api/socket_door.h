// SPDX-License-Identifier: Apache-2.0
//
// The socket door: sessions of trainers on this machine, over a SOCK_SEQPACKET Unix socket. It
// speaks proto/shm/wire.h: a Hello each way, JSON messages in fragments, binary READY, TAKE and
// RELEASE. It turns all of that into calls of the SessionManager and back, and passes segments by
// descriptor.
//
// A dead client is seen by end of file and by its pidfd: SO_PEERPIDFD (Linux 6.5 and later), else
// pidfd_open of SO_PEERCRED's pid, re-checked by start time, else end of file alone.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/io/event_loop.h"
#include "server/io/unique_fd.h"
#include "server/session/manager.h"

namespace batchd {

enum class PeerWatch { kBest, kPeerPidfd, kPidfdOpen, kEndOfFile };

struct SocketDoorOptions {
  std::string path;
  // Who may connect besides root: this user only (a private daemon), or whoever the socket's mode
  // lets.
  bool same_user_only = true;
  // Each way can be forced in tests.
  PeerWatch peer_watch = PeerWatch::kBest;
  int connections_max = 1024;
};

// Loop thread only. Destroying it closes every connection and removes the socket, if it made it.
class SocketDoor {
 public:
  // Takes `path`.lock (flock, held for life), removes a socket that a dead daemon has left, and
  // listens; or takes connections from `passed`, if that is open: a listening socket at `path` that
  // a service manager has made, whose file and mode stay the manager's. The folder must exist.
  // Errors: ALREADY_EXISTS naming the pid, if another daemon holds the lock; INVALID_ARGUMENT if
  // the path is too long for a Unix socket (107 bytes), naming both; others with errno's text.
  static absl::StatusOr<std::unique_ptr<SocketDoor>> Listen(const SocketDoorOptions& options,
                                                            EventLoop* loop,
                                                            SessionManager* manager,
                                                            UniqueFd passed = UniqueFd());
  virtual ~SocketDoor() = default;

  virtual const std::string& path() const = 0;
  virtual int connection_count() const = 0;
  // Called on the loop whenever the number of connections has changed.
  virtual void SetConnectionCountListener(std::function<void(int)> fn) = 0;
  // Before an end without destructors: removes the socket, if this door made it.
  virtual void RemoveSocket() = 0;
};

}  // namespace batchd
