// SPDX-License-Identifier: Apache-2.0
//
// libjpeg's memory manager on one block that is used again from picture to picture, so that in the
// steady state a JPEG allocates nothing. libjpeg's own takes and frees some thirty blocks a
// picture.

#pragma once

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t.
#include <jpeglib.h>
// clang-format on

#include <cstddef>
#include <cstdint>
#include <vector>

namespace batchd {

// Thread-compatible; one for each jpeg_decompress_struct, which must not outlive it.
class JpegMemory {
 public:
  JpegMemory();
  ~JpegMemory();
  JpegMemory(const JpegMemory&) = delete;
  JpegMemory& operator=(const JpegMemory&) = delete;

  // What jpeg_decompress_struct.mem takes, with its client_data set to this. Whatever libjpeg
  // allocates from then on lies here until Reset. Without memory, libjpeg's error_exit is called
  // with JERR_OUT_OF_MEMORY.
  jpeg_memory_mgr* manager() { return &manager_; }

  // Takes back all that was given out. Keeps one block for the next picture, unless it has more
  // than kScratchKeepBytes.
  void Reset();

  size_t held_bytes() const;

  // size_bytes, aligned to 64, for the manager's calls.
  uint8_t* Allocate(j_common_ptr info, size_t size_bytes);

 private:
  friend struct JpegMemoryCalls;

  struct Block {
    uint8_t* data;
    size_t size_bytes;
  };

  jpeg_memory_mgr manager_ = {};
  std::vector<Block> blocks_;  // the last one is in use
  size_t used_bytes_ = 0;      // of the last block
  jvirt_sarray_control* sample_arrays_ = nullptr;
  jvirt_barray_control* block_arrays_ = nullptr;
};

}  // namespace batchd
