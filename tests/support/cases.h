// SPDX-License-Identifier: Apache-2.0
//
// Reading the shared cases.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace batchd {

// BATCHD_CASES_DIR/<relative>.
inline std::string CasesPath(const std::string& relative) {
  return std::string(BATCHD_CASES_DIR) + "/" + relative;
}

inline std::vector<uint8_t> ReadFileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return nlohmann::json::parse(file);
}

}  // namespace batchd

// Skips the test if the folder of shared cases is not there.
#define BATCHD_NEEDS_CASES()                                                              \
  do {                                                                                    \
    if (!std::filesystem::is_directory(BATCHD_CASES_DIR)) {                               \
      GTEST_SKIP() << "no shared cases at " << BATCHD_CASES_DIR << ": nothing is tested"; \
    }                                                                                     \
  } while (false)
