// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/exif.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace batchd {
namespace {

constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kJpegTablesTag = 0x015B;
constexpr uint32_t kShort = 3;
constexpr size_t kEntryBytes = 12;
constexpr int64_t kInlineBytes = 4;  // values of up to this lie in the entry itself

// Of the types 0 to 13; what is unknown counts like the longest.
int64_t TypeBytes(uint32_t type) {
  constexpr uint8_t kBytes[] = {8, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4};
  return type < sizeof(kBytes) ? kBytes[type] : 8;
}

// Numbers in the file's own byte order.
class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t Number(size_t at, int count) const {
    uint32_t value = 0;
    for (int i = 0; i < count; ++i) {
      value = value << 8 | bytes_[at + static_cast<size_t>(big_endian_ ? i : count - 1 - i)];
    }
    return value;
  }

 private:
  const std::span<const uint8_t> bytes_;
  const bool big_endian_;
};

}  // namespace

std::optional<TiffFolder> ReadTiffFolder(std::span<const uint8_t> tiff) {
  if (tiff.size() < 8) return std::nullopt;
  const bool big_endian = tiff[0] == 'M';
  if ((tiff[0] != 'M' && tiff[0] != 'I') || tiff[1] != tiff[0]) return std::nullopt;
  const Reader reader(tiff, big_endian);
  if (reader.Number(2, 2) != 42) return std::nullopt;
  size_t at = reader.Number(4, 4);
  if (at + 2 > tiff.size()) return std::nullopt;
  const size_t count = reader.Number(at, 2);
  at += 2;
  TiffFolder folder;
  for (size_t i = 0; i < count; ++i, at += kEntryBytes) {
    if (at + kEntryBytes > tiff.size()) return std::nullopt;
    const uint32_t tag = reader.Number(at, 2);
    const uint32_t type = reader.Number(at + 2, 2);
    const int64_t value_count = reader.Number(at + 4, 4);
    const int64_t value_bytes = value_count * TypeBytes(type);
    if (value_bytes > kInlineBytes) {
      folder.values_bytes += value_bytes;
      const int64_t end = int64_t{reader.Number(at + 8, 4)} + value_bytes;
      if (tag <= kJpegTablesTag) folder.pixel_tags_end = std::max(folder.pixel_tags_end, end);
    }
    if (tag == kOrientationTag && type == kShort && value_count == 1) {
      const auto value = static_cast<int>(reader.Number(at + 8, 2));
      folder.orientation = value >= 1 && value <= 8 ? value : 1;
    }
  }
  return folder;
}

int ExifOrientation(std::span<const uint8_t> exif) {
  if (exif.size() >= 6 && std::memcmp(exif.data(), "Exif\0\0", 6) == 0) exif = exif.subspan(6);
  const std::optional<TiffFolder> folder = ReadTiffFolder(exif);
  return folder.has_value() ? folder->orientation : 1;
}

}  // namespace batchd
