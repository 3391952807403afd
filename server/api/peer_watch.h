// SPDX-License-Identifier: Apache-2.0
//
// Sees that the process at the other end of a Unix socket has died, even where a child of it still
// holds the socket open and no end of file will come.

#pragma once

#include <functional>
#include <memory>

#include "server/api/socket_door.h"
#include "server/io/event_loop.h"

namespace batchd {

// Event loop only. Destroying it ends the watch; that is safe inside its callback.
class PeerWatcher {
 public:
  // Watches the peer of the connected socket `fd` in the way `wanted`, or the best that this kernel
  // has. `died` is called once, on the loop. A way that cannot be had leaves end of file alone.
  PeerWatcher(int fd, PeerWatch wanted, EventLoop* loop, std::function<void()> died);
  ~PeerWatcher();
  PeerWatcher(const PeerWatcher&) = delete;
  PeerWatcher& operator=(const PeerWatcher&) = delete;

  // How it watches: never kBest.
  PeerWatch way() const { return way_; }

 private:
  PeerWatch way_ = PeerWatch::kEndOfFile;
  int pidfd_ = -1;
  std::unique_ptr<EventLoop::Watch> watch_;
};

}  // namespace batchd
