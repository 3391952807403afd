// SPDX-License-Identifier: Apache-2.0
#include "server/api/unary_calls.h"

#include <string_view>
#include <utility>
#include <vector>

#include "server/api/convert.h"
#include "server/base/status.h"
#include "server/base/sync.h"
#include "server/session/output.h"

namespace batchd {
namespace {

// The reactor of a call that is answered once, from any thread. It owns itself until gRPC is done
// and what was posted has run.
template <typename Response>
class UnaryCall : public grpc::ServerUnaryReactor {
 public:
  UnaryCall(std::shared_ptr<ManagerGate> gate, Response* response)
      : gate_(std::move(gate)), self_(this), response_(response) {
    gate_->Enter();
  }

  // Runs `fn(call, manager)` on the loop.
  template <typename Fn>
  void Post(Fn fn) {
    gate_->Post([self = self_, fn = std::move(fn)](SessionManager* m) mutable { fn(self, m); });
  }

  void Answer(Response* response) {
    MutexLock lock(&mu_);
    if (is_finished_) return;  // cancelled meanwhile: gRPC may have freed its response already
    is_finished_ = true;
    response_->Swap(response);
    Finish(grpc::Status::OK);
  }

  void Refuse(const absl::Status& status) {
    MutexLock lock(&mu_);
    if (is_finished_) return;
    is_finished_ = true;
    Finish(ToGrpcStatus(status));
  }

  void OnCancel() override { Refuse(absl::CancelledError("the client has gone")); }

  void OnDone() override {
    const std::shared_ptr<ManagerGate> gate = gate_;
    gate->Post([self = std::move(self_)](SessionManager* manager) { self->OnLoopDone(manager); });
    gate->Leave();
  }

 protected:
  // On the loop, after the call is over.
  virtual void OnLoopDone(SessionManager* /*manager*/) {}

  const std::shared_ptr<ManagerGate> gate_;

 private:
  std::shared_ptr<UnaryCall> self_;
  Response* const response_;
  Mutex mu_;
  bool is_finished_ ABSL_GUARDED_BY(mu_) = false;
};

// A session of one batch. All of SessionOutput comes on the loop.
class GetBatchCall final : public UnaryCall<v1::GetBatchResponse>, public SessionOutput {
 public:
  using UnaryCall::UnaryCall;

  void Open(SessionManager* manager, OpenRequest request) {
    is_open_ = true;
    gate_->Enter();
    id_ = manager->Open(std::move(request), this);
  }

  void OnOpened(const OpenedInfo& info) override {
    columns_ = info.columns;
    if (info.slab_size_bytes > kGetBatchBytesMax) {
      Refuse(
          Err(absl::StatusCode::kResourceExhausted,
              "the batch has {} bytes and GetBatch gives at most {}; lower global_batch_size, ask "
              "for another world size, or read it through Stream",
              info.slab_size_bytes, kGetBatchBytesMax));
    }
  }
  void OnSegment(int, const Segment&) override {}
  void OnReady(const ReadyBatch& batch) override {
    if (batch.size_bytes > kGetBatchBytesMax) return;  // refused above
    v1::GetBatchResponse response;
    SlabToProto(batch, columns_, &response);
    Answer(&response);
  }
  void OnFailure(const BatchFailure& failure) override { Refuse(failure.status); }
  void OnExhausted(const ExhaustedInfo& info) override {
    Refuse(Err(absl::StatusCode::kResourceExhausted, "{}", info.message));
  }
  void OnDraining(int64_t) override {}
  void OnError(const absl::Status& status) override { Refuse(status); }

 protected:
  void OnLoopDone(SessionManager* manager) override {
    if (!is_open_) return;
    manager->Close(id_);
    gate_->Leave();
  }

 private:
  bool is_open_ = false;
  SessionId id_ = 0;
  std::vector<ColumnShape> columns_;
};

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  // Trailing metadata may have 8 KiB with many clients, and percent-encoding can treble the text.
  constexpr size_t kMessageBytesMax = 2000;
  const std::string_view text(status.message().data(), status.message().size());
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      ValidUtf8(text.substr(0, kMessageBytesMax)));
}

grpc::ServerUnaryReactor* StartGetBatch(std::shared_ptr<ManagerGate> gate,
                                        const v1::GetBatchRequest& request,
                                        v1::GetBatchResponse* response) {
  auto* call = new GetBatchCall(std::move(gate), response);
  absl::StatusOr<OpenRequest> open = SingleFromProto(request);
  if (!open.ok()) {
    call->Refuse(open.status());
    return call;
  }
  call->Post(
      [call, open = *std::move(open)](const auto& /*alive*/, SessionManager* manager) mutable {
        call->Open(manager, std::move(open));
      });
  return call;
}

grpc::ServerUnaryReactor* StartDescribe(std::shared_ptr<ManagerGate> gate,
                                        const v1::DescribeRequest& request,
                                        v1::DescribeResponse* response) {
  auto* call = new UnaryCall<v1::DescribeResponse>(std::move(gate), response);
  absl::StatusOr<OpenRequest> open = OpenFromProto(request.open(), TransportKind::kGrpc);
  if (!open.ok()) {
    call->Refuse(open.status());
    return call;
  }
  call->Post([open = *std::move(open)](const auto& self, SessionManager* manager) mutable {
    manager->Describe(std::move(open), [self](absl::StatusOr<OpenedInfo> info) {
      if (!info.ok()) {
        self->Refuse(info.status());
        return;
      }
      v1::DescribeResponse answer;
      ToProto(*info, answer.mutable_opened());
      self->Answer(&answer);
    });
  });
  return call;
}

grpc::ServerUnaryReactor* StartGetStatus(std::shared_ptr<ManagerGate> gate,
                                         v1::GetStatusResponse known,
                                         v1::GetStatusResponse* response) {
  auto* call = new UnaryCall<v1::GetStatusResponse>(std::move(gate), response);
  call->Post([known = std::move(known)](const auto& self, SessionManager* manager) mutable {
    known.set_slab_budget_bytes(manager->slab_budget().limit_bytes());
    known.set_slab_used_bytes(manager->slab_budget().used_bytes());
    known.set_draining(manager->draining());
    for (const SessionStatusInfo& session : manager->Sessions()) {
      ToProto(session, known.add_sessions());
    }
    self->Answer(&known);
  });
  return call;
}

}  // namespace batchd
