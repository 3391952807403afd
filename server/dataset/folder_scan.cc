// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/folder_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "fmt/ranges.h"
#include "server/base/clock.h"
#include "server/base/status.h"
#include "server/dataset/text.h"
#include "server/io/unique_fd.h"

namespace batchd {
namespace {

// torchvision's IMG_EXTENSIONS.
constexpr std::string_view kSuffixes[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
                                          ".pgm", ".tif",  ".tiff", ".webp"};

// What a path is opened by must fit into PATH_MAX.
constexpr size_t kPathBytesMax = 4095;

enum class EntryType { kFolder, kFile, kOther };

// What is left out, with the first example of each.
enum LeftOut { kBroken, kOutside, kLoop, kUnreadable, kNoFile, kTooLong, kInRoot, kLeftOutCount };
constexpr std::string_view kLeftOutTexts[kLeftOutCount] = {
    "links that lead nowhere",
    "links that lead outside the root",
    "links to a folder above themselves",
    "folders that cannot be read",
    "entries named like images that are no files",
    "entries whose path is too long",
    "images right under the root, which belong to no class",
};

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

// Names kept end to end: a million std::strings would cost several times their bytes.
class NameList {
 public:
  void Add(std::string_view name) {
    text_ += name;
    ends_.push_back(text_.size());
  }
  size_t size() const { return ends_.size(); }
  std::string_view at(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(text_).substr(begin, ends_[i] - begin);
  }
  // Numbers of the names in byte order.
  std::vector<uint32_t> Order() const {
    std::vector<uint32_t> order(size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<uint32_t>(i);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return at(a) < at(b); });
    return order;
  }

 private:
  std::string text_;
  std::vector<size_t> ends_;
};

// One folder's listing.
struct Listing {
  uint64_t stamp = 0;
  dev_t device = 0;
  ino_t inode = 0;
  NameList folders = {};
  NameList images = {};
};

// A folder of the class that is being walked.
struct Visit {
  std::string path;
  size_t parent;  // in the same list; itself for the class folder
  Listing listing;
};

class Scanner {
 public:
  Scanner(int root_fd, const std::string& root, Confinement confinement)
      : root_fd_(root_fd), root_(root), confinement_(confinement) {}

  absl::StatusOr<FolderIndex> Scan() {
    index_.listed_ns = FileTimeNs();
    Listing root;
    if (const int error_number = List("", &root)) return CannotList("", error_number);
    if (root.folders.size() == 0) return NoClasses(root);
    for (size_t i = 0; i < root.images.size(); ++i) Leave(kInRoot, root.images.at(i));
    root_device_ = root.device;
    root_inode_ = root.inode;
    index_.folders.push_back({.stamp = root.stamp});
    int32_t class_index = 0;
    for (const uint32_t i : root.folders.Order()) {
      BATCHD_RETURN_IF_ERROR(AddClass(std::string(root.folders.at(i)), class_index++));
    }
    if (index_.num_samples() == 0) return NoSamples(root);
    index_.warnings = Warnings();
    index_.folders.shrink_to_fit();
    index_.name_ends.shrink_to_fit();
    index_.text.shrink_to_fit();
    BATCHD_RETURN_IF_ERROR(FinishFolderIndex(&index_));
    return std::move(index_);
  }

 private:
  // Always 0.
  int Leave(LeftOut why, std::string_view path) {
    if (left_out_[why]++ == 0) examples_[why] = PrintableName(path);
    return 0;
  }

