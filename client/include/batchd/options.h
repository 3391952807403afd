// SPDX-License-Identifier: Apache-2.0
//
// What a Loader is asked for.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batchd/status.h"

namespace batchd {

// Something that the daemon knows by name: a dataset, or one operation of a column. The page
// docs/reference/operations.md and `batchd plugins` list names and arguments; the daemon checks
// them when a Loader is opened and names the one that is wrong.
struct Operation {
  std::string name;
  std::string arguments = "{}";  // a JSON object, such as R"({"size": 224})"
};

// Pictures in one folder per class, in torchvision's order and with its class numbers. A relative
// path is taken from this process's working folder.
BATCHD_EXPORT Operation ImageFolder(std::string_view root);

// One column of every batch: what is made of a sample. The first operation decodes (DecodeImage,
// Label), the others change what it gives.
struct ColumnOptions {
  std::string name;  // 1 to 64 characters out of [A-Za-z0-9_]
  std::vector<Operation> operations;
};

// The order of an epoch.
enum class Shuffle {
  kNone,     // the dataset's own
  kFeistel,  // random by seed and epoch, without memory per sample
  kTorch,    // that of torch's DistributedSampler
};

// The end of an epoch where the number of samples is no multiple of the global batch.
enum class LastBatch {
  kDefault,  // kDrop when shuffled, else kPartial
  kDrop,     // the last samples are left out
  kPad,      // samples are repeated; their rows have RowStatus::kPad
  kPartial,  // the last batch is shorter, for some ranks perhaps of 0 rows
};

// What happens with a sample that cannot be read or decoded.
enum class OnBadSample {
  kFail,        // Next() fails with ErrorKind::kSample, and the position stays
  kSkip,        // zeros, label -100, RowStatus::kSkipped
  kSubstitute,  // another sample in its place, RowStatus::kSubstituted
};

// How batches come.
enum class Transport {
  kBest,  // kShm where the daemon is on this machine, else kGrpc
  kShm,   // the daemon's own memory, without a copy
  kGrpc,  // over gRPC, from any machine; one copy
};

// Every member has a default, so that `{.dataset = ..., .columns = ...}` warns of none.
struct LoaderOptions {
  // A dataset, or {.name = NAME} for one that a shared daemon's configuration names.
  Operation dataset = {};
  // In the order of the batch's columns; at least one.
  std::vector<ColumnOptions> columns = {};

  // Rows of a batch on each rank; or those of a step over all ranks. Give exactly one; 1 to 2^24.
  std::optional<int64_t> batch_size = std::nullopt;
  std::optional<int64_t> global_batch_size = std::nullopt;

  Shuffle shuffle = Shuffle::kNone;
  uint64_t seed = 0;  // of all randomness: order, augmentation, substitutes
  LastBatch last_batch = LastBatch::kDefault;
  OnBadSample on_bad_sample = OnBadSample::kFail;
  // The most bad rows of an epoch, as a count or as a share from 0 to 1; give one at most.
  std::optional<int64_t> max_bad_samples = std::nullopt;
  std::optional<double> max_bad_share = std::nullopt;

  int prefetch = 4;       // batches made ahead; 1 to 256
  std::string name = {};  // of the job, in the daemon's logs and metrics

  // This process's part; from RANK and WORLD_SIZE where not given, else 0 of 1.
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;

  Transport transport = Transport::kBest;
  // unix:PATH, HOST:PORT or grpcs://HOST:PORT; from BATCHD_ADDRESS where empty, else a private
  // daemon is started: the program BATCHD_BINARY, or `batchd` on PATH.
  std::string address = {};
  // How long to look for a daemon that has gone; from BATCHD_RECONNECT_TIMEOUT_SECONDS where not
  // given, else 300.
  std::optional<double> reconnect_timeout_seconds = std::nullopt;

  // Gets what a user should know, a line at a time: warnings of the daemon, a lost connection, what
  // a loaded state has changed. Called by the Loader's calls, in their thread. Empty: to stderr.
  std::function<void(std::string_view)> log = {};
};

}  // namespace batchd
