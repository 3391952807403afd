// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/jp2_survey.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace batchd {
namespace {

using Bytes = std::span<const uint8_t>;
using State = Jp2Survey::State;

constexpr uint32_t kBoxHeader = 0x6A703268;      // "jp2h"
constexpr uint32_t kBoxPalette = 0x70636C72;     // "pclr"
constexpr uint32_t kBoxMapping = 0x636D6170;     // "cmap"
constexpr uint32_t kBoxCodestream = 0x6A703263;  // "jp2c"
constexpr uint16_t kSoc = 0xFF4F;
constexpr uint16_t kSiz = 0xFF51;
constexpr uint16_t kCod = 0xFF52;
constexpr uint16_t kCoc = 0xFF53;
constexpr uint16_t kSot = 0xFF90;
constexpr uint16_t kSod = 0xFF93;
constexpr uint16_t kEoc = 0xFFD9;
constexpr size_t kSizBytes = 38;  // before the channels
constexpr int kLevelsMax = 32;

uint32_t Number(Bytes bytes, size_t at, int count) {
  uint32_t value = 0;
  for (int i = 0; i < count; ++i) value = value << 8 | bytes[at + static_cast<size_t>(i)];
  return value;
}

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How one channel is cut up: the tail of COD and COC.
struct Coding {
  int levels = 0;
  int block_bits = 0;  // log2 of the pixels of a code block
  bool has_precincts = false;
  Bytes precincts;  // one byte for each resolution
};

class Survey {
 public:
  Jp2Survey Run(Bytes bytes) {
    if (bytes.size() >= 2 && Number(bytes, 0, 2) == kSoc) {
      result_.state = Codestream(bytes);
    } else {
      result_.is_boxed = true;
      result_.state = Boxes(bytes);
    }
    return result_;
  }

 private:
  // Calls `visit`(type, content) until it says stop. False if a box reaches out of the bytes; that
  // box's content is cut then.
  template <typename Visit>
  static bool ForEachBox(Bytes bytes, const Visit& visit) {
    for (size_t at = 0; at + 8 <= bytes.size();) {
      uint64_t size = Number(bytes, at, 4);
      const uint32_t type = Number(bytes, at + 4, 4);
      size_t head = 8;
      if (size == 1) {
        if (at + 16 > bytes.size()) return false;
        size = uint64_t{Number(bytes, at + 8, 4)} << 32 | Number(bytes, at + 12, 4);
        head = 16;
      }
      const uint64_t left = bytes.size() - at;
      if (size == 0) size = left;
      if (size < head) return false;
      const bool is_cut = size > left;
      if (!visit(type, bytes.subspan(at + head, std::min(size, left) - head))) return true;
      if (is_cut) return false;
      at += size;
    }
    return true;
  }

  State Boxes(Bytes bytes) {
    State state = State::kTruncated;  // without a codestream
    ForEachBox(bytes, [&](uint32_t type, Bytes content) {
      if (type == kBoxHeader) HeaderBox(content);
      if (type != kBoxCodestream) return true;
      state = Codestream(content);
      return false;
    });
    return state;
  }

  void HeaderBox(Bytes bytes) {
    ForEachBox(bytes, [&](uint32_t type, Bytes content) {
      if (type == kBoxPalette && content.size() >= 3) AddPalette(content[2]);
      if (type == kBoxMapping) AddPalette(static_cast<int>(content.size() / 4));
      return true;
    });
  }
  void AddPalette(int channels) {
    result_.palette_channels = std::max(result_.palette_channels, channels);
  }

  State Codestream(Bytes bytes) {
    if (bytes.size() < 4) return State::kTruncated;
    if (Number(bytes, 0, 2) != kSoc || Number(bytes, 2, 2) != kSiz) return State::kCorrupt;
    size_t at = 2;
    size_t part_at = 0;     // of the tile part whose header this is, 0 in the main header
    size_t part_bytes = 0;  // 0: up to the end
    while (true) {
      if (at + 2 > bytes.size()) return State::kTruncated;
      const uint32_t marker = Number(bytes, at, 2);
      if (marker == kEoc && part_at != 0) return State::kWhole;
      if (marker == kSod) {
        if (part_at == 0) return State::kCorrupt;
        if (part_bytes == 0) return EndsWithEoc(bytes) ? State::kWhole : State::kTruncated;
        if (part_bytes > bytes.size() - part_at) return State::kTruncated;
        if (part_at + part_bytes < at + 2) return State::kCorrupt;
        at = part_at + part_bytes;
        // Some writers leave the end marker out.
        if (at == bytes.size()) return State::kWhole;
        continue;
      }
      if (at + 4 > bytes.size()) return State::kTruncated;
      const size_t length = Number(bytes, at + 2, 2);
      if (length < 2) return State::kCorrupt;
      if (length > bytes.size() - at - 2) return State::kTruncated;
      const Bytes segment = bytes.subspan(at + 4, length - 2);
      if (marker == kSot) {
        if (segment.size() < 8 || Number(segment, 0, 2) >= result_.tiles) return State::kCorrupt;
        part_at = at;
        part_bytes = Number(segment, 2, 4);
      } else if (!Segment(marker, segment)) {
        return State::kCorrupt;
      }
      at += 2 + length;
    }
  }

