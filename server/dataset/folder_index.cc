// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/folder_index.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "server/base/hash.h"
#include "server/base/status.h"

namespace batchd {
namespace {

absl::Status Wrong(std::string_view what) {
  return absl::DataLossError(fmt::format("the index is corrupt: {}", what));
}

// Whether a listing could give this name: not hidden (which "." and ".." are too), not a path.
bool IsPlainName(std::string_view name) {
  return !name.empty() && name[0] != '.' && name.find('/') == name.npos &&
         name.find('\0') == name.npos;
}

bool IsPlainPath(std::string_view path) {
  while (true) {
    const size_t slash = path.find('/');
    if (!IsPlainName(path.substr(0, slash))) return false;
    if (slash == path.npos) return true;
    path.remove_prefix(slash + 1);
  }
}

// Whether `path` is the class folder `class_path` or lies below it.
bool IsInClass(std::string_view path, std::string_view class_path) {
  return path.substr(0, class_path.size()) == class_path &&
         (path.size() == class_path.size() || path[class_path.size()] == '/');
}

// Where the names of a folder lie in the text, and whether that text is there.
absl::Status CheckFolderBounds(const FolderIndex& index, size_t i) {
  const FolderEntry& folder = index.folders[i];
  const bool is_last = i + 1 == index.folders.size();
  const uint64_t text_end = is_last ? index.text.size() : index.folders[i + 1].text_offset;
  const uint64_t sample_end = is_last ? index.name_ends.size() : index.folders[i + 1].first_sample;
  if (folder.text_offset > text_end || text_end > index.text.size()) return Wrong("text offsets");
  if (folder.first_sample > sample_end || sample_end > index.name_ends.size()) {
    return Wrong("sample numbers");
  }
  const uint64_t text_size = text_end - folder.text_offset;
  const uint64_t names_size =
      folder.first_sample == sample_end ? 0 : index.name_ends[sample_end - 1];
  if (folder.path_size > text_size || names_size != text_size - folder.path_size) {
    return Wrong("text sizes");
  }
  uint32_t begin = 0;
  for (uint64_t s = folder.first_sample; s < sample_end; ++s) {
    if (index.name_ends[s] <= begin || index.name_ends[s] > names_size) return Wrong("name sizes");
    begin = index.name_ends[s];
  }
  return absl::OkStatus();
}

// Names are such as a listing gives, each once.
absl::Status CheckNames(const FolderIndex& index, size_t i) {
  const bool is_last = i + 1 == index.folders.size();
  const uint64_t end = is_last ? index.name_ends.size() : index.folders[i + 1].first_sample;
  std::string_view last;
  for (uint64_t s = index.folders[i].first_sample; s < end; ++s) {
    const std::string_view name = index.NameIn(i, static_cast<int64_t>(s));
    if (!IsPlainName(name)) return Wrong("a name that no file has");
    if (name <= last) return Wrong("names out of order");
    last = name;
  }
  return absl::OkStatus();
}

absl::Status CheckClass(FolderIndex* index, size_t i) {
  const FolderEntry& folder = index->folders[i];
  const std::string_view path = index->FolderPath(i);
  const auto num_classes = static_cast<int64_t>(index->class_folders.size());
  if (!IsPlainPath(path)) return Wrong("a path that no folder has");
  if (folder.class_index == num_classes) {
    if (path.find('/') != path.npos) return Wrong("a class that is no first-level folder");
    if (num_classes > 0 && path <= index->FolderPath(index->class_folders.back())) {
      return Wrong("classes out of order");
    }
    index->class_folders.push_back(static_cast<uint32_t>(i));
    return absl::OkStatus();
  }
  if (num_classes == 0 || folder.class_index != num_classes - 1 ||
      !IsInClass(path, index->FolderPath(index->class_folders.back()))) {
    return Wrong("class numbers");
  }
  if (path <= index->FolderPath(i - 1)) return Wrong("folders out of order");
  return absl::OkStatus();
}

// Stamps of files move in ticks of the kernel's clock, of up to 10 ms.
constexpr int64_t kTickNs = 20'000'000;

struct FolderLook {
  uint64_t stamp = 0;
  int64_t changed_ns = 0;
};

FolderLook Look(int root_fd, const char* path) {
  struct stat st;
  if (fstatat(root_fd, path, &st, *path == '\0' ? AT_EMPTY_PATH : 0) != 0) return {};
  // The change time too: unpacking and copying set the modification time back. No inode: some
  // network filesystems make them up.
  const int64_t times[] = {st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_ctim.tv_sec,
                           st.st_ctim.tv_nsec};
  return {.stamp = std::max<uint64_t>(1, Xxh3(times, sizeof(times))),
          .changed_ns = st.st_ctim.tv_sec * int64_t{1'000'000'000} + st.st_ctim.tv_nsec};
}

// Whether all stamps match and no folder changed after `changed_ns_max`.
bool AllFolders(int root_fd, const FolderIndex& index, int64_t changed_ns_max) {
  std::string path;
  for (size_t i = 0; i < index.folders.size(); ++i) {
    path.assign(index.FolderPath(i));
    const FolderLook look = Look(root_fd, path.c_str());
    if (look.stamp != index.folders[i].stamp || look.changed_ns > changed_ns_max) return false;
  }
  return true;
}

}  // namespace

std::string_view FolderIndex::FolderPath(size_t folder) const {
  return std::string_view(text).substr(folders[folder].text_offset, folders[folder].path_size);
}

size_t FolderIndex::FolderOf(int64_t ordinal) const {
  // The last one that begins at or before the ordinal: folders without samples begin where the next
  // one does, and come before it.
  const auto after = std::upper_bound(
      folders.begin(), folders.end(), static_cast<uint64_t>(ordinal),
      [](uint64_t value, const FolderEntry& folder) { return value < folder.first_sample; });
  return static_cast<size_t>(after - folders.begin()) - 1;
}

std::string_view FolderIndex::NameIn(size_t folder, int64_t ordinal) const {
  const FolderEntry& entry = folders[folder];
  const auto sample = static_cast<uint64_t>(ordinal);
  const uint32_t begin = sample == entry.first_sample ? 0 : name_ends[sample - 1];
  return std::string_view(text).substr(entry.text_offset + entry.path_size + begin,
                                       name_ends[sample] - begin);
}

int64_t FolderIndex::size_bytes() const {
  return static_cast<int64_t>(folders.capacity() * sizeof(FolderEntry) +
                              name_ends.capacity() * sizeof(uint32_t) + text.capacity() +
                              warnings.capacity() + class_folders.capacity() * sizeof(uint32_t));
}

absl::Status FinishFolderIndex(FolderIndex* index) {
  index->class_folders.clear();
  if (index->folders.empty() || index->folders.size() > UINT32_MAX) return Wrong("no folders");
  const FolderEntry& root = index->folders[0];
  if (root.text_offset != 0 || root.path_size != 0 || root.first_sample != 0 ||
      root.class_index != -1) {
    return Wrong("no root");
  }
  for (size_t i = 0; i < index->folders.size(); ++i) {
    BATCHD_RETURN_IF_ERROR(CheckFolderBounds(*index, i));
    BATCHD_RETURN_IF_ERROR(CheckNames(*index, i));
    if (i > 0) BATCHD_RETURN_IF_ERROR(CheckClass(index, i));
  }
  const uint64_t in_root =
      index->folders.size() > 1 ? index->folders[1].first_sample : index->name_ends.size();
  return in_root == 0 ? absl::OkStatus() : Wrong("samples that belong to no class");
}

uint64_t FolderStamp(int root_fd, const char* path) { return Look(root_fd, path).stamp; }

bool StampsMatch(int root_fd, const FolderIndex& index) {
  return AllFolders(root_fd, index, INT64_MAX);
}

bool StampsMatchSurely(int root_fd, const FolderIndex& index) {
  return AllFolders(root_fd, index, index.listed_ns - kTickNs);
}

}  // namespace batchd
