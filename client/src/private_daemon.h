// SPDX-License-Identifier: Apache-2.0
//
// The private daemon: started by the first client that needs it, shared by all of the user's job,
// in whatever language they are written. It ends by itself a while after its last client.

#pragma once

#include <string>

#include "batchd/status.h"

namespace batchd::internal {

// ${XDG_RUNTIME_DIR:-/tmp/batchd-UID}/batchd/<protocol version>/<job>/sock.
std::string PrivateSocketPath();

// Returns once a daemon listens at `socket_path`, which is such a path, having started one if there
// was none; of many processes at once one starts it. Errors: kUnavailable, with the end of its log,
// if it does not come up; kOther if the folder is not this user's alone or there is no program to
// start.
Status EnsurePrivateDaemon(const std::string& socket_path);

}  // namespace batchd::internal
