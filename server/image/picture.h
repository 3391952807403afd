// SPDX-License-Identifier: Apache-2.0
//
// Pictures in memory: 8-bit RGB, rows `stride_bytes` apart. They borrow.

#pragma once

#include <cstdint>

namespace batchd {

struct ConstPicture {
  const uint8_t* data = nullptr;
  int height = 0;
  int width = 0;
  int64_t stride_bytes = 0;
};
struct Picture {
  uint8_t* data = nullptr;
  int height = 0;
  int width = 0;
  int64_t stride_bytes = 0;
};

}  // namespace batchd
