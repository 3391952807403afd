// SPDX-License-Identifier: Apache-2.0
//
// The index as a file: a header, then the four arrays of FolderIndex as they are in memory. A file
// may come from anywhere: sizes are checked before anything is allocated, sums before anything is
// believed, and FinishFolderIndex looks at every offset and name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "server/base/hash.h"
#include "server/base/status.h"
#include "server/dataset/folder_index.h"
#include "server/io/beneath.h"
#include "server/io/unique_fd.h"

namespace batchd {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is little-endian");

constexpr char kMagic[8] = {'b', 'a', 't', 'c', 'h', 'd', 'I', 'X'};
constexpr uint32_t kVersion = 1;
constexpr int kSections = 4;
// Some 100 million samples. A file may claim any size without having it.
constexpr int64_t kFileBytesMax = int64_t{4} << 30;

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  int64_t listed_ns;
  uint64_t size_bytes[kSections];  // folders, name_ends, text, warnings
  uint64_t sum[kSections];         // XXH3 of each
  uint64_t header_sum;             // XXH3 of what comes before
};
static_assert(sizeof(Header) == 96);

uint64_t SumOf(const Header& header) { return Xxh3(&header, offsetof(Header, header_sum)); }

struct Section {
  const void* data;
  size_t size_bytes;
};

std::array<Section, kSections> SectionsOf(const FolderIndex& index) {
  return {{{index.folders.data(), index.folders.size() * sizeof(FolderEntry)},
           {index.name_ends.data(), index.name_ends.size() * sizeof(uint32_t)},
           {index.text.data(), index.text.size()},
           {index.warnings.data(), index.warnings.size()}}};
}

absl::Status WriteAll(int fd, const void* data, size_t size_bytes) {
  const char* next = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t n = write(fd, next, size_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(ErrnoText("write", errno));
    next += n;
    size_bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status WriteSections(int fd, const FolderIndex& index) {
  Header header{};
  memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.listed_ns = index.listed_ns;
  const auto sections = SectionsOf(index);
  for (int i = 0; i < kSections; ++i) {
    header.size_bytes[i] = sections[i].size_bytes;
    header.sum[i] = Xxh3(sections[i].data, sections[i].size_bytes);
  }
  header.header_sum = SumOf(header);
  BATCHD_RETURN_IF_ERROR(WriteAll(fd, &header, sizeof(header)));
  for (const Section& section : sections) {
    BATCHD_RETURN_IF_ERROR(WriteAll(fd, section.data, section.size_bytes));
  }
  // Readable by whoever may read the data; mkostemp makes files for their owner alone.
  if (fchmod(fd, 0644) != 0) return absl::UnavailableError(ErrnoText("fchmod", errno));
  return absl::OkStatus();
}

absl::Status ReadAll(int fd, void* data, size_t size_bytes) {
  char* next = static_cast<char*>(data);
  while (size_bytes > 0) {
    const ssize_t n = read(fd, next, size_bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::UnavailableError(ErrnoText("read", errno));
    if (n == 0) return absl::DataLossError("the index is truncated");
    next += n;
    size_bytes -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::Status CheckHeader(const Header& header, int64_t file_size_bytes) {
  if (memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError("the file is no index");
  }
  if (header.version != kVersion) {
    return absl::DataLossError(fmt::format("the index has format version {}; this build reads {}",
                                           header.version, kVersion));
  }
  if (header.header_sum != SumOf(header)) {
    return absl::DataLossError("the index is corrupt: its header");
  }
  if (file_size_bytes > kFileBytesMax) {
    return absl::DataLossError(
        fmt::format("the index has {} bytes; the limit is {}", file_size_bytes, kFileBytesMax));
  }
  // Subtracting what each section takes cannot overflow, whatever the numbers are.
  uint64_t left = static_cast<uint64_t>(file_size_bytes) - sizeof(Header);
  for (const uint64_t size_bytes : header.size_bytes) {
    if (size_bytes > left) return absl::DataLossError("the index is truncated");
    left -= size_bytes;
  }
  if (left != 0 || header.size_bytes[0] % sizeof(FolderEntry) != 0 ||
      header.size_bytes[1] % sizeof(uint32_t) != 0) {
    return absl::DataLossError("the index is corrupt: its sizes");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteFolderIndex(const FolderIndex& index, const std::string& path) {
  std::string temporary = path + ".XXXXXX";
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  absl::Status status;
  if (!fd.is_open()) {
    status = absl::UnavailableError(ErrnoText("open", errno));
  } else {
    status = WriteSections(fd.get(), index);
    if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
      status = absl::UnavailableError(ErrnoText("rename", errno));
    }
    if (!status.ok()) unlink(temporary.c_str());
  }
  return status.ok() ? status : Annotate(status, fmt::format("cannot write {}", path));
}

absl::StatusOr<FolderIndex> ReadFolderIndex(int folder_fd, const char* name) {
  // A link is not followed: it could lead out of the root.
  const UniqueFd fd(
      openat(folder_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.is_open()) {
    const int error_number = errno;
    if (error_number == ENOENT) return absl::NotFoundError(ErrnoText("open", error_number));
    const std::string text = ErrnoText("open", error_number);
    return IsAboutPath(error_number) ? absl::PermissionDeniedError(text)
                                     : absl::UnavailableError(text);
  }
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return absl::UnavailableError(ErrnoText("fstat", errno));
  if (!S_ISREG(st.st_mode)) return absl::DataLossError("the index is no file");
  if (st.st_size < static_cast<int64_t>(sizeof(Header))) {
    return absl::DataLossError("the index is truncated");
  }
  Header header;
  BATCHD_RETURN_IF_ERROR(ReadAll(fd.get(), &header, sizeof(header)));
  BATCHD_RETURN_IF_ERROR(CheckHeader(header, st.st_size));
  FolderIndex index;
  index.listed_ns = header.listed_ns;
  index.folders.resize(header.size_bytes[0] / sizeof(FolderEntry));
  index.name_ends.resize(header.size_bytes[1] / sizeof(uint32_t));
  index.text.resize(header.size_bytes[2]);
  index.warnings.resize(header.size_bytes[3]);
  void* const places[kSections] = {index.folders.data(), index.name_ends.data(), index.text.data(),
                                   index.warnings.data()};
  for (int i = 0; i < kSections; ++i) {
    BATCHD_RETURN_IF_ERROR(ReadAll(fd.get(), places[i], header.size_bytes[i]));
    if (Xxh3(places[i], header.size_bytes[i]) != header.sum[i]) {
      return absl::DataLossError("the index is corrupt: a checksum does not match");
    }
  }
  BATCHD_RETURN_IF_ERROR(FinishFolderIndex(&index));
  return index;
}

}  // namespace batchd
