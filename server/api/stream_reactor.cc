// SPDX-License-Identifier: Apache-2.0
#include "server/api/stream_reactor.h"

#include <algorithm>
#include <utility>

#include "server/api/convert.h"
#include "server/api/unary_calls.h"

namespace batchd {
namespace {

// With more than this waiting for a client, nothing more is read from it.
constexpr size_t kQueuedBytesMax = size_t{1} << 20;

}  // namespace

StreamReactor* StreamReactor::Start(std::shared_ptr<ManagerGate> gate) {
  auto* reactor = new StreamReactor(std::move(gate));
  reactor->self_.reset(reactor);
  reactor->gate_->Enter();
  reactor->StartRead(&reactor->request_);
  return reactor;
}

// ---- gRPC's threads

void StreamReactor::OnReadDone(bool ok) {
  gate_->Post([self = self_, ok](SessionManager* manager) { self->HandleRead(manager, ok); });
}

void StreamReactor::OnWriteDone(bool ok) {
  bool is_broken;
  {
    MutexLock lock(&mu_);
    is_write_in_flight_ = false;
    is_broken_ = is_broken_ || !ok;
    is_broken = is_broken_;
  }
  if (is_broken) {
    FinishOnce(grpc::Status::CANCELLED);
    return;
  }
  gate_->Post([self = self_](SessionManager*) {
    self->is_writing_ = false;
    self->Pump();
  });
}

void StreamReactor::OnCancel() {
  {
    MutexLock lock(&mu_);
    is_broken_ = true;
    if (is_write_in_flight_) return;  // its reaction finishes
  }
  FinishOnce(grpc::Status::CANCELLED);
}

void StreamReactor::OnDone() {
  const std::shared_ptr<ManagerGate> gate = gate_;
  gate->Post([self = std::move(self_)](SessionManager*) {
    self->queue_.clear();
    self->end_ = absl::CancelledError();
    if (!self->session_.has_value()) return;
    self->session_.reset();
    self->gate_->Leave();
  });
  gate->Leave();
}

void StreamReactor::FinishOnce(const grpc::Status& status) {
  MutexLock lock(&mu_);
  if (is_finished_) return;
  is_finished_ = true;
  Finish(status);
}

// ---- event loop

void StreamReactor::HandleRead(SessionManager* manager, bool ok) {
  if (end_.has_value()) return;
  if (!ok) {
    // The client has ended its half: as good as a Close.
    if (session_.has_value()) session_->Close();
    FinishWith(absl::OkStatus());
    return;
  }
  if (!session_.has_value()) {
    session_.emplace(manager, this, TransportKind::kGrpc);
    gate_->Enter();
  }
  const v1::ClientMessage& message = request_.message();
  if (message.has_release()) {
    // Once released, the slab is filled with another batch, read to the end or not.
    const auto sequence = static_cast<uint64_t>(message.release().sequence());
    KeepOnly([&](const Item& item) {
      return !item.chunks.has_value() || item.chunks->sequence() != sequence;
    });
  }
  auto reply = std::make_unique<v1::StreamResponse>();
  const absl::Status status = session_->Handle(message, reply->mutable_message());
  if (!status.ok()) {
    OnError(status);
  } else if (session_->closed()) {
    FinishWith(absl::OkStatus());
  } else {
    if (reply->message().message_case() != v1::ServerMessage::MESSAGE_NOT_SET) {
      Push(std::move(reply));
    }
    ReadOn();
  }
}

void StreamReactor::ReadOn() {
  if (end_.has_value()) return;
  read_paused_ = queued_bytes_ > kQueuedBytesMax;
  if (read_paused_) return;
  MutexLock lock(&mu_);
  if (!is_finished_) StartRead(&request_);
}

void StreamReactor::Push(std::unique_ptr<v1::StreamResponse> message) {
  if (end_.has_value()) return;
  queued_bytes_ += message->ByteSizeLong();
  queue_.push_back({std::move(message), std::nullopt});
  Pump();
}

template <typename Keep>
void StreamReactor::KeepOnly(Keep keep) {
  std::erase_if(queue_, [&](const Item& item) { return !keep(item); });
}

void StreamReactor::FinishWith(const absl::Status& status) {
  if (end_.has_value()) return;
  end_ = status;
  KeepOnly([](const Item& item) { return !item.chunks.has_value(); });
  Pump();
}

void StreamReactor::Pump() {
  if (is_writing_) return;
  const v1::StreamResponse* response = NextResponse();
  if (response == nullptr) {
    if (end_.has_value()) FinishOnce(ToGrpcStatus(*end_));
    return;
  }
  {
    MutexLock lock(&mu_);
    if (is_broken_ || is_finished_) return;
    is_write_in_flight_ = true;
    is_writing_ = true;
    StartWrite(response);
  }
  if (read_paused_) ReadOn();
}

const v1::StreamResponse* StreamReactor::NextResponse() {
  if (queue_.empty()) return nullptr;
  Item& item = queue_.front();
  if (item.message != nullptr) {
    written_ = std::move(item.message);
    queued_bytes_ -= written_->ByteSizeLong();
    queue_.pop_front();
    return written_.get();
  }
  // Copy 1 of 1: from the slab into the message that gRPC sends.
  const ChunkCursor::Chunk part = item.chunks->Next();
  v1::Chunk* chunk = chunk_.mutable_message()->mutable_chunk();
  chunk->set_sequence(static_cast<int64_t>(part.sequence));
  chunk->set_offset_bytes(part.offset_bytes);
  chunk->mutable_data()->assign(reinterpret_cast<const char*>(part.bytes.data()),
                                part.bytes.size());
  if (item.chunks->done()) queue_.pop_front();
  return &chunk_;
}

void StreamReactor::OnOpened(const OpenedInfo& info) {
  auto response = std::make_unique<v1::StreamResponse>();
  ToProto(info, response->mutable_message()->mutable_opened());
  Push(std::move(response));
}

void StreamReactor::OnSegment(int index, const Segment& segment) {
  auto response = std::make_unique<v1::StreamResponse>();
  ToProto(index, segment, response->mutable_message()->mutable_segment());
  Push(std::move(response));
}

void StreamReactor::OnReady(const ReadyBatch& batch) {
  if (end_.has_value()) return;
  auto response = std::make_unique<v1::StreamResponse>();
  ToProto(batch, response->mutable_message()->mutable_ready());
  Push(std::move(response));
  if (batch.size_bytes > 0) queue_.push_back({nullptr, ChunkCursor(batch)});
  Pump();
}

void StreamReactor::OnFailure(const BatchFailure& failure) {
  auto response = std::make_unique<v1::StreamResponse>();
  ToProto(failure, response->mutable_message()->mutable_failure());
  Push(std::move(response));
}

void StreamReactor::OnExhausted(const ExhaustedInfo& info) {
  auto response = std::make_unique<v1::StreamResponse>();
  ToProto(info, response->mutable_message()->mutable_exhausted());
  Push(std::move(response));
}

void StreamReactor::OnDraining(int64_t deadline_milliseconds) {
  auto response = std::make_unique<v1::StreamResponse>();
  response->mutable_message()->mutable_draining()->set_deadline_milliseconds(
      static_cast<int32_t>(std::clamp<int64_t>(deadline_milliseconds, 0, INT32_MAX)));
  Push(std::move(response));
}

void StreamReactor::OnError(const absl::Status& status) {
  auto response = std::make_unique<v1::StreamResponse>();
  ToProto(status, response->mutable_message()->mutable_error());
  Push(std::move(response));
  FinishWith(status);
}

}  // namespace batchd
