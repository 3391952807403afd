// SPDX-License-Identifier: Apache-2.0
#include "server/io/beneath.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "server/io/unique_fd.h"

namespace batchd {
namespace {

namespace fs = std::filesystem;

// base/secret, base/root/file, base/root/sub/deep, and links of every kind.
class BeneathTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "beneath.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    base_ = name;
    fs::create_directories(base_ / "root/sub");
    for (const char* file : {"secret", "root/file", "root/sub/deep"}) {
      std::ofstream(base_ / file) << file;
    }
    fs::create_symlink("sub/deep", base_ / "root/inside");
    fs::create_symlink("../file", base_ / "root/sub/up");
    fs::create_symlink("../secret", base_ / "root/outside");
    fs::create_symlink(base_ / "secret", base_ / "root/absolute");
    fs::create_symlink("..", base_ / "root/folder_outside");
    fs::create_symlink("circle", base_ / "root/circle");
    root_ = UniqueFd(open((base_ / "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(root_.is_open());
  }
  void TearDown() override { fs::remove_all(base_); }

  // 0 if it opened a descriptor that is closed on exec, else the errno value.
  static int Outcome(int fd) {
    const UniqueFd owner(fd);
    if (!owner.is_open()) return -fd;
    EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    return 0;
  }
  int Open(const std::string& path, Confinement confinement) {
    return Outcome(
        OpenBeneath(root_.get(), path.c_str(), O_RDONLY, confinement, OpenWait::kMayWait));
  }
  int OpenCached(const std::string& path, Confinement confinement) {
    return Outcome(
        OpenBeneath(root_.get(), path.c_str(), O_RDONLY, confinement, OpenWait::kCachedOnly));
  }
  int Walk(const std::string& path) {
    return Outcome(OpenBeneathByWalking(root_.get(), path.c_str(), O_RDONLY));
  }

  fs::path base_;
  UniqueFd root_;
};

TEST_F(BeneathTest, WhatIsInsideOpensConfinedOrNot) {
  for (const char* path : {"file", "sub/deep", "inside", "sub/up", "sub/../file", "./file"}) {
    EXPECT_EQ(Open(path, Confinement::kBeneath), 0) << path;
    EXPECT_EQ(Open(path, Confinement::kNone), 0) << path;
  }
}

TEST_F(BeneathTest, WhatLeadsOutsideOpensOnlyUnconfined) {
  const std::string secret = (base_ / "secret").string();
  for (const std::string& path :
       {std::string("../secret"), std::string("sub/../../secret"), std::string("outside"),
        std::string("absolute"), std::string("folder_outside/secret"), secret}) {
    EXPECT_EQ(Open(path, Confinement::kBeneath), EXDEV) << path;
    const int cached = OpenCached(path, Confinement::kBeneath);
    EXPECT_TRUE(cached == EXDEV || cached == EAGAIN) << path << ": " << cached;
    EXPECT_EQ(Open(path, Confinement::kNone), 0) << path;
  }
}

TEST_F(BeneathTest, LinksOfTheProcFilesystemDoNotLeadOut) {
  fs::create_symlink("/proc/self/fd/0", base_ / "root/magic");
  EXPECT_NE(Open("magic", Confinement::kBeneath), 0);
}

TEST_F(BeneathTest, ErrorsAreTheSystems) {
  for (const Confinement confinement : {Confinement::kNone, Confinement::kBeneath}) {
    EXPECT_EQ(Open("missing", confinement), ENOENT);
    EXPECT_EQ(Open("file/x", confinement), ENOTDIR);
    EXPECT_EQ(Open("circle", confinement), ELOOP);
    EXPECT_EQ(Open(std::string(300, 'x'), confinement), ENAMETOOLONG);
  }
}

TEST_F(BeneathTest, NamesThatAreInMemoryOpenWithoutWaiting) {
  ASSERT_EQ(Open("sub/deep", Confinement::kNone), 0);  // now they are
  for (const Confinement confinement : {Confinement::kNone, Confinement::kBeneath}) {
    const int outcome = OpenCached("sub/deep", confinement);
    // EAGAIN where the kernel has no RESOLVE_CACHED.
    EXPECT_TRUE(outcome == 0 || outcome == EAGAIN) << outcome;
  }
}

TEST_F(BeneathTest, WalkingOpensWhatIsInside) {
  for (const char* path : {"file", "sub/deep", "./file", "sub//deep", "sub/", "."}) {
    EXPECT_EQ(Walk(path), 0) << path;
  }
}

TEST_F(BeneathTest, WalkingLetsNothingLeadOutside) {
  const std::string secret = (base_ / "secret").string();
  EXPECT_EQ(Walk("../secret"), EXDEV);
  EXPECT_EQ(Walk("sub/../../secret"), EXDEV);
  EXPECT_EQ(Walk(".."), EXDEV);
  EXPECT_EQ(Walk(secret), EXDEV);
  EXPECT_EQ(Walk("outside"), ELOOP);
  EXPECT_EQ(Walk("absolute"), ELOOP);
  EXPECT_NE(Walk("folder_outside/secret"), 0);
}

TEST_F(BeneathTest, WalkingHasTheSystemsErrors) {
  EXPECT_EQ(Walk("missing"), ENOENT);
  EXPECT_EQ(Walk("missing/x"), ENOENT);
  EXPECT_EQ(Walk(""), ENOENT);
  EXPECT_EQ(Walk("file/x"), ENOTDIR);
  EXPECT_EQ(Walk("file/"), ENOTDIR);
  EXPECT_EQ(Walk(std::string(300, 'x')), ENAMETOOLONG);
}

TEST(UniqueFdTest, ClosesOnce) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  {
    UniqueFd a(ends[0]);
    UniqueFd b = std::move(a);
    EXPECT_FALSE(a.is_open());  // NOLINT: what a moved-from one is, is its contract
    EXPECT_EQ(b.get(), ends[0]);
  }
  EXPECT_EQ(fcntl(ends[0], F_GETFD), -1);
  UniqueFd c(ends[1]);
  EXPECT_EQ(c.Release(), ends[1]);
  EXPECT_FALSE(c.is_open());
  EXPECT_EQ(close(ends[1]), 0);
}

}  // namespace
}  // namespace batchd
