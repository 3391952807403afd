// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "server/dataset/dataset.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/source/temp_folder.h"

namespace batchd {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

using OrDataset = absl::StatusOr<std::shared_ptr<const Dataset>>;

OrDataset Open(const std::string& root, const DatasetContext& context = {}) {
  return FindDataset("ImageFolder")->open({{"root", root}}, context);
}

// "name label" of every sample.
std::vector<std::string> SamplesOf(const Dataset& dataset) {
  std::vector<std::string> samples;
  for (int64_t i = 0; i < dataset.num_samples(); ++i) {
    samples.push_back(fmt::format("{} {}", dataset.NameOf(i), dataset.LabelOf(i)));
  }
  return samples;
}

std::pair<int64_t, int64_t> ChangeTime(const std::string& path) {
  struct stat st;
  EXPECT_EQ(stat(path.c_str(), &st), 0);
  return {st.st_ctim.tv_sec, st.st_ctim.tv_nsec};
}

class ImageFolderTest : public testing::Test {
 protected:
  void Write(std::initializer_list<const char*> names) const {
    for (const char* name : names) folder_.Write(name, "x");
  }
  std::shared_ptr<const Dataset> MustOpen(const DatasetContext& context = {}) const {
    auto dataset = Open(folder_.str(), context);
    EXPECT_OK(dataset);
    return *dataset;
  }
  DatasetContext Confined() const {
    DatasetContext context;
    context.any_root = false;
    context.roots = {folder_.str()};
    return context;
  }
  TempFolder folder_;
};

TEST_F(ImageFolderTest, FoldersOfAClassAreInByteOrderOfTheirWholePaths) {
  // "a-b" lies between "a" and "a/b", as '-' comes before '/'.
  Write({"c/z.jpg", "c/a/b/1.jpg", "c/a-b/2.jpg", "c/a/3.jpg", "c/B/4.jpg"});
  EXPECT_THAT(SamplesOf(*MustOpen()), ElementsAre("c/z.jpg 0", "c/B/4.jpg 0", "c/a/3.jpg 0",
                                                  "c/a-b/2.jpg 0", "c/a/b/1.jpg 0"));
}

TEST_F(ImageFolderTest, ClassesThatBeginAlikeStayApart) {
  Write({"a/x/1.jpg", "a-b/1.jpg", "a/1.jpg", "ab/1.jpg"});
  EXPECT_THAT(SamplesOf(*MustOpen()),
              ElementsAre("a/1.jpg 0", "a/x/1.jpg 0", "a-b/1.jpg 1", "ab/1.jpg 2"));
}

TEST_F(ImageFolderTest, ImagesAreTorchvisionsSuffixesInAnyCase) {
  Write({"c/a.jpg", "c/b.JPEG", "c/c.Png", "c/d.ppm", "c/e.bmp", "c/f.pgm", "c/g.tif", "c/h.TIFF",
         "c/i.webp", "c/j.gif", "c/k.jpgx", "c/ljpg", "c/m.jp", "c/n.jpg.txt", "c/o."});
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->num_samples(), 9);
  EXPECT_EQ(dataset->NameOf(8), "c/i.webp");
  EXPECT_THAT(dataset->warnings(), IsEmpty());
}

TEST_F(ImageFolderTest, EmptyClassesKeepTheirNumbers) {
  fs::create_directories(folder_ / "a");
  Write({"b/1.jpg", "d/1.jpg", "c/notes.txt", "e/.hidden.jpg"});
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->num_classes(), 5);
  EXPECT_THAT(SamplesOf(*dataset), ElementsAre("b/1.jpg 1", "d/1.jpg 3"));
}

