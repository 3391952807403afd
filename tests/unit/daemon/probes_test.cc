// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/probes.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace batchd {
namespace {

using ::testing::HasSubstr;

class HandClock : public Clock {
 public:
  TimePoint Now() override { return now; }
  TimePoint now{std::chrono::hours(1)};
};

class ProbesTest : public ::testing::Test {
 protected:
  HttpReply Get(const std::string& path) { return probes_.Routes().at(path)(); }

  Metrics metrics_;
  HandClock clock_;
  Probes probes_{&metrics_, &clock_};
};

TEST_F(ProbesTest, ALoopThatDoesNotBeatIsNotAliveUntilItBeatsAgain) {
  EXPECT_EQ(Get("/livez").status, 200);

  clock_.now += std::chrono::seconds(11);
  EXPECT_EQ(Get("/livez").status, 503);
  EXPECT_THAT(Get("/livez").body, HasSubstr("11 s"));
  probes_.Beat();

  EXPECT_EQ(Get("/livez").status, 200);
}

TEST_F(ProbesTest, ReadinessIsWhatTheDaemonSays) {
  EXPECT_EQ(Get("/readyz").status, 503);
  probes_.SetReady(true);
  EXPECT_EQ(Get("/readyz").status, 200);
  probes_.SetReady(false);
  EXPECT_EQ(Get("/readyz").status, 503);
}

TEST_F(ProbesTest, ThePageShowsTheSessions) {
  SessionStatusInfo session;
  session.session_id = 7;
  session.job = "train";
  session.source_name = "/data/train";
  probes_.SetSessions({session});

  const HttpReply page = Get("/");

  EXPECT_THAT(page.body, HasSubstr("7  job=train  rank 0/1"));
  EXPECT_THAT(page.body, HasSubstr("/data/train"));
  EXPECT_THAT(Get("/metrics").body, HasSubstr("batchd_sessions 0"));
}

}  // namespace
}  // namespace batchd