  static bool EndsWithEoc(Bytes bytes) {
    return bytes.size() >= 2 && Number(bytes, bytes.size() - 2, 2) == kEoc;
  }

  bool Segment(uint32_t marker, Bytes segment) {
    if (marker == kSiz) return !result_.has_size && Size(segment);
    if (!result_.has_size) return false;
    if (marker == kCod) {
      if (segment.size() < 10) return false;
      layers_ = std::max<int64_t>(layers_, Number(segment, 2, 2));
      return AddCoding(segment[0], segment.subspan(5));
    }
    if (marker == kCoc) {
      if (segment.size() < 7) return false;
      return AddCoding(segment[1], segment.subspan(2));
    }
    return true;
  }

  bool Size(Bytes segment) {
    if (segment.size() < kSizBytes - 2) return false;
    int64_t number[8];
    for (size_t i = 0; i < 8; ++i) number[i] = Number(segment, 2 + 4 * i, 4);
    result_.width = number[0] - number[2];
    result_.height = number[1] - number[3];
    result_.channels = static_cast<int>(Number(segment, 34, 2));
    if (segment.size() < 36 + 3 * static_cast<size_t>(result_.channels)) return false;
    for (int c = 0; c < result_.channels; ++c) {
      const size_t at = 36 + 3 * static_cast<size_t>(c);
      if (segment[at + 1] != 1 || segment[at + 2] != 1) result_.is_subsampled = true;
    }
    if (number[4] < 1 || number[5] < 1 || result_.width < 1 || result_.height < 1) return false;
    // More than kTilesMax of them are too many anyhow.
    constexpr int64_t kTilesMax = 1 << 20;
    const int64_t across = CeilDiv(number[0] - std::min(number[6], number[0]), number[4]);
    const int64_t down = CeilDiv(number[1] - std::min(number[7], number[1]), number[5]);
    tiles_across_ = std::min(across, kTilesMax);
    tiles_down_ = std::min(down, kTilesMax);
    result_.tiles = tiles_across_ * tiles_down_;
    result_.has_size = true;
    return true;
  }

  // `tail` begins with the number of levels.
  bool AddCoding(uint8_t style, Bytes tail) {
    Coding coding;
    coding.levels = tail[0];
    if (coding.levels > kLevelsMax || tail[1] > 8 || tail[2] > 8) return false;
    coding.block_bits = tail[1] + 2 + tail[2] + 2;
    coding.has_precincts = (style & 1) != 0;
    coding.precincts = tail.subspan(5);
    if (coding.has_precincts && coding.precincts.size() < static_cast<size_t>(coding.levels) + 1) {
      return false;
    }
    Count(coding);
    return true;
  }

  // As if all channels of all tiles were coded like this one. In double: the numbers of a header
  // may be anything, and only the small ones matter.
  void Count(const Coding& coding) {
    const double width = static_cast<double>(std::max<int64_t>(result_.width, 1));
    const double height = static_cast<double>(std::max<int64_t>(result_.height, 1));
    double precincts = 0;
    for (int r = 0; r <= coding.levels; ++r) {
      const int shrink = coding.levels - r;
      const uint8_t sizes = coding.has_precincts ? coding.precincts[static_cast<size_t>(r)] : 0xFF;
      const double across = width / Power(shrink + (sizes & 15)) + 1 + double(tiles_across_);
      const double down = height / Power(shrink + (sizes >> 4)) + 1 + double(tiles_down_);
      precincts += across * down;
    }
    precincts *= result_.channels;
    // Each precinct begins blocks of its own, in up to three bands.
    const double blocks =
        result_.channels * (width * height / Power(coding.block_bits) + 1) + 3 * precincts;
    result_.precincts = std::max(result_.precincts, precincts);
    result_.code_blocks = std::max(result_.code_blocks, blocks);
    result_.packets = result_.precincts * double(std::max<int64_t>(layers_, 1));
  }

  static double Power(int bits) { return std::ldexp(1.0, bits); }

  Jp2Survey result_;
  int64_t tiles_across_ = 1;
  int64_t tiles_down_ = 1;
  int64_t layers_ = 1;
};

}  // namespace

Jp2Survey SurveyJp2(std::span<const uint8_t> bytes) { return Survey().Run(bytes); }

}  // namespace batchd
