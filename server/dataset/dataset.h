// SPDX-License-Identifier: Apache-2.0
//
// A dataset says what the samples are: how many, their names, labels and where their bytes lie. It
// is an index, immutable once open, and one copy of it serves all sessions of a daemon.
//
// Adding one: a file `<name>.cc` with a schema and a DatasetKind, its line in registry.cc and
// CMakeLists.txt, and a unit test. tests/conformance/dataset_suite.h runs over every kind.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/base/schema.h"
#include "server/source/source.h"

namespace batchd {

// Immutable: thread-safe. Shared by the sessions that use it.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t num_samples() const = 0;

  // The classes in the order of their numbers; empty if there are none.
  virtual int64_t num_classes() const = 0;
  virtual std::string ClassName(int64_t index) const = 0;

  // For 0 <= ordinal < num_samples():
  virtual std::string NameOf(int64_t ordinal) const = 0;  // unique, relative, for people and hashes
  virtual int64_t LabelOf(int64_t ordinal) const = 0;     // -1 if there is none
  // Where the bytes are. Allocates only when the path is longer than any before it in `location`.
  virtual void Locate(int64_t ordinal, SampleLocation* location) const = 0;

  // What the locations refer to.
  virtual Source* source() const = 0;

  // 32 hexadecimal digits over kind, names in order, labels and class names; independent of the
  // root's path, of times and inodes.
  virtual const std::string& fingerprint() const = 0;

  // Where the data come from, for people: the folder's path.
  virtual const std::string& source_name() const = 0;

  // What the user should know, one sentence each: left-out entries and their count.
  virtual const std::vector<std::string>& warnings() const = 0;

  // Bytes that the index takes in memory.
  virtual int64_t index_bytes() const = 0;

  // Whether the data have changed since the index was made, as far as a cheap look tells.
  virtual bool IsStale() const = 0;
};

// Where and how datasets may be opened.
struct DatasetContext {
  // Index caches live here; "" for none. The folder may be deleted at any time.
  std::string state_dir;
  // A shared daemon opens only below these; empty with `any_root` false means none.
  std::vector<std::string> roots;
  // A private daemon opens whatever its user can read.
  bool any_root = true;
};

// Plain data with static lifetime.
struct DatasetKind {
  const Schema& (*schema)();
  // `arguments` have passed CheckArguments with the schema. May take long: control thread only.
  // Errors: field errors; NOT_FOUND (no such folder); PERMISSION_DENIED (outside the roots);
  // FAILED_PRECONDITION (no classes, no samples), each with path and way out.
  absl::StatusOr<std::shared_ptr<const Dataset>> (*open)(const Json& arguments,
                                                         const DatasetContext& context);
};

std::span<const DatasetKind* const> DatasetKinds();
const DatasetKind* FindDataset(std::string_view name);

// Makes the index of the folder `root` afresh and writes it to `root`/.batchd-index, where
// ImageFolder finds it wherever the folder is copied. Returns the number of samples.
absl::StatusOr<int64_t> WriteImageFolderIndex(const std::string& root);

}  // namespace batchd
