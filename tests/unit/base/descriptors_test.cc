// SPDX-License-Identifier: Apache-2.0
#include "server/base/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace batchd {
namespace {

// What is reserved holds for the whole process, so each test has one of its own.
class DescriptorsDeathTest : public testing::Test {
 protected:
  static int Lowest() {
    const int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
  }
  static void Limit(int count) {
    const rlimit files{static_cast<rlim_t>(count), static_cast<rlim_t>(count)};
    if (setrlimit(RLIMIT_NOFILE, &files) != 0) std::abort();
  }
};

TEST_F(DescriptorsDeathTest, NothingIsReservedBeforeAnybodyHasAsked) {
  EXPECT_FALSE(IsReserved(Lowest()));
  EXPECT_FALSE(IsReserved(1 << 20));
}

TEST_F(DescriptorsDeathTest, TheLastOnesAreReserved) {
  const auto check = [] {
    Limit(Lowest() + 30);
    const int first = Lowest() + 20;
    const bool ok = ReserveDescriptors(10, 20).ok() && !IsReserved(first - 1) &&
                    IsReserved(first) && IsReserved(first + 9);
    std::exit(ok ? 0 : 1);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0), "");
}

TEST_F(DescriptorsDeathTest, TooFewAreRefusedWithWhatThereIsAndWhatIsWanted) {
  const auto check = [] {
    const int lowest = Lowest();
    Limit(lowest + 29);
    const absl::Status status = ReserveDescriptors(10, 20);
    std::fprintf(stderr, "[%.*s] is=%d wanted=%d\n", static_cast<int>(status.message().size()),
                 status.message().data(), lowest + 29, lowest + 30);
    std::exit(status.code() == absl::StatusCode::kResourceExhausted ? 0 : 1);
  };
  EXPECT_EXIT(check(), testing::ExitedWithCode(0),
              "open [0-9]+ files.*ulimit -n.*or more\\] is=[0-9]+ wanted=[0-9]+");
}

}  // namespace
}  // namespace batchd
