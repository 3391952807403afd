// SPDX-License-Identifier: Apache-2.0
//
// The index on disk: the cache in the state folder, and the file that travels with the data.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iterator>
#include <random>

#include "server/base/clock.h"
#include "server/dataset/dataset.h"
#include "server/dataset/folder_index.h"
#include "server/dataset/folder_scan.h"
#include "server/io/unique_fd.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/source/temp_folder.h"

namespace batchd {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;

class IndexCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"data/a/1.jpg", "data/a/sub/2.jpg", "data/b/3.jpg"}) {
      folder_.Write(name, "x");
    }
    fs::create_directories(folder_ / "data/empty");
    context_.state_dir = folder_ / "state";
    root_fd_ = UniqueFd(open(root().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  std::string root() const { return folder_ / "data"; }
  std::shared_ptr<const Dataset> Open() const {
    auto dataset = FindDataset("ImageFolder")->open({{"root", root()}}, context_);
    EXPECT_OK(dataset);
    return *dataset;
  }
  absl::Status OpenStatus() const {
    return FindDataset("ImageFolder")->open({{"root", root()}}, context_).status();
  }
  FolderIndex Scan() const { return *ScanFolder(root_fd_.get(), root(), Confinement::kNone); }
  std::vector<fs::path> CacheFiles() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(context_.state_dir)) files.push_back(entry);
    return files;
  }
  // Until what was written so far counts as old: the cache is not believed before.
  static void LetTheClockTick() {
    const int64_t end_ns = FileTimeNs() + 30'000'000;
    while (FileTimeNs() < end_ns) {
    }
  }
  // Puts a sentence into the cached index, by which it is known when it is used.
  void MarkCache() const {
    const auto files = CacheFiles();
    ASSERT_EQ(files.size(), 1u);
    auto index = ReadFolderIndex(AT_FDCWD, files[0].c_str());
    ASSERT_OK(index);
    index->warnings = "from the cache\n";
    ASSERT_OK(WriteFolderIndex(*index, files[0].string()));
  }
  bool IsFromCache() const {
    return Open()->warnings() == std::vector<std::string>{"from the cache"};
  }
  static std::string Slurp(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void Spill(const fs::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  TempFolder folder_;
  DatasetContext context_;
  UniqueFd root_fd_;
};

TEST_F(IndexCacheTest, AnUnchangedFolderIsReadFromTheCache) {
  LetTheClockTick();
  const auto fresh = Open();
  MarkCache();
  EXPECT_TRUE(IsFromCache());
  const auto cached = Open();
  EXPECT_EQ(cached->fingerprint(), fresh->fingerprint());
  EXPECT_FALSE(cached->IsStale());
  for (int64_t i = 0; i < fresh->num_samples(); ++i) {
    EXPECT_EQ(cached->NameOf(i), fresh->NameOf(i));
    EXPECT_EQ(cached->LabelOf(i), fresh->LabelOf(i));
  }
}

TEST_F(IndexCacheTest, AFolderChangedJustBeforeItWasListedIsListedAgain) {
  folder_.Write("data/a/new.jpg", "x");
  FolderIndex index = Scan();
  EXPECT_TRUE(StampsMatch(root_fd_.get(), index));
  EXPECT_FALSE(StampsMatchSurely(root_fd_.get(), index));
  LetTheClockTick();
  EXPECT_TRUE(StampsMatchSurely(root_fd_.get(), Scan()));
}

TEST_F(IndexCacheTest, AChangedFolderAtAnyDepthIsListedAgain) {
  for (const char* name :
       {"data/new/1.jpg", "data/a/x.jpg", "data/a/sub/x.jpg", "data/empty/x.jpg"}) {
    LetTheClockTick();
    Open();
    MarkCache();
    ASSERT_TRUE(IsFromCache());
    folder_.Write(name, "x");
    const auto dataset = Open();
    EXPECT_THAT(dataset->warnings(), IsEmpty()) << name;
    int found = 0;
    for (int64_t i = 0; i < dataset->num_samples(); ++i) {
      found += "data/" + dataset->NameOf(i) == name;
    }
    EXPECT_EQ(found, 1) << name;
  }
}

TEST_F(IndexCacheTest, ATimeThatWasSetBackDoesNotHideAChange) {
  LetTheClockTick();
  Open();
  MarkCache();
  const auto time = fs::last_write_time(folder_ / "data/a");
  folder_.Write("data/a/new.jpg", "x");
  fs::last_write_time(folder_ / "data/a", time);
  EXPECT_FALSE(IsFromCache());
}

TEST_F(IndexCacheTest, ADamagedCacheIsMadeAgain) {
  LetTheClockTick();
  const std::string fingerprint = Open()->fingerprint();
  const fs::path path = CacheFiles().at(0);
  const std::string good = Slurp(path);
  std::string other_version = good;
  other_version[8] ^= 1;
  for (const std::string& bad : {std::string(), good.substr(0, 50), good.substr(0, good.size() - 1),
                                 good + "x", std::string(5000, 'j'), other_version}) {
    Spill(path, bad);
    EXPECT_EQ(Open()->fingerprint(), fingerprint);
    EXPECT_EQ(Slurp(path).size(), good.size());
  }
  EXPECT_EQ(CacheFiles().size(), 1u);  // nothing is left of writing
}

TEST_F(IndexCacheTest, AStateFolderThatCannotBeWrittenIsDoneWithout) {
  folder_.Write("file", "x");
  context_.state_dir = folder_ / "file/state";
  EXPECT_EQ(Open()->num_samples(), 3);
}

TEST_F(IndexCacheTest, AStateFolderThatWasDeletedIsMadeAgain) {
  Open();
  fs::remove_all(context_.state_dir);
  EXPECT_EQ(Open()->num_samples(), 3);
  EXPECT_EQ(CacheFiles().size(), 1u);
}

TEST_F(IndexCacheTest, AConfinedListingHasACacheOfItsOwn) {
  Open();
  context_.any_root = false;
  context_.roots = {root()};
  Open();
  EXPECT_EQ(CacheFiles().size(), 2u);
}

TEST_F(IndexCacheTest, AnIndexTravelsWithTheData) {
  const std::string fingerprint = Open()->fingerprint();
  const auto count = WriteImageFolderIndex(root());
  ASSERT_OK(count);
  EXPECT_EQ(*count, 3);
  TempFolder elsewhere;
  fs::copy(root(), elsewhere / "copy", fs::copy_options::recursive);
  fs::remove(elsewhere / "copy/b/3.jpg");
  const auto copy = FindDataset("ImageFolder")->open({{"root", elsewhere / "copy"}}, {});
  ASSERT_OK(copy);
  EXPECT_EQ((*copy)->fingerprint(), fingerprint);
  EXPECT_FALSE((*copy)->IsStale());
  SampleLocation location;
  ReadBuffer buffer;
  (*copy)->Locate(2, &location);
  EXPECT_THAT((*copy)->source()->Read(location, 100, &buffer),
              IsBadSample(SampleReason::kNotFound));
}

TEST_F(IndexCacheTest, ADamagedTravellingIndexIsRefusedWithTheWayOut) {
  ASSERT_OK(WriteImageFolderIndex(root()));
  const fs::path path = fs::path(root()) / ".batchd-index";
  std::string bytes = Slurp(path);
  bytes[bytes.size() / 2] ^= 0x10;
  Spill(path, bytes);
  EXPECT_THAT(OpenStatus(), FailsWith(StatusCode::kFailedPrecondition, path.string()));
  EXPECT_THAT(OpenStatus(), FailsWith(StatusCode::kFailedPrecondition, "batchd index " + root()));
  ASSERT_OK(WriteImageFolderIndex(root()));  // the way out
  EXPECT_OK(OpenStatus());
}

TEST_F(IndexCacheTest, EveryShorterFileIsRefused) {
  ASSERT_OK(WriteImageFolderIndex(root()));
  const fs::path path = fs::path(root()) / ".batchd-index";
  const std::string good = Slurp(path);
  ASSERT_OK(ReadFolderIndex(root_fd_.get(), ".batchd-index"));
  for (size_t size = 0; size < good.size(); ++size) {
    Spill(path, good.substr(0, size));
    ASSERT_THAT(ReadFolderIndex(root_fd_.get(), ".batchd-index"),
                FailsWith(StatusCode::kDataLoss, ""))
        << size;
  }
}

TEST_F(IndexCacheTest, EveryFlippedBitIsRefused) {
  ASSERT_OK(WriteImageFolderIndex(root()));
  const fs::path path = fs::path(root()) / ".batchd-index";
  const std::string good = Slurp(path);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    Spill(path, bad);
    ASSERT_THAT(ReadFolderIndex(root_fd_.get(), ".batchd-index"),
                FailsWith(StatusCode::kDataLoss, ""))
        << bit;
  }
}

