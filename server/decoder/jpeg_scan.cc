// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/jpeg_scan.h"

#include <cstring>

namespace batchd {
namespace {

constexpr uint8_t kSof0 = 0xC0;  // The first marker that begins a segment.
constexpr uint8_t kRst0 = 0xD0;
constexpr uint8_t kSoi = 0xD8;
constexpr uint8_t kEoi = 0xD9;
constexpr uint8_t kSos = 0xDA;
constexpr uint8_t kApp1 = 0xE1;

// Restart markers and a second start stand alone; so does everything below SOF0, where 00 is a
// stuffed data byte and the rest is not defined.
bool StandsAlone(uint8_t marker) { return marker < kSof0 || (marker >= kRst0 && marker <= kSoi); }

}  // namespace

JpegScans SurveyJpegScans(std::span<const uint8_t> data) {
  JpegScans scans;
  scans.whole_bytes = data.size();
  const uint8_t* at = data.data();
  const uint8_t* const end = at + data.size();
  while (at < end) {
    at = static_cast<const uint8_t*>(std::memchr(at, 0xFF, end - at));
    if (at == nullptr) return scans;
    while (at < end && *at == 0xFF) ++at;  // A marker may be preceded by any number of these.
    if (at == end) return scans;
    const uint8_t marker = *at++;
    if (marker == kEoi) {
      scans.ends = true;
      return scans;
    }
    if (StandsAlone(marker)) continue;
    // Skipped whole: what looks like an end marker in there is part of a table or a thumbnail.
    const int64_t length = end - at < 2 ? 2 : at[0] << 8 | at[1];
    if (length > end - at) {
      scans.whole_bytes = static_cast<size_t>(at - 2 - data.data());
      return scans;
    }
    if (marker == kSos) ++scans.count;
    at += length;
  }
  return scans;
}

std::span<const uint8_t> FindJpegExif(std::span<const uint8_t> jpeg) {
  size_t at = 2;  // behind the start marker
  while (true) {
    // As in libjpeg, anything may stand before a marker.
    while (at < jpeg.size() && jpeg[at] != 0xFF) ++at;
    while (at < jpeg.size() && jpeg[at] == 0xFF) ++at;
    if (at >= jpeg.size()) return {};
    const uint8_t marker = jpeg[at++];
    if (marker == kSos || marker == kEoi) return {};
    if (StandsAlone(marker)) continue;
    if (jpeg.size() - at < 2) return {};
    const size_t length = static_cast<size_t>(jpeg[at] << 8 | jpeg[at + 1]);
    if (length < 2 || length > jpeg.size() - at) return {};
    const std::span<const uint8_t> content = jpeg.subspan(at + 2, length - 2);
    if (marker == kApp1 && content.size() >= 6 && std::memcmp(content.data(), "Exif\0\0", 6) == 0) {
      return content;
    }
    at += length;
  }
}

}  // namespace batchd
