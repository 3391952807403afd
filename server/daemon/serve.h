// SPDX-License-Identifier: Apache-2.0
//
// The daemon itself: loop, sessions, doors and the HTTP door, from start to the end of its drain.

#pragma once

#include "server/daemon/config.h"

namespace batchd {

// Serves until SIGTERM or SIGINT has drained it, or a private daemon's last client is gone for long
// enough; a second signal ends the process at once. Returns the process's exit code
// (exit_codes.h); what went wrong has been logged. Called once in a process, on its main thread.
int Serve(const ServeConfig& config);

}  // namespace batchd
