// SPDX-License-Identifier: Apache-2.0
//
// The CPU threads: each takes the most urgent row and makes it, from bytes to final values in the
// slab, in one go. They do nothing else and wait for nothing but work.

#pragma once

#include <thread>
#include <vector>

#include "server/metrics/metrics.h"
#include "server/pipeline/readers.h"
#include "server/pipeline/work_queue.h"

namespace batchd {

// Files above this are read by a reader even when the page cache has them, so that the encoded
// bytes that CPU threads hold stay small.
inline constexpr size_t kInlineReadBytesMax = size_t{4} << 20;

struct CpuPoolOptions {
  int thread_count = 1;
  // The threads run below the trainer: this niceness, SCHED_BATCH. 0 leaves both alone.
  int nice = 10;
  // Working memory of large pictures waits for room here; see Worker.
  ByteGate* scratch_gate = nullptr;
  // If not null, pictures are decoded in processes; outlives the pool.
  DecodeIsolation* isolation = nullptr;
};

// Destroying it stops the queue and joins the threads.
class CpuPool {
 public:
  // All outlive the pool.
  CpuPool(const CpuPoolOptions& options, WorkQueue* queue, Readers* readers, Metrics* metrics);
  ~CpuPool();

 private:
  void Run();

  const CpuPoolOptions options_;
  WorkQueue* const queue_;
  Readers* const readers_;
  Metrics* const metrics_;
  std::vector<std::thread> threads_;
};

// Makes one row, or hands it to `readers` if its bytes are not in memory. One RowMaker per thread.
// Thread-compatible.
class RowMaker {
 public:
  RowMaker(ByteGate* scratch_gate, Readers* readers, Metrics* metrics,
           DecodeIsolation* isolation = nullptr);

  void Make(RowTask task);

 private:
  // What became of one try.
  enum class Outcome { kMade, kFailed, kHandedOver };

  Outcome Try(RowTask* task, absl::Status* status);
  // False: the bytes are not in memory.
  absl::StatusOr<bool> GetBytes(RowTask* task, Bytes* bytes);
  absl::Status MakeColumns(const RowTask& task, Bytes bytes);
  // Whether the task now names a substitute to try.
  bool NextSubstitute(RowTask* task, const absl::Status& status);
  void EndBadRow(RowTask* task, const absl::Status& status);

  Readers* const readers_;
  Metrics* const metrics_;
  Worker worker_;
};

}  // namespace batchd
