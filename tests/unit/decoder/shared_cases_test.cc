// SPDX-License-Identifier: Apache-2.0
//
// The pictures of ../shared/cases: what they must give, decoded whole.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using nlohmann::json;

const std::filesystem::path kCases = BATCHD_CASES_DIR;

ByteVector ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

bool Lists(const json& reasons, const absl::Status& status) {
  const auto reason = SampleReasonOf(status);
  if (!reason.has_value()) return false;
  for (const json& accepted : reasons) {
    if (accepted == SampleReasonName(*reason)) return true;
  }
  return false;
}

// Whether an error is a right answer, by `expect` itself or by what it also accepts.
bool AcceptsError(const json& expect, const absl::Status& status) {
  if (expect["result"] == "error" && Lists(expect["error"], status)) return true;
  for (const json& other : expect.value("also_accepted", json::array())) {
    if (other["result"] == "error" && Lists(other["error"], status)) return true;
  }
  return false;
}

struct Difference {
  int max = 0;
  double mean = 0;
};

Difference Compare(const ByteVector& a, const ByteVector& b) {
  Difference difference;
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const int d = std::abs(a[i] - b[i]);
    difference.max = std::max(difference.max, d);
    sum += d;
  }
  difference.mean = static_cast<double>(sum) / static_cast<double>(a.size());
  return difference;
}

// Returns whether the picture equals its reference in every sample.
bool ExpectPicture(const json& expect, const ByteVector& rgb) {
  auto reference = DecodeAnyWhole(ReadFile(kCases / expect["ref"].get<std::string>()));
  EXPECT_OK(reference);
  if (!reference.ok()) return false;
  const size_t size = expect["width"].get<size_t>() * expect["height"].get<size_t>() * 3;
  EXPECT_EQ(rgb.size(), size);
  EXPECT_EQ(reference->size(), size);
  if (rgb.size() != size || reference->size() != size) return false;
  const Difference difference = Compare(rgb, *reference);
  EXPECT_LE(difference.max, expect["tol"]["max_abs"].get<int>());
  EXPECT_LE(difference.mean, expect["tol"]["mean_abs"].get<double>());
  return difference.max == 0;
}

TEST(SharedCasesTest, EveryPictureGivesItsPixelsOrAnAcceptedError) {
  if (!std::filesystem::exists(kCases)) {
    GTEST_SKIP() << "no shared cases at " << kCases << ": nothing was checked";
  }
  const json expected = json::parse(std::ifstream(kCases / "expected.json"));
  int decoded_count = 0;
  int exact_count = 0;
  int refused_count = 0;
  for (const json& c : expected["cases"]) {
    if (c["group"] != "img") continue;
    SCOPED_TRACE(c["id"].get<std::string>());
    const json& expect = c["expect"];

    auto rgb = DecodeAnyWhole(ReadFile(kCases / c["file"].get<std::string>()));

    if (rgb.ok()) {
      EXPECT_EQ(expect["result"], "ok");
      if (expect["result"] != "ok") continue;
      ++decoded_count;
      if (ExpectPicture(expect, *rgb)) ++exact_count;
    } else {
      ++refused_count;
      EXPECT_TRUE(AcceptsError(expect, rgb.status())) << rgb.status();
    }
  }
  std::cout << decoded_count << " pictures decoded, " << exact_count
            << " of them equal to their reference in every sample; " << refused_count
            << " refused\n";
  EXPECT_GE(decoded_count, 54);  // those that no build may lack
  EXPECT_EQ(exact_count, decoded_count);
}

}  // namespace
}  // namespace batchd