TEST_F(ImageFolderTest, LoopsOfLinksEnd) {
  Write({"a/1.jpg", "a/sub/2.jpg", "b/3.jpg"});
  fs::create_symlink("..", folder_ / "a/to_root");
  fs::create_symlink("../sub", folder_ / "a/sub/to_self");
  fs::create_symlink("../b", folder_ / "a/other");  // no loop: b's images are a's as well
  fs::create_symlink("../a", folder_ / "b/back");
  fs::create_symlink(".", folder_ / "self_class");
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->num_classes(), 3);
  EXPECT_THAT(SamplesOf(*dataset),
              ElementsAre("a/1.jpg 0", "a/other/3.jpg 0", "a/sub/2.jpg 0", "b/3.jpg 1",
                          "b/back/1.jpg 1", "b/back/sub/2.jpg 1"));
  EXPECT_THAT(dataset->warnings(),
              testing::Contains(HasSubstr("links to a folder above themselves")));
}

TEST_F(ImageFolderTest, WhatIsLeftOutIsCountedWithAnExample) {
  Write({"a/1.jpg", "top.jpg"});
  fs::create_symlink("nowhere", folder_ / "a/gone1.jpg");
  fs::create_symlink("nowhere", folder_ / "a/gone2.jpg");
  ASSERT_EQ(mkfifo((folder_ / "a/fifo.jpg").c_str(), 0600), 0);
  const auto dataset = MustOpen();
  EXPECT_THAT(SamplesOf(*dataset), ElementsAre("a/1.jpg 0"));
  EXPECT_THAT(
      dataset->warnings(),
      ElementsAre(AllOf(StartsWith("left out 2 links that lead nowhere"), HasSubstr("gone")),
                  AllOf(StartsWith("left out 1 entries"), HasSubstr("a/fifo.jpg")),
                  AllOf(StartsWith("left out 1 images"), HasSubstr("top.jpg"))));
}

TEST_F(ImageFolderTest, LinksThatLeadOutAreFollowedOnlyByAPrivateDaemon) {
  TempFolder outside;
  outside.Write("o.jpg", "x");
  Write({"a/1.jpg"});
  fs::create_symlink(outside / "o.jpg", folder_ / "a/file.jpg");
  fs::create_symlink(outside.path(), folder_ / "a/folder");
  EXPECT_THAT(SamplesOf(*MustOpen()), ElementsAre("a/1.jpg 0", "a/file.jpg 0", "a/folder/o.jpg 0"));
  const auto confined = MustOpen(Confined());
  EXPECT_THAT(SamplesOf(*confined), ElementsAre("a/1.jpg 0"));
  EXPECT_THAT(confined->warnings(),
              ElementsAre(StartsWith("left out 2 links that lead outside the root")));
}

TEST_F(ImageFolderTest, NamesMayBeAnyBytes) {
  const std::string bytes = "a/\xFF\xE7\x8C\xAB\\\n.jpg";  // a byte that is none, then a cat
  folder_.Write(bytes, "x");
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->NameOf(0), "a/\\xff\xE7\x8C\xAB\\\\\n.jpg");
  EXPECT_FALSE(Json(dataset->NameOf(0)).dump().empty());  // dump() wants UTF-8
  SampleLocation location;
  dataset->Locate(0, &location);
  EXPECT_EQ(location.path, bytes);
  ReadBuffer buffer;
  EXPECT_OK(dataset->source()->Read(location, 100, &buffer));
}

TEST_F(ImageFolderTest, BrokenCharactersOfEveryKindAreEscaped) {
  for (const char* bad : {"\x80", "\xC1\x81", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE7\x8C", "\xC3"}) {
    TempFolder folder;
    folder.Write(fmt::format("c/{}.jpg", bad), "x");
    const auto dataset = Open(folder.str());
    ASSERT_OK(dataset);
    EXPECT_THAT((*dataset)->NameOf(0), StartsWith("c/\\x"));
    EXPECT_FALSE(Json((*dataset)->NameOf(0)).dump().empty());
  }
}

TEST_F(ImageFolderTest, AFlatFolderIsRefusedWithWhatIsWanted) {
  Write({"1.jpg", "2.jpg", ".thumbs/x.jpg"});
  const auto dataset = Open(folder_.str());
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, "no_classes"));
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, "2 images right under it"));
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, folder_.str() + "/cat/1.jpg"));
}

