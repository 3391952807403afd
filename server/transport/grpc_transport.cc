// SPDX-License-Identifier: Apache-2.0
#include "server/transport/grpc_transport.h"

#include <algorithm>

#include "server/base/check.h"

namespace batchd {

ChunkCursor::Chunk ChunkCursor::Next() {
  BATCHD_CHECK(!done());
  const int64_t size_bytes = std::min(kChunkBytesMax, size_bytes_ - offset_bytes_);
  const Chunk chunk{
      sequence_, offset_bytes_, {slab_ + offset_bytes_, static_cast<size_t>(size_bytes)}};
  offset_bytes_ += size_bytes;
  return chunk;
}

}  // namespace batchd
