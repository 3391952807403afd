// SPDX-License-Identifier: Apache-2.0
//
// Messages of the data socket as text and in fragments (proto/shm/wire.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "batchd/v1/session.pb.h"

namespace batchd {

// How deep a client's JSON may nest, and how many values it may have: protobuf's parser takes about
// 4 us for each, on the event loop.
inline constexpr int kJsonDepthMax = 64;
inline constexpr int kJsonValuesMax = 32'768;

// Errors: INVALID_ARGUMENT if it is no JSON or no ClientMessage, exceeds the limits above, or names
// an enum value that this build does not know. Unknown fields are left out: a newer client may send
// them.
absl::StatusOr<v1::ClientMessage> ClientMessageFromJson(std::string_view text);

// Defaults are written out. Errors: RESOURCE_EXHAUSTED if the text has more than kMessageBytesMax.
absl::StatusOr<std::string> ServerMessageToJson(const v1::ServerMessage& message);

// Cuts a message into fragments; `put` gets each datagram, the first with `is_first`, and stops all
// by an error.
absl::Status ForEachFragment(std::string_view text,
                             const std::function<absl::Status(std::string_view, bool)>& put);

// Puts fragments together. What it holds is what has arrived, kMessageBytesMax at most.
// Thread-compatible.
class MessageAssembler {
 public:
  // Takes the next datagram; true if message() is whole now, and then the next Add starts anew.
  // Errors: INVALID_ARGUMENT, with what is wrong and the limit.
  absl::StatusOr<bool> Add(std::string_view datagram);
  std::string_view message() const { return message_; }
  // Some fragments have come, but not the last.
  bool in_message() const { return in_message_; }

 private:
  std::string message_;
  size_t size_bytes_ = 0;  // that the fragments announce
  bool in_message_ = false;
};

}  // namespace batchd