  // Lists a folder without going into it. Returns 0 or an errno value.
  int List(const std::string& path, Listing* listing) {
    UniqueFd fd(OpenBeneath(root_fd_, path.empty() ? "." : path.c_str(),
                            O_RDONLY | O_DIRECTORY | O_NOCTTY, confinement_, OpenWait::kMayWait));
    if (!fd.is_open()) return -fd.get();
    struct stat st;
    if (fstat(fd.get(), &st) != 0) return errno;
    listing->device = st.st_dev;
    listing->inode = st.st_ino;
    // Before the entries are read: a change from here on makes the index stale.
    listing->stamp = FolderStamp(fd.get(), "");
    const std::unique_ptr<DIR, DirCloser> dir(fdopendir(fd.get()));
    if (dir == nullptr) return errno;
    fd.Release();  // closed by closedir
    while (true) {
      errno = 0;
      const dirent* entry = readdir(dir.get());
      if (entry == nullptr) return errno;
      if (entry->d_name[0] == '.') continue;
      if (const int error_number = AddEntry(path, *entry, listing)) return error_number;
    }
  }

  // Returns 0, or an errno value that says nothing about the entry itself.
  int AddEntry(const std::string& folder, const dirent& entry, Listing* listing) {
    const std::string_view name = entry.d_name;
    const bool is_image = HasImageSuffix(name);
    // A regular file of another kind needs no path and no look.
    if (entry.d_type == DT_REG && !is_image) return 0;
    path_.assign(folder);
    if (!folder.empty()) path_ += '/';
    path_ += name;
    if (path_.size() > kPathBytesMax) return Leave(kTooLong, path_);
    EntryType type = EntryType::kOther;
    if (const int error_number = FindType(entry.d_type, &type)) {
      if (error_number == EXDEV) return Leave(kOutside, path_);
      return IsAboutPath(error_number) ? Leave(kBroken, path_) : error_number;
    }
    if (type == EntryType::kFolder) listing->folders.Add(name);
    if (type == EntryType::kFile && is_image) listing->images.Add(name);
    if (type == EntryType::kOther && is_image) Leave(kNoFile, path_);
    return 0;
  }

  // Of the entry at path_; looks only where the listing does not tell. Returns 0 or an errno value.
  int FindType(unsigned char d_type, EntryType* type) {
    if (d_type == DT_LNK || d_type == DT_UNKNOWN) {
      const UniqueFd fd(
          OpenBeneath(root_fd_, path_.c_str(), O_PATH, confinement_, OpenWait::kMayWait));
      if (!fd.is_open()) return -fd.get();
      struct stat st;
      if (fstat(fd.get(), &st) != 0) return errno;
      d_type = IFTODT(st.st_mode);
    }
    *type = d_type == DT_REG   ? EntryType::kFile
            : d_type == DT_DIR ? EntryType::kFolder
                               : EntryType::kOther;
    return 0;
  }

  absl::Status AddClass(std::string name, int32_t class_index) {
    std::vector<Visit> visits;
    visits.push_back({std::move(name), 0, {}});
    for (size_t i = 0; i < visits.size(); ++i) {
      Listing listing;
      if (const int error_number = List(visits[i].path, &listing)) {
        // What is listed must not depend on luck.
        if (!IsAboutPath(error_number)) return CannotList(visits[i].path, error_number);
        Leave(kUnreadable, visits[i].path);
        listing = {.stamp = FolderStamp(root_fd_, visits[i].path.c_str())};
      }
      if (IsLoop(visits, i, listing)) {
        Leave(kLoop, visits[i].path);
        listing = {.stamp = listing.stamp};
      }
      for (size_t k = 0; k < listing.folders.size(); ++k) {
        visits.push_back({fmt::format("{}/{}", visits[i].path, listing.folders.at(k)), i, {}});
      }
      listing.folders = {};
      visits[i].listing = std::move(listing);
    }
    std::sort(visits.begin(), visits.end(),
              [](const Visit& a, const Visit& b) { return a.path < b.path; });
    for (Visit& visit : visits) {
      BATCHD_RETURN_IF_ERROR(AddFolder(visit, class_index));
      visit = {};
    }
    return absl::OkStatus();
  }

  // Whether the folder of visit i is the root or one that it lies in.
  bool IsLoop(const std::vector<Visit>& visits, size_t i, const Listing& listing) const {
    const auto is_same = [&](dev_t device, ino_t inode) {
      return listing.device == device && listing.inode == inode;
    };
    if (is_same(root_device_, root_inode_)) return true;
    while (visits[i].parent != i) {
      i = visits[i].parent;
      if (is_same(visits[i].listing.device, visits[i].listing.inode)) return true;
    }
    return false;
  }

