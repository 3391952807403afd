// SPDX-License-Identifier: Apache-2.0
//
// ImageFolder: a folder of class folders of images.
#include <fcntl.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "fmt/ranges.h"
#include "server/base/hash.h"
#include "server/base/log.h"
#include "server/base/status.h"
#include "server/dataset/dataset.h"
#include "server/dataset/folder_index.h"
#include "server/dataset/folder_scan.h"
#include "server/dataset/registry.h"
#include "server/dataset/text.h"
#include "server/io/beneath.h"
#include "server/io/unique_fd.h"

namespace batchd {
namespace {

constexpr char kTravellingIndexName[] = ".batchd-index";

const Schema& ImageFolderSchema() {
  static const auto* schema = new Schema{
      .name = "ImageFolder",
      .sentence =
          "A folder with one folder of images for each class, as torchvision's ImageFolder.",
      .params = {{.name = "root",
                  .type = ParamType::kString,
                  .sentence = "absolute path of the folder that holds the class folders",
                  .default_value = std::nullopt}}};
  return *schema;
}

class ImageFolder : public Dataset {
 public:
  ImageFolder(std::string root, UniqueFd root_fd, FolderIndex index, bool is_trusted,
              std::unique_ptr<Source> source)
      : root_(std::move(root)),
        root_fd_(std::move(root_fd)),
        index_(std::move(index)),
        is_trusted_(is_trusted),
        source_(std::move(source)) {
    std::string_view rest = index_.warnings;
    while (!rest.empty()) {
      const size_t line_size = std::min(rest.find('\n'), rest.size());
      warnings_.push_back(PrintableName(rest.substr(0, line_size)));
      rest.remove_prefix(std::min(line_size + 1, rest.size()));
    }
    fingerprint_ = MakeFingerprint();
  }

