// SPDX-License-Identifier: Apache-2.0
//
// One client of the socket door: Hello, messages, records and descriptors on one SOCK_SEQPACKET
// socket, and the session behind them.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/api/client_session.h"
#include "server/api/message_json.h"
#include "server/api/peer_watch.h"
#include "server/io/event_loop.h"
#include "server/session/output.h"
#include "server/transport/shm_transport.h"

namespace batchd {

// The largest datagram of the protocol, and one byte that tells a larger one.
inline constexpr size_t kDatagramBytesMax = wire::kFragmentBytesMax + sizeof(wire::FragmentHeader);
inline constexpr size_t kReceiveBufferBytes = kDatagramBytesMax + 1;

// What a connection needs of its door; all of it outlives the connection.
struct ConnectionContext {
  EventLoop* loop = nullptr;
  SessionManager* manager = nullptr;
  PeerWatch peer_watch = PeerWatch::kBest;
  std::span<char> receive_buffer;  // kReceiveBufferBytes; shared, since one loop thread reads
};

// Event loop only. A fault of the client ends its connection with an Error message and touches
// nothing else.
class SocketConnection final : public SessionOutput {
 public:
  // Takes `fd`, a connected non-blocking socket. `ended` is called once, when the connection is
  // over and may be destroyed: later, not inside the call. A `refusal` that is not OK is what the
  // client hears instead of being served.
  SocketConnection(int fd, const ConnectionContext& context, absl::Status refusal,
                   std::function<void()> ended);
  ~SocketConnection() override;

  void OnOpened(const OpenedInfo& info) override;
  void OnSegment(int index, const Segment& segment) override;
  void OnReady(const ReadyBatch& batch) override;
  void OnFailure(const BatchFailure& failure) override;
  void OnExhausted(const ExhaustedInfo& info) override;
  void OnDraining(int64_t deadline_milliseconds) override;
  void OnError(const absl::Status& status) override;

  bool ended() const { return state_ == State::kEnded; }

 private:
  // kClosing: nothing is read any more, what waits is still sent.
  enum class State { kHello, kTalking, kClosing, kEnded };

  void OnEvent(bool readable, bool writable);
  void ReadSome();
  // One datagram into the receive buffer: its size, 0 at the end, -1 if there is none now.
  ssize_t Receive();
  void Handle(std::string_view datagram);
  void HandleHello(std::string_view datagram);
  absl::Status HandleFragment(std::string_view datagram);
  absl::Status HandleRecords(std::string_view datagram);

  void SendMessage(const v1::ServerMessage& message, int passed_fd = -1);
  // After something was pushed: watches for room, or ends what cannot be sent.
  void AfterPush(const absl::Status& pushed);
  void UpdateWanted();
  // Says Error and closes when it is sent.
  void Fail(const absl::Status& status);
  void BeginClosing();
  void End();

  const int fd_;
  const ConnectionContext context_;
  const absl::Status refusal_;
  std::function<void()> ended_;
  State state_ = State::kHello;
  DatagramQueue queue_;
  MessageAssembler assembler_;
  ClientSession session_;
  bool wants_read_ = false;
  bool wants_write_ = false;
  std::unique_ptr<EventLoop::Watch> watch_;
  std::unique_ptr<PeerWatcher> peer_;
  std::unique_ptr<EventLoop::Timer> closing_timer_;
};

}  // namespace batchd
