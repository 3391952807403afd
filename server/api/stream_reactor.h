// SPDX-License-Identifier: Apache-2.0
//
// One stream of the gRPC door, a session whose batches travel in it.
//
// gRPC calls the reactions on its own threads; each posts to the event loop, where the session, the
// queue and every touch of a slab are. A slab is read one chunk at a time, when the write before
// has gone out, and never again once its batch is released or the session over.

#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>

#include "batchd/v1/service.grpc.pb.h"
#include "server/api/client_session.h"
#include "server/api/manager_gate.h"
#include "server/base/sync.h"
#include "server/session/output.h"
#include "server/transport/grpc_transport.h"

namespace batchd {

// Owns itself until gRPC and the loop are both done with it.
class StreamReactor final : public grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>,
                            public SessionOutput {
 public:
  static StreamReactor* Start(std::shared_ptr<ManagerGate> gate);

  // gRPC's threads.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Event loop.
  void OnOpened(const OpenedInfo& info) override;
  void OnSegment(int index, const Segment& segment) override;
  void OnReady(const ReadyBatch& batch) override;
  void OnFailure(const BatchFailure& failure) override;
  void OnExhausted(const ExhaustedInfo& info) override;
  void OnDraining(int64_t deadline_milliseconds) override;
  void OnError(const absl::Status& status) override;

 private:
  // A message, or a batch's chunks.
  struct Item {
    std::unique_ptr<v1::StreamResponse> message;
    std::optional<ChunkCursor> chunks;
  };

  explicit StreamReactor(std::shared_ptr<ManagerGate> gate) : gate_(std::move(gate)) {}

  // Event loop.
  void HandleRead(SessionManager* manager, bool ok);
  void Push(std::unique_ptr<v1::StreamResponse> message);
  template <typename Keep>
  void KeepOnly(Keep keep);
  void Pump();
  const v1::StreamResponse* NextResponse();
  void ReadOn();
  void FinishWith(const absl::Status& status);

  // Any thread.
  void FinishOnce(const grpc::Status& status);

  const std::shared_ptr<ManagerGate> gate_;
  std::shared_ptr<StreamReactor> self_;

  // In gRPC's hands from StartRead and StartWrite to the reaction, else the loop's.
  v1::StreamRequest request_;
  std::unique_ptr<v1::StreamResponse> written_;
  v1::StreamResponse chunk_;  // apart, so that its megabyte is allocated once

  // Event loop only.
  std::optional<ClientSession> session_;
  std::deque<Item> queue_;
  size_t queued_bytes_ = 0;  // of messages
  bool read_paused_ = false;
  bool is_writing_ = false;
  std::optional<absl::Status> end_;  // what the stream ends with when the queue is empty

  Mutex mu_;
  bool is_write_in_flight_ ABSL_GUARDED_BY(mu_) = false;
  bool is_broken_ ABSL_GUARDED_BY(mu_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace batchd
