// SPDX-License-Identifier: Apache-2.0
//
// Tells the service manager what the daemon does, by its protocol (sd_notify(3)): a datagram to the
// socket in NOTIFY_SOCKET. libsystemd would be a dependency for twenty lines.

#pragma once

#include <string>

namespace batchd {

// `state` is "READY=1" or "STOPPING=1". Does nothing where no service manager listens.
void NotifyServiceManager(const std::string& state);

}  // namespace batchd