  int64_t num_samples() const override { return index_.num_samples(); }
  int64_t num_classes() const override { return static_cast<int64_t>(index_.class_folders.size()); }
  std::string ClassName(int64_t index) const override {
    return PrintableName(index_.FolderPath(index_.class_folders[static_cast<size_t>(index)]));
  }
  std::string NameOf(int64_t ordinal) const override {
    SampleLocation location;
    Locate(ordinal, &location);
    return PrintableName(location.path);
  }
  int64_t LabelOf(int64_t ordinal) const override {
    return index_.folders[index_.FolderOf(ordinal)].class_index;
  }
  void Locate(int64_t ordinal, SampleLocation* location) const override {
    const size_t folder = index_.FolderOf(ordinal);
    location->path.assign(index_.FolderPath(folder));
    location->path += '/';
    location->path += index_.NameIn(folder, ordinal);
    location->offset_bytes = 0;
    location->size_bytes = -1;
  }
  Source* source() const override { return source_.get(); }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& source_name() const override { return root_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  int64_t index_bytes() const override { return index_.size_bytes(); }
  bool IsStale() const override { return !is_trusted_ && !StampsMatch(root_fd_.get(), index_); }

 private:
  std::string MakeFingerprint() const {
    Fingerprinter fingerprinter;
    fingerprinter.Add("ImageFolder");
    fingerprinter.Add(index_.class_folders.size());
    for (const uint32_t folder : index_.class_folders) {
      fingerprinter.Add(index_.FolderPath(folder));
    }
    for (size_t i = 0; i < index_.folders.size(); ++i) {
      const bool is_last = i + 1 == index_.folders.size();
      const uint64_t begin = index_.folders[i].first_sample;
      const uint64_t end = is_last ? index_.name_ends.size() : index_.folders[i + 1].first_sample;
      if (begin == end) continue;  // a folder without samples is no part of the data
      fingerprinter.Add(index_.FolderPath(i));
      fingerprinter.Add(static_cast<uint64_t>(index_.folders[i].class_index));
      fingerprinter.Add(end - begin);
      for (uint64_t s = begin; s < end; ++s) {
        fingerprinter.Add(index_.NameIn(i, static_cast<int64_t>(s)));
      }
    }
    return fingerprinter.Hex();
  }

  const std::string root_;
  const UniqueFd root_fd_;
  const FolderIndex index_;
  const bool is_trusted_;  // the index came with the data
  const std::unique_ptr<Source> source_;
  std::vector<std::string> warnings_;
  std::string fingerprint_;
};

// `path` without links, or what the system says.
absl::StatusOr<std::string> RealPath(const std::string& path) {
  char* resolved = realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return absl::NotFoundError(ErrnoText("realpath", errno));
  std::string text = resolved;
  std::free(resolved);
  return text;
}

bool IsBelow(std::string_view path, std::string_view root) {
  while (!root.empty() && root.back() == '/') root.remove_suffix(1);
  return path.substr(0, root.size()) == root &&
         (path.size() == root.size() || path[root.size()] == '/');
}

absl::Status OutsideRoots(const std::string& root, const DatasetContext& context) {
  return Err(absl::StatusCode::kPermissionDenied,
             "{} is not below a folder that this daemon may serve ({}); start it with --root DIR, "
             "or use a private daemon",
             root,
             context.roots.empty() ? "none" : fmt::format("{}", fmt::join(context.roots, ", ")));
}

// The root without links, once it is sure that the daemon may serve it.
absl::StatusOr<std::string> CheckRoot(const std::string& root, const DatasetContext& context) {
  if (root.empty() || root[0] != '/') {
    return Err(absl::StatusCode::kNotFound,
               "\"{}\" is no absolute path, and a daemon has no folder of its own to start from; "
               "give the whole path",
               root);
  }
  const absl::StatusOr<std::string> real = RealPath(root);
  if (!context.any_root) {
    // What does not exist is compared as it is written, so that nobody learns which paths there
    // are.
    const std::string path =
        real.ok() ? *real : std::filesystem::path(root).lexically_normal().string();
    bool is_allowed = false;
    for (const std::string& allowed : context.roots) {
      const absl::StatusOr<std::string> real_allowed = RealPath(allowed);
      is_allowed |= IsBelow(path, real_allowed.ok() ? *real_allowed : allowed);
    }
    if (!is_allowed) return OutsideRoots(root, context);
  }
  if (!real.ok()) {
    return Err(absl::StatusCode::kNotFound, "no such folder: {} ({})", root,
               std::string(real.status().message()));
  }
  return *real;
}

// Opens what CheckRoot has found, the only time that the root is opened by name. Confined, it is
// walked to from "/" without following any link: whoever puts one on the way after the check gets
// an error and no other folder.
absl::StatusOr<UniqueFd> OpenRoot(const std::string& real_root, const std::string& root,
                                  Confinement confinement) {
  constexpr int kFlags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  UniqueFd fd;
  int error_number = 0;
  if (confinement == Confinement::kBeneath && real_root != "/") {
    const UniqueFd slash(open("/", kFlags));
    const int opened = OpenBeneathByWalking(slash.get(), real_root.c_str() + 1, kFlags);
    if (opened < 0) {
      error_number = -opened;
    } else {
      fd = UniqueFd(opened);
    }
  } else {
    fd = UniqueFd(open(real_root.c_str(), kFlags));
    if (!fd.is_open()) error_number = errno;
  }
  if (fd.is_open()) return fd;
  if (error_number == ENOTDIR) {
    return Err(absl::StatusCode::kNotFound,
               "{} is a file; ImageFolder wants the folder that holds the class folders", root);
  }
  const auto code = error_number == EACCES      ? absl::StatusCode::kPermissionDenied
                    : IsAboutPath(error_number) ? absl::StatusCode::kNotFound
                                                : absl::StatusCode::kUnavailable;
  return Err(code, "cannot open the folder {}: {}", root, ErrnoText("open", error_number));
}

// The cache of one folder's index; all of it may fail without harm.
class IndexCache {
 public:
  IndexCache(std::string_view state_dir, std::string_view real_root, Confinement confinement) {
    if (state_dir.empty()) return;
    Fingerprinter name;
    name.Add(real_root);
    // A confined listing leaves links out that the other follows.
    name.Add(static_cast<uint64_t>(confinement));
    path_ = fmt::format("{}/{}.index", state_dir, name.Hex());
  }

  std::optional<FolderIndex> Read(int root_fd) const {
    if (path_.empty()) return std::nullopt;
    absl::StatusOr<FolderIndex> index = ReadFolderIndex(AT_FDCWD, path_.c_str());
    if (index.ok() && StampsMatchSurely(root_fd, *index)) return *std::move(index);
    if (index.status().code() != absl::StatusCode::kNotFound) {
      log::Info(
          "index cache not used",
          {{"path", path_},
           {"reason", index.ok() ? "folders changed" : std::string(index.status().message())}});
    }
    return std::nullopt;
  }

