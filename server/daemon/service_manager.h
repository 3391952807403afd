// SPDX-License-Identifier: Apache-2.0
//
// What the daemon and its service manager say to each other, by systemd's protocols: what the
// daemon does, as datagrams to the socket in NOTIFY_SOCKET (sd_notify(3)), and sockets that the
// manager listens at for it, in LISTEN_FDS (sd_listen_fds(3)). Both are documented as stable. By
// hand, so that one program runs with systemd and where its library is not: libsystemd would be
// one more package in every image for a datagram and two variables.

#pragma once

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/io/unique_fd.h"

namespace batchd {

// `state` is "READY=1", "STOPPING=1" or "WATCHDOG=1". Does nothing where no service manager
// listens.
void NotifyServiceManager(const std::string& state);

// The longest that the manager wants to be without "WATCHDOG=1" before it restarts this process;
// nothing if it does not watch it.
std::optional<Duration> WatchdogTimeout();

// The listening SOCK_SEQPACKET sockets that the manager has passed to this process, by path; empty
// if it has passed none. To be called once: the descriptors belong to the caller. Errors:
// INVALID_ARGUMENT naming the descriptor, if one is no such socket.
absl::StatusOr<std::map<std::string, UniqueFd>> TakePassedSockets();

}  // namespace batchd
