// SPDX-License-Identifier: Apache-2.0
//
// One session with a daemon: from Open to Close over one connection. It knows nothing of
// reconnection; the Loader does.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batchd/batch.h"
#include "client/src/carrier.h"
#include "client/src/state.h"

namespace batchd::internal {

// The message Opened.
struct Opened {
  RunState run;
  int64_t num_samples = 0;
  int64_t num_classes = 0;
  int64_t steps_per_epoch = 0;
  int64_t rows_max = 0;
  std::string source_name;
  std::vector<std::string> warnings;
  std::vector<ColumnSpec> columns;
};

// A batch that the trainer has now.
struct Taken {
  wire::Record record;
  Slab slab;
};

class Session {
 public:
  // Opens, and waits for the daemon's answer. Errors: kOpen, kStateMismatch, kUnavailable,
  // kProtocol, kArgument.
  static Result<std::unique_ptr<Session>> Open(std::unique_ptr<Carrier> carrier,
                                               const Json& open_message);

  const Opened& opened() const { return opened_; }

  // The address of the next batch; none after a failure: then only Seek() goes on.
  const std::optional<Position>& next() const { return next_; }

  // How often TakeNext() has failed for the batch itself, and not for the connection.
  int64_t failures() const { return failures_; }

  // Goes on at `position`. What lies ready elsewhere is given back unseen.
  Status Seek(Position position);

  // The batch at next(); waits for it. Errors: those of a batch that failed, after which next() is
  // none; kSlotsExhausted; kConnectionLost and kUnavailable if another connection may have it;
  // kOpen and kProtocol, after which the session goes no further.
  Result<Taken> TakeNext();

  Result<std::vector<std::string>> SampleNames(std::span<const int64_t> ordinals);
  Result<std::vector<std::string>> ClassNames();

 private:
  Session(std::unique_ptr<Carrier> carrier, const Json& open_message);

  Result<std::vector<std::string>> Ask(const char* kind, Json query);
  // The batch that lies ready, or none. Errors: the failure that lies there instead; the carrier's.
  Result<std::optional<wire::Record>> PopReady();
  Result<wire::Record> WaitForReady();
  Status SlotsExhausted() const;
  Status FailureToStatus(const Json& failure) const;
  Status Receive(Duration timeout);
  Status HandleMessages();
  Status OnMessage(const Json& message);

  const std::unique_ptr<Carrier> carrier_;
  const uint32_t rank_;
  const uint32_t world_size_;
  const bool expects_fingerprint_;
  bool is_open_ = false;
  bool is_draining_ = false;
  Opened opened_;
  std::optional<Position> next_;
  uint32_t generation_ = 0;
  int64_t failures_ = 0;
  std::optional<Json> failure_;    // the last of its generation: no batch comes after it
  std::optional<Json> exhausted_;  // what the daemon has said, until a lease has gone back
  int64_t held_then_ = 0;          // leases when it said so
  int64_t query_id_ = 0;
  std::map<int64_t, std::vector<std::string>> answers_;
};

}  // namespace batchd::internal