  void Write(const FolderIndex& index) const {
    if (path_.empty()) return;
    std::error_code ignored;  // writing says what is wrong
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
    const absl::Status status = WriteFolderIndex(index, path_);
    static std::atomic<bool> is_logged{false};
    if (!status.ok() && !is_logged.exchange(true)) {
      log::Warn("index cache not written; folders are listed again at every start",
                {{"reason", std::string(status.message())}});
    }
  }

 private:
  std::string path_;  // "" for none
};

struct Loaded {
  FolderIndex index;
  bool is_trusted = false;
};

absl::StatusOr<Loaded> LoadIndex(int root_fd, const std::string& root, const std::string& real_root,
                                 Confinement confinement, const std::string& state_dir) {
  absl::StatusOr<FolderIndex> travelling = ReadFolderIndex(root_fd, kTravellingIndexName);
  if (travelling.ok()) {
    log::Info("index that lies with the data is used; run `batchd index` after changing them",
              {{"root", root}, {"samples", travelling->num_samples()}});
    return Loaded{*std::move(travelling), true};
  }
  if (travelling.status().code() == absl::StatusCode::kUnavailable) {  // it may pass
    return Annotate(travelling.status(), fmt::format("{}/{}", root, kTravellingIndexName));
  }
  if (travelling.status().code() != absl::StatusCode::kNotFound) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "{}/{} cannot be used: {}; delete it, or make it again with `batchd index {}`", root,
               kTravellingIndexName, std::string(travelling.status().message()), root);
  }
  const IndexCache cache(state_dir, real_root, confinement);
  if (std::optional<FolderIndex> cached = cache.Read(root_fd)) return Loaded{*std::move(cached)};
  BATCHD_ASSIGN_OR_RETURN(FolderIndex index, ScanFolder(root_fd, root, confinement));
  malloc_trim(0);  // listing needed more than what is kept
  log::Info("folder listed", {{"root", root},
                              {"samples", index.num_samples()},
                              {"classes", index.class_folders.size()},
                              {"folders", index.folders.size()}});
  cache.Write(index);
  return Loaded{std::move(index)};
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenImageFolder(const Json& arguments,
                                                               const DatasetContext& context) {
  const std::string root = arguments.at("root").get<std::string>();
  BATCHD_ASSIGN_OR_RETURN(const std::string real_root, CheckRoot(root, context));
  const Confinement confinement = context.any_root ? Confinement::kNone : Confinement::kBeneath;
  BATCHD_ASSIGN_OR_RETURN(UniqueFd root_fd, OpenRoot(real_root, root, confinement));
  BATCHD_ASSIGN_OR_RETURN(
      Loaded loaded, LoadIndex(root_fd.get(), root, real_root, confinement, context.state_dir));
  if (loaded.index.num_samples() == 0) {  // only a travelling index can be so
    return Err(absl::StatusCode::kFailedPrecondition,
               "no_samples: {}/{} lists none; make it again with `batchd index {}`", root,
               kTravellingIndexName, root);
  }
  UniqueFd source_root(fcntl(root_fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!source_root.is_open()) return absl::UnavailableError(ErrnoText("dup", errno));
  std::unique_ptr<Source> source = MakeFileSource(std::move(source_root), confinement);
  auto dataset = std::make_shared<const ImageFolder>(
      root, std::move(root_fd), std::move(loaded.index), loaded.is_trusted, std::move(source));
  for (const std::string& warning : dataset->warnings()) {
    log::Warn("dataset is not all of the folder", {{"root", root}, {"what", warning}});
  }
  return dataset;
}

}  // namespace

const DatasetKind kImageFolder = {ImageFolderSchema, OpenImageFolder};

absl::StatusOr<int64_t> WriteImageFolderIndex(const std::string& root) {
  BATCHD_ASSIGN_OR_RETURN(const UniqueFd root_fd, OpenRoot(root, root, Confinement::kNone));
  BATCHD_ASSIGN_OR_RETURN(const FolderIndex index,
                          ScanFolder(root_fd.get(), root, Confinement::kNone));
  BATCHD_RETURN_IF_ERROR(WriteFolderIndex(index, fmt::format("{}/{}", root, kTravellingIndexName)));
  return index.num_samples();
}

}  // namespace batchd
