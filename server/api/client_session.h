// SPDX-License-Identifier: Apache-2.0
//
// The client's half of one session, the same behind both doors: which messages may come when, and
// which call of the SessionManager each of them is.

#pragma once

#include "absl/status/status.h"
#include "batchd/v1/session.pb.h"
#include "server/session/manager.h"

namespace batchd {

// Event loop only. `manager` outlives it, and `output` outlives the manager's use of it. Calls of
// the manager may come back as calls of `output` before they return.
class ClientSession {
 public:
  ClientSession(SessionManager* manager, SessionOutput* output, TransportKind door)
      : manager_(manager), output_(output), door_(door) {}
  ~ClientSession() { Close(); }
  ClientSession(const ClientSession&) = delete;
  ClientSession& operator=(const ClientSession&) = delete;

  // One message. `reply` gets the answer if it has one (reply->message_case() says so). Sets
  // closed() after a Close. Errors: what the client is told before the connection ends:
  // FAILED_PRECONDITION for a message out of turn, UNIMPLEMENTED for an unknown one, field errors.
  absl::Status Handle(const v1::ClientMessage& message, v1::ServerMessage* reply);

  // The two that come as records on the data socket. Errors: FAILED_PRECONDITION before Open.
  absl::Status Take(const SlotRef& ref, Duration waited, bool was_ready);
  absl::Status Release(const SlotRef& ref);

  // Ends the session with the manager, which then leaves `output` alone. Not from a call of
  // `output`.
  void Close();

  // The client has said Close, or Close() has been called.
  bool closed() const { return state_ == State::kClosed; }

 private:
  enum class State { kNew, kOpen, kClosed };

  absl::Status Open(const v1::Open& open);
  absl::Status Seek(const v1::Seek& seek);
  absl::Status Query(const v1::Query& query, v1::Answer* answer);
  absl::Status NeedsOpen(const char* what) const;

  SessionManager* const manager_;
  SessionOutput* const output_;
  const TransportKind door_;
  State state_ = State::kNew;
  SessionId id_ = 0;
};

}  // namespace batchd