TEST_F(ImageFolderTest, AnEmptyFolderIsRefused) {
  EXPECT_THAT(Open(folder_.str()), FailsWith(StatusCode::kFailedPrecondition, "no_classes"));
}

TEST_F(ImageFolderTest, ClassesWithoutAnyImageAreRefusedWithTheSuffixes) {
  Write({"a/1.txt", "b/2.npy"});
  fs::create_symlink("nowhere", folder_ / "b/gone.jpg");
  const auto dataset = Open(folder_.str());
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, "no_samples"));
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, "2 class folders"));
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, ".jpg, .jpeg"));
  EXPECT_THAT(dataset, FailsWith(StatusCode::kFailedPrecondition, "b/gone.jpg"));
}

TEST_F(ImageFolderTest, ARootThatIsNoFolderIsNamed) {
  Write({"a/1.jpg"});
  EXPECT_THAT(Open(folder_ / "none"), FailsWith(StatusCode::kNotFound, folder_ / "none"));
  EXPECT_THAT(Open(folder_ / "a/1.jpg"), FailsWith(StatusCode::kNotFound, "is a file"));
  EXPECT_THAT(Open("data/train"), FailsWith(StatusCode::kNotFound, "\"data/train\""));
  EXPECT_THAT(Open(""), FailsWith(StatusCode::kNotFound, "absolute"));
}

TEST_F(ImageFolderTest, ASharedDaemonTellsNothingAboutWhatLiesOutside) {
  TempFolder outside;
  outside.Write("a/1.jpg", "x");
  Write({"in/a/1.jpg"});
  fs::create_symlink(outside.path(), folder_ / "link");
  EXPECT_OK(Open(folder_ / "in", Confined()));
  for (const std::string& path : {outside.str(), outside / "missing", folder_ / "link",
                                  folder_ / "../x", folder_.str() + "x"}) {
    EXPECT_THAT(Open(path, Confined()), FailsWith(StatusCode::kPermissionDenied, folder_.str()))
        << path;
  }
  EXPECT_THAT(Open(folder_ / "missing", Confined()), FailsWith(StatusCode::kNotFound, "missing"));
}

// Somebody exchanges the folder for a link that leads outside, over and over, while it is opened.
TEST_F(ImageFolderTest, ALinkThatComesBetweenCheckAndOpeningLeadsNowhere) {
  TempFolder outside;
  outside.Write("secret/1.jpg", "x");
  Write({"data/own/1.jpg"});
  fs::create_symlink(outside.path(), folder_ / "link");
  std::atomic<bool> ends{false};
  std::thread exchanger([&] {
    while (!ends) {
      renameat2(AT_FDCWD, (folder_ / "data").c_str(), AT_FDCWD, (folder_ / "link").c_str(),
                RENAME_EXCHANGE);
    }
  });
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto dataset = Open(folder_ / "data", Confined());
    if (!dataset.ok()) continue;
    ++opened;
    EXPECT_THAT(SamplesOf(**dataset), ElementsAre(StartsWith("own/"))) << "opening " << i;
  }
  ends = true;
  exchanger.join();
  EXPECT_GT(opened, 0);
}

TEST_F(ImageFolderTest, ARootWhosePathIsALinkIsTheSameData) {
  Write({"data/a/1.jpg"});
  fs::create_symlink("data", folder_ / "link");
  const auto straight = Open(folder_ / "data", Confined());
  const auto linked = Open(folder_ / "link", Confined());
  ASSERT_OK(straight);
  ASSERT_OK(linked);
  EXPECT_EQ((*straight)->fingerprint(), (*linked)->fingerprint());
}

