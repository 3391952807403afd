// SPDX-License-Identifier: Apache-2.0
//
// EXIF, as far as it says which way up a picture is, and the first folder of the TIFF file that it
// is. Reads one folder and follows no pointer out of it, so it ends after at most 65,535 entries
// whatever the bytes say.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace batchd {

// 1 to 8 as in EXIF. `exif` is a TIFF header and what follows, with "Exif\0\0" in front or not.
// 1 if there is no orientation, or anything is wrong.
int ExifOrientation(std::span<const uint8_t> exif);

// Of a TIFF file (not a BigTIFF).
struct TiffFolder {
  int orientation = 1;
  // What the values outside the entries take together, as the entries have it.
  int64_t values_bytes = 0;
  // Where the values of the tags up to JPEGTables end that lie outside the entries: all that
  // decides pixels is among them.
  int64_t pixel_tags_end = 0;
};
// Nothing if the header or the folder does not lie inside the bytes.
std::optional<TiffFolder> ReadTiffFolder(std::span<const uint8_t> tiff);

}  // namespace batchd
