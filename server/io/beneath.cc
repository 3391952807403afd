// SPDX-License-Identifier: Apache-2.0
#include "server/io/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "server/io/unique_fd.h"

namespace batchd {
namespace {

// Linux 5.12; Debian 12's headers have it, older ones do not.
#ifndef RESOLVE_CACHED
constexpr unsigned long long RESOLVE_CACHED = 0x20;
#endif

// A ".." or link that a rename races with is -EAGAIN under RESOLVE_BENEATH: the kernel asks to be
// asked again. Bounded, since somebody may rename in a loop.
constexpr int kRaceTries = 64;

int Openat2(int root_fd, const char* path, int flags, unsigned long long resolve) {
  open_how how{};
  how.flags = static_cast<unsigned>(flags);
  how.resolve = resolve;
  int fd;
  do {
    fd = static_cast<int>(syscall(SYS_openat2, root_fd, path, &how, sizeof(how)));
  } while (fd < 0 && errno == EINTR);
  return fd < 0 ? -errno : fd;
}

int Openat(int root_fd, const char* path, int flags) {
  int fd;
  do {
    fd = openat(root_fd, path, flags);
  } while (fd < 0 && errno == EINTR);
  return fd < 0 ? -errno : fd;
}

struct Support {
  bool openat2 = false;
  bool cached = false;
};

// Asked once, of a name that always exists: what a filter answers for the real call (ENOSYS, or
// EPERM with older Docker) may mean something else there.
Support Probe() {
  const auto ask = [](unsigned long long resolve) {
    return UniqueFd(Openat2(AT_FDCWD, "/", O_PATH | O_CLOEXEC, resolve)).is_open();
  };
  return {.openat2 = ask(RESOLVE_NO_MAGICLINKS), .cached = ask(RESOLVE_CACHED)};
}

const Support& Supported() {
  static const Support support = Probe();
  return support;
}

}  // namespace

bool IsAboutPath(int error_number) {
  return error_number == ENOENT || error_number == ENOTDIR || error_number == ELOOP ||
         error_number == EACCES || error_number == EPERM || error_number == ENAMETOOLONG ||
         error_number == EXDEV;
}

int OpenBeneathByWalking(int root_fd, const char* path, int flags) {
  flags |= O_CLOEXEC | O_NOFOLLOW;
  if (path[0] == '\0') return -ENOENT;
  if (path[0] == '/') return -EXDEV;
  UniqueFd folder;  // of the part that has been walked; root_fd while it is empty
  char name[256];
  while (true) {
    const size_t length = strcspn(path, "/");
    if (length >= sizeof(name)) return -ENAMETOOLONG;
    memcpy(name, path, length);
    name[length] = '\0';
    if (strcmp(name, "..") == 0) return -EXDEV;  // it may be inside still; no index has such names
    const char* rest = path + length;
    while (*rest == '/') ++rest;
    const int at = folder.is_open() ? folder.get() : root_fd;
    if (*rest == '\0') {
      // "name/" means a folder.
      return Openat(at, name, path[length] == '/' ? flags | O_DIRECTORY : flags);
    }
    const int next = Openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (next < 0) return next;
    folder = UniqueFd(next);
    path = rest;
  }
}

int OpenBeneath(int root_fd, const char* path, int flags, Confinement confinement, OpenWait wait) {
  flags |= O_CLOEXEC;
  const Support& support = Supported();
  const bool beneath = confinement == Confinement::kBeneath;
  const unsigned long long resolve = beneath ? RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS : 0;
  if (wait == OpenWait::kCachedOnly) {
    if (!support.cached) return -EAGAIN;
    return Openat2(root_fd, path, flags, resolve | RESOLVE_CACHED);
  }
  if (!beneath) return Openat(root_fd, path, flags);
  if (!support.openat2) return OpenBeneathByWalking(root_fd, path, flags);
  int fd = -EAGAIN;
  for (int i = 0; i < kRaceTries && fd == -EAGAIN; ++i) {
    fd = Openat2(root_fd, path, flags, resolve);
  }
  return fd;
}

}  // namespace batchd
