// SPDX-License-Identifier: Apache-2.0
//
// What a session asks of the thing that carries its messages and batches.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "batchd/status.h"
#include "client/src/util.h"
#include "proto/shm/wire.h"

namespace batchd::internal {

using Clock = std::chrono::steady_clock;
using Duration = std::chrono::nanoseconds;

// No wait lasts longer; the session then asks again.
inline constexpr Duration kWaitMax = std::chrono::seconds(10);

// Whose memory batches lie in. It lives until the last of them is gone.
class Lender {
 public:
  virtual ~Lender() = default;
  // The trainer is done with a slot. `at_once`: says so to the daemon now, else with the next
  // message. Any thread.
  virtual void GiveBack(const wire::Record& release, bool at_once) = 0;
};

// One slab, on loan from its lender.
struct Slab {
  std::shared_ptr<Lender> lender;
  uint8_t* data = nullptr;
  size_t size_bytes = 0;
};

// Uninitialised memory of this process, aligned to 64 bytes. Errors: kOther if there is none.
Result<Slab> MakeHeapSlab(size_t size_bytes);

// First in, first out. It keeps its memory, so that a session allocates nothing for a batch once
// the queue has been as long as it gets.
class RecordQueue {
 public:
  bool empty() const { return next_ == records_.size(); }
  void Push(const wire::Record& record) { records_.push_back(record); }
  wire::Record Pop() {
    const wire::Record record = records_[next_++];
    if (empty()) {
      records_.clear();
      next_ = 0;
    }
    return record;
  }

 private:
  std::vector<wire::Record> records_;
  size_t next_ = 0;
};

// One connection. All calls belong to one thread. A copy in a forked child says nothing to the
// daemon.
class Carrier {
 public:
  virtual ~Carrier() = default;

  // Batches that have come and have not been taken, in order.
  RecordQueue ready;
  // Other ServerMessages that have come, in proto3 JSON; the session handles them after each
  // receive.
  std::deque<Json> messages;

  // Sends a ClientMessage. A lost connection shows at the next receive. Errors: kArgument if it is
  // too long or no UTF-8.
  virtual Status Send(const Json& message) = 0;
  // Takes in what has come next: some batches, or one message. False if nothing has. Errors:
  // kConnectionLost and kUnavailable if the connection is gone, kProtocol, kOther.
  virtual Result<bool> ReceiveNow() = 0;
  // The same, but waits for it, at most `timeout` and at most kWaitMax.
  virtual Result<bool> Receive(Duration timeout) = 0;
  // Makes the batch the trainer's, and says how long it was waited for. Errors: kProtocol.
  virtual Result<Slab> Take(const wire::Record& record, Duration waited, bool was_ready) = 0;
  // Gives a batch back that nobody has seen.
  virtual void Drop(const wire::Record& record) = 0;
  // Slots that the trainer holds.
  virtual int64_t leases_out() const = 0;
};

// A record of the client for the batch that `ready` has announced.
inline wire::Record AnswerTo(const wire::Record& ready, wire::RecordKind kind) {
  wire::Record record{};
  record.kind = static_cast<uint8_t>(kind);
  record.segment = ready.segment;
  record.slot = ready.slot;
  record.sequence = ready.sequence;
  return record;
}

// To the data socket at `path`. Errors: kUnavailable if no daemon is there, kProtocol if it is not
// one of ours, kArgument if the path is too long, kOther without permission.
Result<std::unique_ptr<Carrier>> ConnectShm(const std::string& path);

// To the gRPC door at `target`, which gRPC resolves; with TLS if `secure`. That nobody is there
// shows at the first receive. Not in a build without gRPC.
Result<std::unique_ptr<Carrier>> ConnectGrpc(const std::string& target, bool secure);

}  // namespace batchd::internal
