// SPDX-License-Identifier: Apache-2.0
//
// The transport of the gRPC stream: a slab image in chunks. A chunk is read from the slab only when
// it is asked for, so a batch on its way costs one chunk of memory and not a second slab.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "server/session/output.h"

namespace batchd {

inline constexpr int64_t kChunkBytesMax = int64_t{1} << 20;

// The chunks of one batch, in order. Valid as the batch's slab is. Thread-compatible.
class ChunkCursor {
 public:
  struct Chunk {
    uint64_t sequence = 0;
    int64_t offset_bytes = 0;
    std::span<const uint8_t> bytes;
  };

  explicit ChunkCursor(const ReadyBatch& batch)
      : sequence_(batch.ref.sequence), slab_(batch.slab), size_bytes_(batch.size_bytes) {}

  uint64_t sequence() const { return sequence_; }
  bool done() const { return offset_bytes_ >= size_bytes_; }

  // Requires !done().
  Chunk Next();

 private:
  uint64_t sequence_;
  const uint8_t* slab_;
  int64_t size_bytes_;
  int64_t offset_bytes_ = 0;
};

}  // namespace batchd
