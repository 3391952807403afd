// SPDX-License-Identifier: Apache-2.0
//
// Looks through the coded data of a JPEG by its markers, without decoding anything.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace batchd {

struct JpegScans {
  bool ends = false;  // An end-of-image marker comes after the scans.
  int64_t count = 1;  // Scans up to the end, the first one included.
  // What comes before a segment that the data end in; all of it if they end elsewhere.
  size_t whole_bytes = 0;
};

// `data` begins right after the first scan header. The end marker of this picture counts, not one
// inside a segment and not that of another picture behind it. Costs one pass of memchr.
JpegScans SurveyJpegScans(std::span<const uint8_t> data);

// The content of the first segment before the scan that begins with "Exif\0\0"; empty if there is
// none. `jpeg` is the whole picture.
std::span<const uint8_t> FindJpegExif(std::span<const uint8_t> jpeg);

}  // namespace batchd
