// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "server/source/source.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/source/temp_folder.h"

namespace batchd {
namespace {

namespace fs = std::filesystem;
constexpr size_t kNoLimit = size_t{1} << 40;

class FileSourceTest : public testing::TestWithParam<Confinement> {
 protected:
  std::unique_ptr<Source> MakeSource() { return MakeFileSource(folder_.Open(), GetParam()); }
  absl::Status Read(const std::string& path) {
    return MakeSource()->Read({path}, kNoLimit, &buffer_);
  }
  void ExpectBad(const std::string& path, SampleReason reason) {
    EXPECT_THAT(Read(path), IsBadSample(reason)) << path;
    const auto tried = MakeSource()->TryRead({path}, kNoLimit, &buffer_);
    if (!tried.ok()) {
      EXPECT_THAT(tried, IsBadSample(reason)) << path;
    } else {
      EXPECT_EQ(*tried, TryReadResult::kWouldWait) << path;
    }
  }

  TempFolder folder_;
  ReadBuffer buffer_;
};
INSTANTIATE_TEST_SUITE_P(Confinement, FileSourceTest,
                         testing::Values(Confinement::kNone, Confinement::kBeneath),
                         [](const auto& param) {
                           return param.param == Confinement::kBeneath ? "Beneath" : "Anywhere";
                         });

TEST_P(FileSourceTest, AFolderIsNotAFile) {
  fs::create_directory(folder_ / "dir.jpg");
  ExpectBad("dir.jpg", SampleReason::kNotAFile);
}

TEST_P(FileSourceTest, AFifoIsNotAFileAndIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "fifo.jpg").c_str(), 0600), 0);
  ExpectBad("fifo.jpg", SampleReason::kNotAFile);
}

TEST_P(FileSourceTest, ASocketIsNotAFile) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  const std::string path = folder_ / "s.jpg";
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  memcpy(address.sun_path, path.c_str(), path.size() + 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ExpectBad("s.jpg", SampleReason::kNotAFile);
  close(fd);
}

TEST_P(FileSourceTest, NamesThatCannotBeFilesAreNotFoundWithTheSystemsWords) {
  folder_.Write("file.jpg", "x");
  fs::create_symlink("loop.jpg", folder_ / "loop.jpg");
  fs::create_symlink("gone.jpg", folder_ / "broken.jpg");
  ExpectBad("file.jpg/below.jpg", SampleReason::kNotFound);
  ExpectBad("loop.jpg", SampleReason::kNotFound);
  ExpectBad("broken.jpg", SampleReason::kNotFound);
  ExpectBad(std::string(400, 'n'), SampleReason::kNotFound);
  EXPECT_THAT(Read("broken.jpg"),
              FailsWith(absl::StatusCode::kDataLoss, "No such file or directory"));
}

TEST_P(FileSourceTest, AFileWithoutPermissionIsNotFound) {
  folder_.Write("secret.jpg", "x");
  ASSERT_EQ(chmod((folder_ / "secret.jpg").c_str(), 0), 0);
  if (geteuid() == 0) GTEST_SKIP() << "root reads everything";
  ExpectBad("secret.jpg", SampleReason::kNotFound);
}

TEST_P(FileSourceTest, LinksInsideAreFollowed) {
  folder_.Write("a/x.jpg", "content");
  fs::create_symlink("../a/x.jpg", folder_ / "a/y.jpg");
  EXPECT_OK(Read("a/y.jpg"));
}

TEST_P(FileSourceTest, LinksThatLeadOutsideAreFollowedOnlyWhenTheyMay) {
  TempFolder outside;
  outside.Write("x.jpg", "secret");
  fs::create_symlink(outside / "x.jpg", folder_ / "link.jpg");
  const bool beneath = GetParam() == Confinement::kBeneath;
  if (beneath) {
    ExpectBad("link.jpg", SampleReason::kNotFound);
    ExpectBad(outside / "x.jpg", SampleReason::kNotFound);
  } else {
    EXPECT_OK(Read("link.jpg"));
    EXPECT_OK(Read(outside / "x.jpg"));
  }
}

