// SPDX-License-Identifier: Apache-2.0
//
// Decoding in processes of its own: an ImageDecoder that hands the bytes to a decode worker
// (decode_worker.h) and puts the rows that come back into the sink. Sizes, pixels and errors are
// those of the decoders in this process; a fault in one ends its worker and nothing else.
//
// A picture whose worker ends gets one more try, in a fresh one: what an earlier picture has spoilt
// in the memory of a worker is not its fault. If that ends too, by a fault of its own, the sample
// is `unsupported`: this build cannot decode it. If it was killed from outside (SIGKILL, as when
// memory is short) or says nothing for two minutes, that may pass and is no property of the sample:
// UNAVAILABLE.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/base/clock.h"
#include "server/base/sync.h"
#include "server/decoder/decoder.h"
#include "server/metrics/metrics.h"

namespace batchd {

struct DecodeIsolationOptions {
  // The worker program; a decode worker's arguments follow.
  std::string program = "/proc/self/exe";
  // The most encoded bytes of one picture; what is above is RESOURCE_EXHAUSTED.
  int64_t encoded_bytes_max = 0;
  // What decoding one picture may take; a worker that wants more is without memory.
  int64_t memory_bytes_max = 0;
  // A worker that owes an answer for so long is told of in the log, and ended after 12 times that.
  // No decoder needs nearly as long: it was stopped, or is not to be trusted.
  Duration silence = std::chrono::seconds(10);
};

// What all isolated decoders of a daemon have in common. Thread-safe; outlives its decoders.
class DecodeIsolation {
 public:
  DecodeIsolation(const DecodeIsolationOptions& options, Metrics* metrics);

  // For all kinds of pictures. Its worker is started when first needed, by the thread that needs
  // it; that thread uses it alone and destroys it before it ends. ReadHeader and Decode wait for
  // the worker as long as it takes; what they return besides a decoder's errors is said above.
  std::unique_ptr<ImageDecoder> MakeDecoder();

  // Whether a worker can be started and confined here. Errors: UNAVAILABLE with what is refused.
  absl::Status Check() const;

 private:
  friend class IsolatedDecoder;
  enum class Ending { kFault, kForbiddenCall, kKilled, kSilent, kWrongAnswer };

  // Counts and logs a worker's end before its time.
  void Report(Ending ending, int pid, const std::string& how);

  const DecodeIsolationOptions options_;
  const std::vector<std::string> command_;
  Metrics* const metrics_;
  Mutex mu_;
  TimePoint next_log_ ABSL_GUARDED_BY(mu_);
  int64_t unlogged_count_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace batchd
