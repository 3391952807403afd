// SPDX-License-Identifier: Apache-2.0
//
// An index file, as it travels with the data or lies in the cache. With an odd first byte its
// checksums are made right before it is read: otherwise hardly a change gets behind them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "server/base/check.h"
#include "server/base/hash.h"
#include "server/base/log.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"
#include "server/dataset/folder_index.h"

namespace batchd {
namespace {

// The header of server/dataset/folder_index_file.cc.
constexpr size_t kSizesAt = 24, kSumsAt = 56, kHeaderSumAt = 88, kHeaderBytes = 96;
constexpr int kSections = 4;
constexpr char kName[] = ".batchd-index";

class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "batchd-fuzz-XXXXXX";
    BATCHD_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
    fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    file_ = openat(fd_, kName, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    BATCHD_CHECK(fd_ >= 0 && file_ >= 0);
  }
  ~Folder() {
    close(file_);
    close(fd_);
    std::filesystem::remove_all(path_);
  }
  void Write(const std::vector<uint8_t>& bytes) {
    BATCHD_CHECK(ftruncate(file_, 0) == 0);
    BATCHD_CHECK(pwrite(file_, bytes.data(), bytes.size(), 0) ==
                 static_cast<ssize_t>(bytes.size()));
  }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  int file_ = -1;
};

void FixSums(std::vector<uint8_t>* file) {
  if (file->size() < kHeaderBytes) return;
  size_t at = kHeaderBytes;
  for (int i = 0; i < kSections; ++i) {
    uint64_t size_bytes = 0;
    std::memcpy(&size_bytes, file->data() + kSizesAt + 8 * i, 8);
    size_bytes = std::min<uint64_t>(size_bytes, file->size() - at);
    const uint64_t sum = Xxh3(file->data() + at, size_bytes);
    std::memcpy(file->data() + kSumsAt + 8 * i, &sum, 8);
    at += size_bytes;
  }
  const uint64_t sum = Xxh3(file->data(), kHeaderSumAt);
  std::memcpy(file->data() + kHeaderSumAt, &sum, 8);
}

// All that a session may ask of it.
void UseDataset(const Dataset& dataset) {
  SampleLocation location;
  for (int64_t ordinal = 0; ordinal < dataset.num_samples(); ++ordinal) {
    dataset.Locate(ordinal, &location);
    BATCHD_CHECK(!location.path.empty() && location.path[0] != '/');
    BATCHD_CHECK(location.path.find("/../") == std::string::npos);
    BATCHD_CHECK(!dataset.NameOf(ordinal).empty());
    const int64_t label = dataset.LabelOf(ordinal);
    BATCHD_CHECK(label >= 0 && label < dataset.num_classes());
  }
  for (int64_t i = 0; i < dataset.num_classes(); ++i) dataset.ClassName(i);
}

void Try(Folder* folder, const std::vector<uint8_t>& file) {
  folder->Write(file);
  const absl::StatusOr<FolderIndex> index = ReadFolderIndex(folder->fd(), kName);
  const DatasetKind* const kind = FindDataset("ImageFolder");
  const auto dataset = kind->open({{"root", folder->path()}}, DatasetContext{});
  BATCHD_CHECK(dataset.ok() == (index.ok() && index->num_samples() > 0));
  if (!index.ok()) {
    BATCHD_CHECK(index.status().code() == absl::StatusCode::kDataLoss);
    return;
  }
  StampsMatch(folder->fd(), *index);
  if (dataset.ok()) UseDataset(**dataset);
  // What has been read can be written, and is then the same.
  BATCHD_CHECK(WriteFolderIndex(*index, folder->path() + "/again").ok());
  const absl::StatusOr<FolderIndex> again = ReadFolderIndex(folder->fd(), "again");
  BATCHD_CHECK(again.ok() && again->text == index->text && again->name_ends == index->name_ends &&
               again->class_folders == index->class_folders);
}

}  // namespace
}  // namespace batchd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static batchd::Folder folder;
  batchd::log::SetQuiet(true);
  if (size == 0) return 0;
  std::vector<uint8_t> file(data + 1, data + size);
  if (data[0] % 2 == 1) batchd::FixSums(&file);
  batchd::Try(&folder, file);
  return 0;
}
