// SPDX-License-Identifier: Apache-2.0
//
// A decode worker as its daemon sees it: a child process, a socket to it, memory shared with it.
// Internal to server/decoder.

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/decoder/worker_protocol.h"
#include "server/io/unique_fd.h"

namespace batchd {

inline constexpr int kSilencesMax = 12;

// Thread-compatible: the thread that starts it uses it, and outlives it. Destroying it ends the
// process.
class WorkerProcess {
 public:
  // Starts the program command[0] with the arguments `command` and waits until it is confined. The
  // memory has room for `encoded_bytes_max`; its pages are there once they are written to.
  // Errors: UNAVAILABLE if there is no process, memory or descriptor to be had, or the worker
  // cannot confine itself, with its reason.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Start(
      const std::vector<std::string>& command, int64_t encoded_bytes_max, Duration silence);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Room for the encoded bytes, only ever written.
  uint8_t* encoded() const { return memory_; }
  // The window of rows. What is in it may change at any time.
  const uint8_t* rows() const { return memory_ + memory_size_bytes_ - kRowsSizeBytes; }
  // Gives back the pages of encoded() from `kept_bytes` to `used_bytes`.
  void ReleaseEncoded(int64_t kept_bytes, int64_t used_bytes);

  // False: it has ended.
  bool Send(const WorkerRequest& request);
  // Waits for the answer to the last request. After anything but kAnswer the caller ends the
  // process.
  enum class Received {
    kAnswer,
    kEnd,      // it has ended
    kWrong,    // what came is no answer
    kSilence,  // nothing came for kSilencesMax times `silence`; the log tells of the first
  };
  Received Receive(WorkerAnswer* answer);

  // Ends the process if it has not ended, and returns its status as waitpid(2) gives it; -1 if
  // somebody else has taken that. To be called once.
  int End();

 private:
  WorkerProcess() = default;
  bool IsClosed() const;

  UniqueFd socket_;
  Duration silence_{0};
  uint8_t* memory_ = nullptr;
  int64_t memory_size_bytes_ = 0;
  pid_t pid_ = -1;
};

}  // namespace batchd