TEST_F(ImageFolderTest, TheFingerprintTellsNamesLabelsAndClasses) {
  const auto print = [](std::initializer_list<const char*> names) {
    TempFolder folder;
    for (const char* name : names) {
      if (std::string_view(name).back() == '/') {
        fs::create_directories(folder / name);
      } else {
        folder.Write(name, "x");
      }
    }
    const auto dataset = Open(folder.str());
    EXPECT_OK(dataset);
    return (*dataset)->fingerprint();
  };
  const std::string base = print({"a/1.jpg", "b/2.jpg"});
  EXPECT_EQ(print({"b/2.jpg", "a/1.jpg", "a/no.txt", "a/empty/"}), base);
  EXPECT_NE(print({"a/1.jpg", "b/3.jpg"}), base);
  EXPECT_NE(print({"a/1.jpg", "b/2.jpg", "b/3.jpg"}), base);
  EXPECT_NE(print({"a/1.jpg", "b/2.jpg", "c/"}), base);   // one class more
  EXPECT_NE(print({"a/1.jpg", "aa/", "b/2.jpg"}), base);  // another label
  EXPECT_NE(print({"a/1.jpg", "a/2.jpg", "b/"}), base);
}

TEST_F(ImageFolderTest, IsStaleOnceAFolderAtAnyDepthHasChanged) {
  Write({"a/1.jpg", "a/sub/2.jpg", "b/3.jpg"});
  fs::create_directories(folder_ / "empty/deep");
  for (const char* place : {".", "a", "a/sub", "b", "empty", "empty/deep"}) {
    const auto dataset = MustOpen();
    EXPECT_FALSE(dataset->IsStale());
    // A change in the tick of the clock in which the folder was listed cannot be seen.
    const std::string folder = folder_ / place;
    const auto before = ChangeTime(folder);
    while (ChangeTime(folder) == before) {
      folder_.Write(std::string(place) + "/new.jpg", "x");
      fs::remove(folder + "/new.jpg");
    }
    EXPECT_TRUE(dataset->IsStale()) << place;
  }
}

// A client waits for what may pass; anything else would end its run.
TEST_F(ImageFolderTest, WithoutDescriptorsItIsUnavailableAndNothingElse) {
#ifdef BATCHD_UNDER_ASAN
  GTEST_SKIP() << "UBSan's look at a vtable takes descriptors itself, and makes a report without";
#endif
  Write({"a/1.jpg", "b/c/2.jpg"});
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int lowest = dup(0);
  close(lowest);
  int refused_count = 0;
  for (int free = 0; free < 8; ++free) {
    const rlimit few{static_cast<rlim_t>(lowest + free), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const OrDataset dataset = Open(folder_.str());
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    if (dataset.ok()) continue;
    ++refused_count;
    EXPECT_EQ(dataset.status().code(), StatusCode::kUnavailable) << free << dataset.status();
  }
  EXPECT_GT(refused_count, 1);
  EXPECT_LT(refused_count, 8);
}

TEST_F(ImageFolderTest, TheIndexTakesFewBytesBeyondTheNames) {
  int64_t names_bytes = 0, count = 0;
  for (int c = 0; c < 20; ++c) {
    fs::create_directories(folder_ / fmt::format("n{:08d}", c));
    for (int i = 0; i < 1000; ++i) {
      const std::string name = fmt::format("n{:08d}/n{:08d}_{}.JPEG", c, c, i);
      std::ofstream(folder_ / name);
      names_bytes += static_cast<int64_t>(name.size());
      ++count;
    }
  }
  const auto dataset = MustOpen();
  ASSERT_EQ(dataset->num_samples(), count);
  EXPECT_LE(dataset->index_bytes(), names_bytes + 8 * count);  // the folders' paths are kept once
}

TEST_F(ImageFolderTest, TheIndexIsSmallEvenWithAFolderForEachSample) {
  int64_t names_bytes = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = fmt::format("c{}/{}/x.jpg", i % 500, i);
    folder_.Write(name, "");
    names_bytes += static_cast<int64_t>(name.size());
  }
  EXPECT_LE(MustOpen()->index_bytes(), names_bytes + 60 * 1000 + 500 * 40);
}

}  // namespace
}  // namespace batchd
