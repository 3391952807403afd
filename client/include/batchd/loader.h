// SPDX-License-Identifier: Apache-2.0
//
// The loader: a run through a dataset that a batchd daemon reads, decodes and batches.
//
//   batchd::Result<batchd::Loader> loader = batchd::Loader::Open({
//       .dataset = batchd::ImageFolder("data/train"),
//       .columns = {{"image", {{"DecodeImage"}, {"RandomResizedCrop", R"({"size": 224})"}}},
//                   {"label", {{"Label"}}}},
//       .batch_size = 64,
//       .shuffle = batchd::Shuffle::kFeistel});
//   if (!loader.ok()) ...
//   for (;;) {
//     batchd::Result<batchd::Batch> batch = loader->Next();
//     if (!batch.ok()) ...
//     ...
//     if (batch->last_in_epoch()) break;
//   }

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "batchd/batch.h"
#include "batchd/options.h"
#include "batchd/status.h"

namespace batchd {

// It owns its position: a daemon that dies is a pause, after which Next() goes on with the batch
// that comes next, byte for byte the same.
//
// Thread-safety: a Loader is used by one thread at a time, in the process that opened it; its
// batches may be released by any. In a forked child every call fails with kFork and batches give
// nothing back.
class BATCHD_EXPORT Loader {
 public:
  // Blocks until the daemon has opened the dataset.
  // Errors: kArgument, kOpen, kUnavailable, kProtocol; kOther, with code NOT_FOUND or
  // PERMISSION_DENIED, if there is no program or no safe folder for a private daemon.
  static Result<Loader> Open(LoaderOptions options);

  Loader(Loader&& other) noexcept;
  Loader& operator=(Loader&& other) noexcept;
  ~Loader();  // as Close()

  // The next batch, past the end of an epoch as well; waits for it.
  // Errors: kSample and kSlotsExhausted, after which the position is where it was; kConnectionLost
  // after reconnect_timeout_seconds, the same; kUnavailable if storage does not answer;
  // kStateMismatch if another daemon has other data or decoders; kProtocol; kOther.
  Result<Batch> Next();

  // The state after the last batch that Next() returned, the same on every rank: less than 1 KiB of
  // JSON, the same as the Python client's.
  std::string State() const;

  // Goes on from a state, whose seed, shuffle, global batch and policies win.
  // Errors: kStateMismatch if it is no state, of other data, or of another pipeline; with
  // strict=false another pipeline is accepted and the order kept. What Open() says. After an error
  // the Loader is as it was.
  Status LoadState(std::string_view state, bool strict = true);

  // The epoch of the next batch.
  int64_t epoch() const;
  // The next batch is the first of this epoch; a position in it that was just loaded stays. Errors:
  // kArgument if it is not 0 to 2^32 - 1.
  Status SetEpoch(int64_t epoch);

  // Copies of the next `count` batches, 1 to 256, by a session of its own: moves nothing. Errors:
  // as Next() and Open().
  Result<std::vector<Batch>> Peek(int count = 1);

  // Names of the classes, in the order of their numbers; empty if the dataset has none.
  Result<std::vector<std::string>> Classes();
  // Names of samples: NamesOf(batch.sample_ids()). Errors: kOpen if an ordinal does not exist.
  Result<std::vector<std::string>> NamesOf(std::span<const int64_t> ordinals);

  int64_t num_samples() const;
  int64_t steps_per_epoch() const;
  // In the order of the options; valid until the next call that is not const.
  const std::vector<ColumnSpec>& columns() const;
  Transport transport() const;  // kShm or kGrpc
  // How often the Loader has gone to a daemon anew, because the one before was gone.
  int64_t reconnects() const;
  // One line for people: source, sizes, position, transport and why that one.
  std::string ToString() const;

  // Ends the session; batches that are still there stay valid. Does nothing the second time; every
  // other call fails afterwards, or says what it last knew.
  void Close();

 private:
  class [[gnu::visibility("hidden")]] Impl;
  explicit Loader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace batchd
