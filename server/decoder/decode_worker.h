// SPDX-License-Identifier: Apache-2.0
//
// The decode worker: a process of this program that decodes for one thread of a daemon
// (isolated_decoder.h), so that a fault in a decoder ends it and nothing else.

#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "server/decoder/decoder.h"

namespace batchd {

struct DecodeWorkerOptions {
  // What a picture may take, in bytes of address space.
  int64_t memory_bytes_max = 0;
  // Whose decoder a picture is; tests have one of their own that crashes.
  std::function<absl::StatusOr<ImageDecoder*>(Bytes)> decoder_for;
};

// Serves the socket that is standard input, with the shared memory that is standard output, until
// its other end closes; that is how the daemon starts the program. Returns the exit code.
int RunDecodeWorker(const DecodeWorkerOptions& options);

}  // namespace batchd
