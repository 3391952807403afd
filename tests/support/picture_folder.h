// SPDX-License-Identifier: Apache-2.0
//
// A temporary folder of small pictures, as ImageFolder reads them, and the pipeline that the tests
// of whole sessions run over it.

#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "server/base/philox.h"
#include "server/session/manager.h"
#include "tests/support/memory_dataset.h"

namespace batchd {

// Two classes, `count` pictures in all: c0/000.ppm, c1/001.ppm, c0/002.ppm, …
class PictureFolder {
 public:
  explicit PictureFolder(int count) {
    std::string name = std::filesystem::temp_directory_path() / "batchd-pictures-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    for (int c = 0; c < 2; ++c) std::filesystem::create_directory(Class(c));
    for (int i = 0; i < count; ++i) {
      Draws draws({.seed = 7, .ordinal = static_cast<uint64_t>(i)});
      Write(i, EncodePpm(NoisePicture({12 + i % 5, 10 + i % 7}, &draws)));
    }
  }
  ~PictureFolder() { std::filesystem::remove_all(root_); }
  PictureFolder(const PictureFolder&) = delete;
  PictureFolder& operator=(const PictureFolder&) = delete;

  const std::string& root() const { return root_; }

  // Replaces the i-th picture by other bytes.
  void Write(int i, const std::vector<uint8_t>& bytes) {
    std::ofstream file(fmt::format("{}/{:03}.ppm", Class(i % 2), i), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good());
  }
  void Spoil(int i) { Write(i, {'P', '6', '\n', '1'}); }

  // A session over the folder: pictures of 8x8, random crops, and labels.
  OpenRequest Request(int64_t global_batch_size) const {
    OpenRequest request;
    request.dataset_name = "ImageFolder";
    request.dataset_arguments = {{"root", root_}};
    request.pipeline.columns = {
        {"image",
         {{"DecodeImage", {{"max_pixels", 10000}, {"max_encoded_bytes", 100000}}},
          {"RandomResizedCrop", {{"size", 8}}},
          {"RandomHorizontalFlip", Json::object()},
          {"ToTensor", Json::object()}}},
        {"label", {{"Label", Json::object()}}}};
    request.shuffle = Shuffle::kFeistel;
    request.last_batch = LastBatch::kPartial;
    request.seed = 3;
    request.global_batch_size = global_batch_size;
    request.prefetch = 2;
    return request;
  }

 private:
  std::string Class(int c) const { return fmt::format("{}/c{}", root_, c); }
  std::string root_;
};

}  // namespace batchd