  absl::Status AddFolder(const Visit& visit, int32_t class_index) {
    const NameList& images = visit.listing.images;
    index_.folders.push_back({.text_offset = index_.text.size(),
                              .first_sample = index_.name_ends.size(),
                              .stamp = visit.listing.stamp,
                              .path_size = static_cast<uint32_t>(visit.path.size()),
                              .class_index = class_index});
    index_.text += visit.path;
    const size_t names_begin = index_.text.size();
    for (const uint32_t i : images.Order()) {
      index_.text += images.at(i);
      const size_t end = index_.text.size() - names_begin;
      if (end > UINT32_MAX) {
        return Err(absl::StatusCode::kFailedPrecondition,
                   "{}/{} has more than 4 GiB of file names; spread its files over sub-folders",
                   root_, PrintableName(visit.path));
      }
      index_.name_ends.push_back(static_cast<uint32_t>(end));
    }
    return absl::OkStatus();
  }

  std::string Warnings() const {
    std::string text;
    for (int i = 0; i < kLeftOutCount; ++i) {
      if (left_out_[i] == 0) continue;
      text += fmt::format("left out {} {}: {}{}\n", left_out_[i], kLeftOutTexts[i], examples_[i],
                          left_out_[i] > 1 ? ", …" : "");
    }
    return text;
  }

  // What was left out as the end of a message.
  std::string AlsoText() const {
    std::string text = Warnings();
    if (text.empty()) return text;
    text.pop_back();
    std::replace(text.begin(), text.end(), '\n', ';');
    return fmt::format(" ({})", text);
  }

  absl::Status CannotList(const std::string& path, int error_number) const {
    return Err(error_number == EACCES ? absl::StatusCode::kPermissionDenied
                                      : absl::StatusCode::kUnavailable,
               "cannot list the folder {}/{}: {}", root_, PrintableName(path),
               ErrnoText("open or read", error_number));
  }

  absl::Status NoClasses(const Listing& root) const {
    std::string found = "nothing that is not hidden";
    if (root.images.size() > 0) {
      found = fmt::format("{} images right under it, for example {}", root.images.size(),
                          PrintableName(root.images.at(root.images.Order()[0])));
    }
    return Err(absl::StatusCode::kFailedPrecondition,
               "no_classes: {} has no class folders; found {}{}. ImageFolder wants one folder a "
               "class, as in {}/cat/1.jpg",
               root_, found, AlsoText(), root_);
  }

  absl::Status NoSamples(const Listing& root) const {
    return Err(absl::StatusCode::kFailedPrecondition,
               "no_samples: {} has {} class folders, the first is {}, and no image in them{}. "
               "Images are files that end in {}, in any case",
               root_, root.folders.size(), PrintableName(root.folders.at(root.folders.Order()[0])),
               AlsoText(), ImageSuffixesText());
  }

  const int root_fd_;
  const std::string& root_;
  const Confinement confinement_;
  dev_t root_device_ = 0;
  ino_t root_inode_ = 0;
  std::string path_;  // of the entry that is looked at
  FolderIndex index_;
  std::array<uint64_t, kLeftOutCount> left_out_{};
  std::array<std::string, kLeftOutCount> examples_;
};

}  // namespace

bool HasImageSuffix(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return false;
  const std::string_view suffix = name.substr(dot);
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes), [&](std::string_view known) {
    return std::equal(known.begin(), known.end(), suffix.begin(), suffix.end(), [](char a, char b) {
      return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b);
    });
  });
}

std::string ImageSuffixesText() { return fmt::format("{}", fmt::join(kSuffixes, ", ")); }

absl::StatusOr<FolderIndex> ScanFolder(int root_fd, const std::string& root,
                                       Confinement confinement) {
  return Scanner(root_fd, root, confinement).Scan();
}

}  // namespace batchd
