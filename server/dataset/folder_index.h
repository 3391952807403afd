// SPDX-License-Identifier: Apache-2.0
//
// The index of a folder of class folders: which files there are, in order, and how they are kept in
// memory and on disk. Made for millions of names: a folder's path is kept once, a name costs its
// bytes and four more.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace batchd {

// Every folder that was listed, the root and those without samples included: their stamps tell
// whether the index is stale. 32 bytes, as in the file.
struct FolderEntry {
  uint64_t text_offset = 0;   // of its path in `text`; the names of its samples follow
  uint64_t first_sample = 0;  // ordinal of its first sample, or of the next folder's if it has none
  uint64_t stamp = 0;         // FolderStamp when it was listed
  uint32_t path_size = 0;     // bytes
  int32_t class_index = -1;   // -1: the root
};
static_assert(sizeof(FolderEntry) == 32);

// Plain data. The folders are the root, then class by class in the order of their numbers; the
// first of a class is the class folder itself, whose path is the class's name; the rest are in byte
// order of their paths, and so are names within a folder.
struct FolderIndex {
  std::vector<FolderEntry> folders;
  std::vector<uint32_t> name_ends;  // a sample's name ends so many bytes after its folder's path
  std::string text;       // a folder's path (relative to the root), its names, the next …
  std::string warnings;   // one sentence a line
  int64_t listed_ns = 0;  // FileTimeNs() when the listing began
  std::vector<uint32_t> class_folders;  // of a class number; made by FinishFolderIndex

  int64_t num_samples() const { return static_cast<int64_t>(name_ends.size()); }
  std::string_view FolderPath(size_t folder) const;
  // Of a sample, 0 <= ordinal < num_samples(). O(log folders).
  size_t FolderOf(int64_t ordinal) const;
  std::string_view NameIn(size_t folder, int64_t ordinal) const;
  int64_t size_bytes() const;
};

// Checks all that the accessors rely on, and that names are such as a listing gives (so that none
// leads out of the root), and fills `class_folders`. Errors: DATA_LOSS saying what is wrong.
absl::Status FinishFolderIndex(FolderIndex* index);

// The times of a folder as one number, which changes when an entry comes or goes; 0 if it cannot be
// looked at. `path` is relative to `root_fd`; "" is the root itself.
uint64_t FolderStamp(int root_fd, const char* path);

// Whether every folder has the stamp that it had when it was listed.
bool StampsMatch(int root_fd, const FolderIndex& index);
// Whether, moreover, no folder had changed so shortly before it was listed that a later change
// could have the same stamp.
bool StampsMatchSurely(int root_fd, const FolderIndex& index);

// Files. Written under another name first and then renamed, so that a reader sees a whole one.
// Errors of writing: what the system says, naming the path.
absl::Status WriteFolderIndex(const FolderIndex& index, const std::string& path);
// Errors: NOT_FOUND if there is none; DATA_LOSS for whatever is wrong with its content (it may come
// from anywhere); PERMISSION_DENIED if it may not be opened or is a link; UNAVAILABLE if it cannot
// be read now.
absl::StatusOr<FolderIndex> ReadFolderIndex(int folder_fd, const char* name);

}  // namespace batchd