// Calls every accessor for everything: the sanitizers see what leaves its array.
void UseAll(const FolderIndex& index) {
  for (size_t i = 0; i < index.folders.size(); ++i) (void)index.FolderPath(i);
  for (int64_t s = 0; s < index.num_samples(); ++s) {
    const size_t folder = index.FolderOf(s);
    ASSERT_LT(folder, index.folders.size());
    const std::string_view name = index.NameIn(folder, s);
    ASSERT_TRUE(!name.empty() && name[0] != '.' && name.find('/') == name.npos);
    ASSERT_GE(index.folders[folder].class_index, 0);
    ASSERT_LT(index.folders[folder].class_index, static_cast<int64_t>(index.class_folders.size()));
  }
}

TEST_F(IndexCacheTest, WhateverNumbersAFileHasTheAccessorsStayInside) {
  // As a file whose sums are right: made on purpose.
  const FolderIndex good = Scan();
  std::mt19937 random(1);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    FolderIndex index = good;
    const auto flip = [&](void* data, size_t size_bytes) {
      if (size_bytes == 0) return;
      static_cast<uint8_t*>(data)[random() % size_bytes] ^= static_cast<uint8_t>(1 << random() % 8);
    };
    for (uint32_t k = 1 + random() % 3; k > 0; --k) {
      switch (random() % 5) {
        case 0:
          flip(index.folders.data(), index.folders.size() * sizeof(FolderEntry));
          break;
        case 1:
          flip(index.name_ends.data(), index.name_ends.size() * sizeof(uint32_t));
          break;
        case 2:
          flip(index.text.data(), index.text.size());
          break;
        case 3:
          index.text.resize(random() % (index.text.size() + 5));
          break;
        default:
          index.name_ends.resize(random() % (index.name_ends.size() + 2));
      }
    }
    if (!FinishFolderIndex(&index).ok()) continue;
    ++accepted;
    UseAll(index);
  }
  EXPECT_GT(accepted, 0);  // a flipped letter in a name is a name
}

