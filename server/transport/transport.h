// SPDX-License-Identifier: Apache-2.0
//
// A transport announces sealed slabs to one client. It is a session's output whose OnReady and
// OnSegment reach the client in its own way; all other events are messages that its door writes.
//
//   shm    READY records of 64 bytes; segments by file descriptor; no copy.
//   grpc   a Ready message and the slab image in chunks of at most 1 MiB; one copy, the network's.
//
// Adding one: `<name>_transport.{h,cc}`, its line in CMakeLists.txt, its door's hello. The suite
// tests/conformance/transport_suite.py runs over every transport.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "proto/shm/wire.h"
#include "server/session/output.h"

namespace batchd {

inline constexpr size_t kChunkBytesMax = size_t{1} << 20;

// The READY record of a batch.
wire::Record ReadyRecord(const ReadyBatch& batch);

// Calls `put(offset, bytes)` for each chunk of a batch's slab image, in order.
void ForEachChunk(const ReadyBatch& batch,
                  const std::function<void(int64_t, std::span<const uint8_t>)>& put);

}  // namespace batchd
