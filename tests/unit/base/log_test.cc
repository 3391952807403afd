// SPDX-License-Identifier: Apache-2.0
#include "server/base/log.h"

#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "server/base/check.h"

namespace batchd {
namespace {

using log::FormatEvent;

TEST(LogTest, TextIsAnEventAndPairs) {
  EXPECT_EQ(FormatEvent(log::Format::kText, 'I', "session opened",
                        {{"id", 7}, {"transport", "shm"}, {"late", true}}),
            "I session opened id=7 transport=shm late=true");
}

TEST(LogTest, TextQuotesWhatWouldNotReadBack) {
  const auto value = [](std::string_view text) {
    return FormatEvent(log::Format::kText, 'W', "e", {{"k", text}}).substr(6);
  };
  EXPECT_EQ(value("plain/path-1.jpg"), "plain/path-1.jpg");
  EXPECT_EQ(value(""), "\"\"");
  EXPECT_EQ(value("a b"), "\"a b\"");
  EXPECT_EQ(value("a=b"), "\"a=b\"");
  EXPECT_EQ(value("say \"x\""), "\"say \\\"x\\\"\"");
  EXPECT_EQ(value("two\nlines"), "\"two\\nlines\"");  // never more than one line a record
}

TEST(LogTest, JsonIsAnObjectWithTypedValues) {
  const auto json = nlohmann::json::parse(FormatEvent(log::Format::kJson, 'E', "it \"failed\"",
                                                      {{"n", 7}, {"s", "x\ny"}, {"b", false}}));
  EXPECT_EQ(
      json,
      nlohmann::json(
          {{"level", "E"}, {"event", "it \"failed\""}, {"n", 7}, {"s", "x\ny"}, {"b", false}}));
}

TEST(LogTest, BytesThatAreNoTextStillGiveValidLines) {
  for (const log::Format format : {log::Format::kText, log::Format::kJson}) {
    const std::string line = FormatEvent(format, 'I', "e", {{"name", "\xFF.jpg"}});
    EXPECT_EQ(line.find('\xFF'), std::string::npos);
  }
}

TEST(LogTest, WritesLinesToStandardError) {
  testing::internal::CaptureStderr();
  log::Info("something happened", {{"percent", "100%"}, {"braces", "{}"}});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("Z I something happened percent=100% braces={}\n"), std::string::npos)
      << text;
}

TEST(LogTest, QuietLeavesErrors) {
  log::SetQuiet(true);
  testing::internal::CaptureStderr();
  log::Info("not this");
  log::Error("but this");
  const std::string text = testing::internal::GetCapturedStderr();
  log::SetQuiet(false);
  EXPECT_EQ(text.find("not this"), std::string::npos);
  EXPECT_NE(text.find("E but this\n"), std::string::npos);
}

TEST(CheckTest, ABrokenInvariantAbortsWithItsPlace) {
  EXPECT_DEATH(BATCHD_CHECK(1 + 1 == 3), "log_test.cc:[0-9]+: broken invariant: 1 \\+ 1 == 3");
  BATCHD_CHECK(true);
}

}  // namespace
}  // namespace batchd
