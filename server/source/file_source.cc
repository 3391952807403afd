// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "server/base/status.h"
#include "server/io/beneath.h"
#include "server/io/unique_fd.h"
#include "server/source/source.h"

namespace batchd {
namespace {

// O_NONBLOCK: opening a FIFO must not wait for its writer. Regular files do not care.
constexpr int kOpenFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

absl::Status OpenError(int error_number) {
  switch (error_number) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return MakeSampleError(SampleReason::kNotFound, ErrnoText("open", error_number));
    case EXDEV:
      return MakeSampleError(SampleReason::kNotFound,
                             "leads outside the dataset's root, which a shared daemon does not "
                             "follow; put the file below the root");
    case ENXIO:  // a socket, or a device that has no driver
    case ENODEV:
    case EOPNOTSUPP:
      return MakeSampleError(SampleReason::kNotAFile, ErrnoText("open", error_number));
    default:  // EMFILE, ENFILE, ENOMEM, EIO, ESTALE, EAGAIN: it may pass
      return absl::UnavailableError(ErrnoText("open", error_number));
  }
}

std::string_view FileTypeText(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

// How many bytes the location means, in a file of this kind and size.
absl::StatusOr<size_t> BytesWanted(const SampleLocation& location, const struct stat& st) {
  if (!S_ISREG(st.st_mode)) {
    return SampleErr(SampleReason::kNotAFile, "is {}", FileTypeText(st.st_mode));
  }
  const int64_t available = st.st_size - location.offset_bytes;
  const int64_t wanted = location.size_bytes < 0 ? available : location.size_bytes;
  if (available < 0 || wanted > available) {
    return SampleErr(SampleReason::kCorrupt,
                     "changed since indexing: the file has {} bytes, the index says at least {}",
                     st.st_size, location.offset_bytes + std::max<int64_t>(wanted, 0));
  }
  if (wanted == 0) return MakeSampleError(SampleReason::kEmpty, "has no bytes");
  return static_cast<size_t>(wanted);
}

// RWF_NOWAIT is refused by filesystems that cannot tell what is in memory. Of these, only the ones
// that live in memory never wait.
bool LivesInMemory(int fd) {
  struct statfs fs;
  if (fstatfs(fd, &fs) != 0) return false;
  return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
}

ssize_t ReadAt(int fd, uint8_t* data, size_t size_bytes, int64_t offset_bytes, int flags) {
  iovec part = {data, size_bytes};
  ssize_t n;
  do {
    n = preadv2(fd, &part, 1, offset_bytes, flags);
  } while (n < 0 && errno == EINTR);
  return n;
}

class FileSource : public Source {
 public:
  FileSource(UniqueFd root, Confinement confinement)
      : root_(std::move(root)), confinement_(confinement) {}

  absl::StatusOr<TryReadResult> TryRead(const SampleLocation& location, size_t inline_bytes_max,
                                        ReadBuffer* buffer) override {
    const int opened = OpenBeneath(root_.get(), location.path.c_str(), kOpenFlags, confinement_,
                                   OpenWait::kCachedOnly);
    if (opened == -EAGAIN) return TryReadResult::kWouldWait;
    if (opened < 0) return OpenError(-opened);
    const UniqueFd fd(opened);
    struct stat st;
    // A status that is not in memory is rare once the name is; Read meets its errors again.
    if (fstat(fd.get(), &st) != 0) return TryReadResult::kWouldWait;
    BATCHD_ASSIGN_OR_RETURN(const size_t wanted, BytesWanted(location, st));
    if (wanted > inline_bytes_max) return TryReadResult::kWouldWait;
    uint8_t* data = buffer->Resize(wanted);
    ssize_t n = ReadAt(fd.get(), data, wanted, location.offset_bytes, RWF_NOWAIT);
    if (n < 0 && errno == EOPNOTSUPP && LivesInMemory(fd.get())) {
      n = ReadAt(fd.get(), data, wanted, location.offset_bytes, 0);
    }
    // A part, or an error: Read gets the rest, or says what is wrong.
    if (n != static_cast<ssize_t>(wanted)) return TryReadResult::kWouldWait;
    return TryReadResult::kRead;
  }

  absl::Status Read(const SampleLocation& location, size_t encoded_bytes_max,
                    ReadBuffer* buffer) override {
    const int opened = OpenBeneath(root_.get(), location.path.c_str(), kOpenFlags, confinement_,
                                   OpenWait::kMayWait);
    if (opened < 0) return OpenError(-opened);
    const UniqueFd fd(opened);
    struct stat st;
    if (fstat(fd.get(), &st) != 0) return absl::UnavailableError(ErrnoText("fstat", errno));
    BATCHD_ASSIGN_OR_RETURN(const size_t wanted, BytesWanted(location, st));
    if (wanted > encoded_bytes_max) {
      return SampleErr(SampleReason::kTooLarge, "has {} bytes; the limit is {}", wanted,
                       encoded_bytes_max);
    }
    uint8_t* data = buffer->Resize(wanted);
    for (size_t done = 0; done < wanted;) {
      const ssize_t n = ReadAt(fd.get(), data + done, wanted - done,
                               location.offset_bytes + static_cast<int64_t>(done), 0);
      if (n < 0) return absl::UnavailableError(ErrnoText("read", errno));
      if (n == 0) {
        return SampleErr(SampleReason::kCorrupt,
                         "changed while it was read: it ended after {} of {} bytes", done, wanted);
      }
      done += static_cast<size_t>(n);
    }
    return absl::OkStatus();
  }

 private:
  const UniqueFd root_;
  const Confinement confinement_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> MakeFileSource(const std::string& root, bool beneath) {
  UniqueFd fd(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) {
    const int error_number = errno;
    const auto code = error_number == EACCES      ? absl::StatusCode::kPermissionDenied
                      : IsAboutPath(error_number) ? absl::StatusCode::kNotFound
                                                  : absl::StatusCode::kUnavailable;
    return Err(code, "cannot open the folder {}: {}", root, ErrnoText("open", error_number));
  }
  return std::make_unique<FileSource>(std::move(fd),
                                      beneath ? Confinement::kBeneath : Confinement::kNone);
}

}  // namespace batchd