struct Edit {
  const char* what;
  void (*edit)(FolderIndex*);
};

TEST_F(IndexCacheTest, NamesThatWouldLeadElsewhereAreRefused) {
  const Edit edits[] = {
      {"a hidden name", [](FolderIndex* i) { i->text[i->text.find("1.jpg")] = '.'; }},
      {"a slash in a name", [](FolderIndex* i) { i->text[i->text.find("1.jpg") + 1] = '/'; }},
      {"a NUL in a name", [](FolderIndex* i) { i->text[i->text.find("1.jpg") + 1] = '\0'; }},
      {"a hidden folder", [](FolderIndex* i) { i->text[i->text.find("a/sub") + 2] = '.'; }},
      {"an absolute folder", [](FolderIndex* i) { i->text[i->text.find("a/sub")] = '/'; }},
      {"a folder of another class", [](FolderIndex* i) { i->text[i->text.find("a/sub")] = 'b'; }},
      {"classes out of order", [](FolderIndex* i) { i->text[i->text.find("empty")] = 'A'; }},
      {"a class number too high", [](FolderIndex* i) { i->folders.back().class_index = 9; }},
      {"a negative class number", [](FolderIndex* i) { i->folders.back().class_index = -1; }},
      {"no folders", [](FolderIndex* i) { i->folders.clear(); }},
      {"samples in the root", [](FolderIndex* i) { i->folders.resize(1); }},
  };
  for (const Edit& edit : edits) {
    FolderIndex index = Scan();
    edit.edit(&index);
    EXPECT_THAT(FinishFolderIndex(&index), FailsWith(StatusCode::kDataLoss, "corrupt"))
        << edit.what;
  }
}

TEST_F(IndexCacheTest, AnIndexThatIsNoFileIsRefused) {
  fs::create_directories(folder_ / "data/.batchd-index");
  EXPECT_THAT(OpenStatus(), FailsWith(StatusCode::kFailedPrecondition, "is no file"));
}

}  // namespace
}  // namespace batchd
