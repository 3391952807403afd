// SPDX-License-Identifier: Apache-2.0
//
// Opening files beneath a root folder: where a shared daemon must not be led out of the folders
// that it may serve, by "..", by an absolute path or by a link. And opening without waiting for a
// device.
//
// Stateless and thread-safe. The calls return a descriptor, closed on exec, or a negative errno
// value: "would wait" is an everyday answer, which must not cost an allocation.

#pragma once

namespace batchd {

enum class Confinement {
  kNone,     // paths may be absolute, links may lead anywhere
  kBeneath,  // whatever leads outside the root is -EXDEV
};

enum class OpenWait {
  kMayWait,     // looks names up on the device if it must
  kCachedOnly,  // -EAGAIN unless every name on the way is in memory, or if the kernel cannot tell
};

// Opens `path` relative to the folder `root_fd` (an O_PATH descriptor will do) with the open(2)
// `flags`. Where openat2(2) is missing (Linux before 5.6, some seccomp filters), kBeneath walks
// down by itself and follows no link at all (-ELOOP).
int OpenBeneath(int root_fd, const char* path, int flags, Confinement confinement, OpenWait wait);

// Whether an errno value of opening says something about the path (ENOENT, EACCES, EXDEV, …). The
// others (EMFILE, EIO, ENOMEM, …) may pass.
bool IsAboutPath(int error_number);

// What kBeneath does without openat2; for OpenBeneath and its tests.
int OpenBeneathByWalking(int root_fd, const char* path, int flags);

}  // namespace batchd
