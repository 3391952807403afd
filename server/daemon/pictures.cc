// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/pictures.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
// After <cstdio>: the header uses FILE without including it.
#include <jpeglib.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "server/base/status.h"

namespace batchd {
namespace {

constexpr const char* kClasses[] = {"clouds", "meadow", "night", "stone"};
constexpr int kClassCount = 4;
constexpr int kTints[kClassCount][3] = {
    {150, 180, 230}, {90, 160, 60}, {40, 35, 90}, {140, 130, 120}};
constexpr int kQuality = 90;

// A cheap generator of its own state: a picture's noise needs a number for every pixel.
struct Noise {
  uint64_t state;
  uint32_t Next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
  }
};

struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;
};

// Random heights at the corners of a grid, linear between them, and noise on top: it compresses
// about as a photo does.
Picture Draw(int64_t number, const int (&tint)[3]) {
  Noise noise{static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15u + 1};
  Picture picture;
  picture.width = 320 + static_cast<int>(noise.Next() % 321);
  picture.height = 240 + static_cast<int>(noise.Next() % 241);
  picture.rgb.resize(static_cast<size_t>(picture.width) * picture.height * 3);
  constexpr int kCell = 32;
  const int columns = picture.width / kCell + 2;
  const int rows = picture.height / kCell + 2;
  std::vector<int> heights(static_cast<size_t>(columns) * rows);
  for (int& height : heights) height = static_cast<int>(noise.Next() % 128) - 64;

  uint8_t* out = picture.rgb.data();
  for (int y = 0; y < picture.height; ++y) {
    const int* const upper = &heights[static_cast<size_t>(y / kCell) * columns];
    const int* const lower = upper + columns;
    const int fy = y % kCell;
    for (int x = 0; x < picture.width; ++x) {
      const int cell = x / kCell;
      const int fx = x % kCell;
      const int top = upper[cell] * (kCell - fx) + upper[cell + 1] * fx;
      const int bottom = lower[cell] * (kCell - fx) + lower[cell + 1] * fx;
      const int height = (top * (kCell - fy) + bottom * fy) / (kCell * kCell);
      const int grain = static_cast<int>(noise.Next() % 25) - 12;
      for (const int base : tint) {
        const int value = base + height + grain;
        *out++ = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
      }
    }
  }
  return picture;
}

std::vector<uint8_t> Encode(const Picture& picture) {
  jpeg_compress_struct compress{};
  jpeg_error_mgr errors{};
  compress.err = jpeg_std_error(&errors);
  jpeg_create_compress(&compress);
  unsigned char* data = nullptr;
  unsigned long size_bytes = 0;
  jpeg_mem_dest(&compress, &data, &size_bytes);
  compress.image_width = static_cast<JDIMENSION>(picture.width);
  compress.image_height = static_cast<JDIMENSION>(picture.height);
  compress.input_components = 3;
  compress.in_color_space = JCS_RGB;
  jpeg_set_defaults(&compress);
  jpeg_set_quality(&compress, kQuality, TRUE);
  jpeg_start_compress(&compress, TRUE);
  while (compress.next_scanline < compress.image_height) {
    const size_t offset = static_cast<size_t>(compress.next_scanline) * picture.width * 3;
    // The library reads the row, though its type says otherwise.
    auto* row = const_cast<JSAMPLE*>(picture.rgb.data() + offset);
    jpeg_write_scanlines(&compress, &row, 1);
  }
  jpeg_finish_compress(&compress);
  std::vector<uint8_t> bytes(data, data + size_bytes);
  jpeg_destroy_compress(&compress);
  free(data);
  return bytes;
}

}  // namespace

absl::Status MakePictures(const std::string& folder, int64_t count) {
  for (const char* const name : kClasses) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(folder) / name, error);
    if (error) {
      return Err(absl::StatusCode::kPermissionDenied, "{}/{}: {}", folder, name, error.message());
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const int label = static_cast<int>(i % kClassCount);
    const std::vector<uint8_t> bytes = Encode(Draw(i, kTints[label]));
    const std::string path = fmt::format("{}/{}/{:06d}.jpg", folder, kClasses[label], i);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) return Err(absl::StatusCode::kUnavailable, "{}", ErrnoText("write " + path, errno));
  }
  return absl::OkStatus();
}

}  // namespace batchd
