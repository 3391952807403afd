// SPDX-License-Identifier: Apache-2.0
//
// What a JPEG 2000 file asks for, told from its headers, before openjpeg sees it: openjpeg
// allocates for every tile, precinct, code block and layer that a header names.

#pragma once

#include <cstdint>
#include <span>

namespace batchd {

struct Jp2Survey {
  enum class State : uint8_t {
    kWhole,      // all tile parts lie inside the bytes
    kTruncated,  // the bytes end before them
    kCorrupt,
  };
  State state = State::kCorrupt;
  bool has_size = false;  // the members below are set
  bool is_boxed = false;  // a JP2 file, not a bare codestream
  int64_t width = 0;
  int64_t height = 0;
  int channels = 0;
  bool is_subsampled = false;  // a channel has fewer samples than the picture has pixels
  int64_t tiles = 0;
  int palette_channels = 0;  // that an indexed picture becomes; 0: none
  // The most over all headers of what must be held or walked through, for all tiles.
  double precincts = 0;
  double code_blocks = 0;
  double packets = 0;  // precincts times layers
};

// Ends after time linear in the bytes.
Jp2Survey SurveyJp2(std::span<const uint8_t> bytes);

}  // namespace batchd