TEST_P(FileSourceTest, ErrorsOfTheProcessMayPass) {
  folder_.Write("x.jpg", "x");
  const auto source = MakeSource();
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  const int next = dup(0);  // the lowest free number: with it as the limit none can be opened
  ASSERT_GE(next, 0);
  close(next);
  const rlimit none = {static_cast<rlim_t>(next), old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = source->Read({"x.jpg"}, kNoLimit, &buffer_);
  const auto tried = source->TryRead({"x.jpg"}, kNoLimit, &buffer_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnavailable, "Too many open files"));
  EXPECT_TRUE(!tried.ok() ? absl::IsUnavailable(tried.status())
                          : *tried == TryReadResult::kWouldWait);
}

TEST_P(FileSourceTest, WhatIsInMemoryIsReadAtOnce) {
  folder_.Write("x.jpg", std::string(300'000, 'x'));  // written: in the page cache
  const auto source = MakeSource();
  ASSERT_OK(source->Read({"x.jpg"}, kNoLimit, &buffer_));
  const auto tried = source->TryRead({"x.jpg"}, kNoLimit, &buffer_);
  ASSERT_OK(tried);
  struct statfs where;
  ASSERT_EQ(statfs(folder_.str().c_str(), &where), 0);
  // ext4 and tmpfs can tell; of others nothing is promised.
  if (where.f_type == 0xEF53 || where.f_type == 0x01021994) {
    EXPECT_EQ(*tried, TryReadResult::kRead);
  }
}

TEST_P(FileSourceTest, WhatIsNotInMemoryIsLeftToTheReaders) {
  const std::string bytes(1 << 20, 'x');
  folder_.Write("x.jpg", bytes);
  const int fd = open((folder_ / "x.jpg").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(fdatasync(fd), 0);
  ASSERT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  struct statfs where;
  ASSERT_EQ(fstatfs(fd, &where), 0);
  close(fd);
  if (where.f_type != 0xEF53) GTEST_SKIP() << "only ext4 is known to forget when it is told to";
  const auto source = MakeSource();
  const auto tried = source->TryRead({"x.jpg"}, kNoLimit, &buffer_);
  ASSERT_OK(tried);
  EXPECT_EQ(*tried, TryReadResult::kWouldWait);
  ASSERT_OK(source->Read({"x.jpg"}, kNoLimit, &buffer_));
  EXPECT_TRUE(std::ranges::equal(buffer_.bytes(), bytes));
}

TEST_P(FileSourceTest, DescriptorsAreClosed) {
  folder_.Write("x.jpg", "x");
  fs::create_directory(folder_ / "dir.jpg");
  const auto source = MakeSource();
  const int before = dup(0);
  close(before);
  for (int i = 0; i < 10; ++i) {
    for (const char* path : {"x.jpg", "dir.jpg", "none.jpg"}) {
      (void)source->Read({path}, kNoLimit, &buffer_);
      (void)source->TryRead({path}, kNoLimit, &buffer_);
    }
  }
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after);
}

TEST(ReadBufferTest, GrowsAndNeverShrinksByItself) {
  ReadBuffer buffer;
  EXPECT_TRUE(buffer.bytes().empty());
  buffer.Resize(1000);
  const size_t capacity_bytes = buffer.capacity_bytes();
  EXPECT_GE(capacity_bytes, 1000u);
  const uint8_t* const data = buffer.Resize(10);
  EXPECT_EQ(buffer.bytes().size(), 10u);
  EXPECT_EQ(buffer.Resize(capacity_bytes), data);  // no new allocation
  EXPECT_EQ(buffer.capacity_bytes(), capacity_bytes);
  buffer.Free();
  EXPECT_EQ(buffer.capacity_bytes(), 0u);
  EXPECT_TRUE(buffer.bytes().empty());
}

}  // namespace
}  // namespace batchd
