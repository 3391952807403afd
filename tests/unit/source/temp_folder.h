// SPDX-License-Identifier: Apache-2.0
//
// A new folder for one test, removed with everything in it.

#pragma once

#include <fcntl.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "server/base/check.h"
#include "server/io/unique_fd.h"

namespace batchd {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "batchd_test.XXXXXX").string();
    BATCHD_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string str() const { return path_.string(); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

  UniqueFd Open() const {
    UniqueFd fd(open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    BATCHD_CHECK(fd.is_open());
    return fd;
  }

  // Writes a file, with the folders that it lies in.
  void Write(std::string_view name, std::string_view bytes) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace batchd
