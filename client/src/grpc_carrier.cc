// SPDX-License-Identifier: Apache-2.0
//
// Batches over gRPC, from a daemon anywhere: one Stream of its gRPC door.
//
// Copy 1 of 1: the chunks of a batch are put together in memory of this process. The slot is given
// back as soon as Next() has returned the batch, so leases cost the daemon nothing.

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "batchd/v1/service.grpc.pb.h"
#include "client/src/carrier.h"

namespace batchd::internal {
namespace {

constexpr int kMessageBytesMax = 16 * 1024 * 1024;  // a chunk has 1 MiB at most, an answer a few
constexpr int64_t kBatchBytesMax = int64_t{1} << 40;
constexpr auto kCloseLimit = std::chrono::seconds(1);
// Servers take one ping in five minutes amiss if it comes earlier; a peer that is gone without a
// word is found out this way.
constexpr int kKeepaliveMilliseconds = 310'000;

wire::Record RecordFrom(const v1::Ready& ready) {
  wire::Record record{};
  record.kind = static_cast<uint8_t>(wire::RecordKind::kReady);
  record.flags = ready.last_in_epoch() ? wire::kLastInEpoch : 0;
  record.segment = static_cast<uint16_t>(ready.segment());
  record.slot = static_cast<uint32_t>(ready.slot());
  record.sequence = static_cast<uint64_t>(ready.sequence());
  record.generation = static_cast<uint32_t>(ready.generation());
  record.rows = static_cast<uint32_t>(ready.rows());
  record.valid_rows = static_cast<uint32_t>(ready.valid_rows());
  record.rank = static_cast<uint32_t>(ready.address().rank());
  record.epoch = static_cast<uint64_t>(ready.address().epoch());
  record.step = static_cast<uint64_t>(ready.address().step());
  record.world_size = static_cast<uint32_t>(ready.address().world_size());
  return record;
}

// What has come: a batch, or another message.
struct Arrival {
  wire::Record record;
  Slab slab;  // without data: it is a message
  Json message;
};

// The stream, and the thread that reads it. How much that reads ahead is bounded by the session's
// prefetch.
class Stream {
 public:
  Stream(const std::string& target, bool is_secure) : target_(target) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
    // A restarted daemon should be found at once: the client backs off by itself.
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto credentials = is_secure ? grpc::SslCredentials(grpc::SslCredentialsOptions())
                                 : grpc::InsecureChannelCredentials();
    stub_ = v1::BatchService::NewStub(grpc::CreateCustomChannel(target, credentials, arguments));
    stream_ = stub_->Stream(&context_);
    reader_ = std::thread([this] { Read(); });
  }

  ~Stream() {
    v1::StreamRequest request;
    request.mutable_message()->mutable_close();
    Write(request);
    if (!final_status_.has_value()) stream_->WritesDone();
    {
      // The daemon answers a Close by ending the stream; one that does not is cut off.
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, kCloseLimit, [this] { return reads_done_; });
    }
    context_.TryCancel();
    reader_.join();
    if (!final_status_.has_value()) static_cast<void>(stream_->Finish());
  }

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // That the stream is broken shows in what is read.
  void Write(const v1::StreamRequest& request) {
    if (!final_status_.has_value()) stream_->Write(request);
  }

  // What has come next, or nothing within `timeout`. Errors: how the stream has ended.
  Result<std::optional<Arrival>> Receive(Duration timeout) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait_for(lock, timeout, [this] { return !arrivals_.empty() || reads_done_; });
      if (!arrivals_.empty()) {
        std::optional<Arrival> arrival = std::move(arrivals_.front());
        arrivals_.pop_front();
        return arrival;
      }
      if (!reads_done_) return std::optional<Arrival>();
      if (!read_error_.ok()) return read_error_;
    }
    // Only this thread writes, so nothing is written while the call is finished.
    if (!final_status_.has_value()) final_status_ = stream_->Finish();
    return EndOf(*final_status_);
  }

 private:
  void Read() {
    v1::StreamResponse response;
    Status status;
    while (status.ok() && stream_->Read(&response)) status = OnMessage(response.message());
    // What is not understood ends the stream; without that, Finish() would wait for the daemon.
    if (!status.ok()) context_.TryCancel();
    const std::lock_guard<std::mutex> lock(mutex_);
    read_error_ = std::move(status);
    reads_done_ = true;
    changed_.notify_all();
  }

  Status OnMessage(const v1::ServerMessage& message) {
    switch (message.message_case()) {
      case v1::ServerMessage::kReady:
        return OnReady(message.ready());
      case v1::ServerMessage::kChunk:
        return OnChunk(message.chunk());
      case v1::ServerMessage::MESSAGE_NOT_SET:
        return Status();  // of a later minor version
      default:
        break;
    }
    std::string text;
    google::protobuf::util::JsonPrintOptions options;
    options.always_print_primitive_fields = true;
    const bool is_written =
        google::protobuf::util::MessageToJsonString(message, &text, options).ok();
    Arrival arrival{};
    arrival.message = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!is_written || !arrival.message.is_object()) {
      return ProtocolError("a message of the daemon cannot be read");
    }
    Put(std::move(arrival));
    return Status();
  }

  Status OnReady(const v1::Ready& ready) {
    if (ready.size_bytes() < 1 || ready.size_bytes() > kBatchBytesMax) {
      return ProtocolError("a batch of ", ready.size_bytes(), " bytes");
    }
    Result<Slab> slab = MakeHeapSlab(static_cast<size_t>(ready.size_bytes()));
    if (!slab.ok()) return std::move(slab).status();
    filling_ = {RecordFrom(ready), *std::move(slab), Json()};
    filled_bytes_ = 0;
    return Status();
  }

  Status OnChunk(const v1::Chunk& chunk) {
    const std::string& data = chunk.data();
    if (filling_.slab.data == nullptr ||
        static_cast<uint64_t>(chunk.sequence()) != filling_.record.sequence ||
        static_cast<uint64_t>(chunk.offset_bytes()) != filled_bytes_ ||
        data.size() > filling_.slab.size_bytes - filled_bytes_) {
      return ProtocolError("a chunk of batch ", chunk.sequence(), " fits no batch");
    }
    std::memcpy(filling_.slab.data + filled_bytes_, data.data(), data.size());
    filled_bytes_ += data.size();
    if (filled_bytes_ == filling_.slab.size_bytes) Put(std::exchange(filling_, Arrival{}));
    return Status();
  }

  void Put(Arrival arrival) {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrivals_.push_back(std::move(arrival));
    changed_.notify_all();
  }

  Status EndOf(const grpc::Status& status) const {
    if (status.ok()) return ConnectionLost("the daemon at ", target_, " has ended the stream");
    const auto code = static_cast<StatusCode>(status.error_code());
    std::string text = Cat("the daemon at ", target_, ": ", status.error_message());
    if (code == StatusCode::kUnavailable || code == StatusCode::kCancelled) {
      return Unavailable(text);
    }
    if (code == StatusCode::kUnimplemented) {
      return MakeError(ErrorKind::kProtocol, code, text + "; is another service at this address?");
    }
    return MakeError(ErrorKind::kOpen, code, std::move(text));
  }

  const std::string target_;
  std::unique_ptr<v1::BatchService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamResponse>> stream_;
  std::optional<grpc::Status> final_status_;

  Arrival filling_{};  // the reader's: the batch whose chunks come
  size_t filled_bytes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Arrival> arrivals_;
  bool reads_done_ = false;
  Status read_error_;
  std::thread reader_;
};

class GrpcCarrier final : public Carrier {
 public:
  GrpcCarrier(const std::string& target, bool is_secure)
      : stream_(std::make_unique<Stream>(target, is_secure)) {}

  ~GrpcCarrier() override {
    // gRPC's threads do not exist in a forked child: nothing of it can be ended there.
    if (getpid() != pid_) static_cast<void>(stream_.release());
  }

  Status Send(const Json& message) override {
    Result<std::string> text = Write(message);
    if (!text.ok()) return std::move(text).status();
    v1::StreamRequest request;
    const google::protobuf::StringPiece piece(text->data(), text->size());
    const auto parsed =
        google::protobuf::util::JsonStringToMessage(piece, request.mutable_message());
    if (!parsed.ok()) {
      return ArgumentError("an option cannot be sent: ",
                           std::string(parsed.message().data(), parsed.message().size()));
    }
    stream_->Write(request);
    return Status();
  }

  Result<bool> ReceiveNow() override { return Receive(Duration(0)); }

  Result<bool> Receive(Duration timeout) override {
    Result<std::optional<Arrival>> arrival =
        stream_->Receive(std::clamp(timeout, Duration(0), kWaitMax));
    if (!arrival.ok()) return std::move(arrival).status();
    if (!arrival->has_value()) return false;
    Arrival& item = **arrival;
    if (item.slab.data == nullptr) {
      messages.push_back(std::move(item.message));
    } else {
      slabs_[item.record.sequence] = std::move(item.slab);
      ready.Push(item.record);
    }
    return true;
  }

  Result<Slab> Take(const wire::Record& record, Duration waited, bool was_ready) override {
    v1::StreamRequest request;
    v1::Take& take = *request.mutable_message()->mutable_take();
    take.set_segment(record.segment);
    take.set_slot(static_cast<int>(record.slot));
    take.set_sequence(static_cast<int64_t>(record.sequence));
    take.set_waited_nanoseconds(waited.count());
    take.set_was_ready(was_ready);
    stream_->Write(request);
    Slab slab = std::move(slabs_[record.sequence]);
    Drop(record);
    return slab;
  }

  void Drop(const wire::Record& record) override {
    slabs_.erase(record.sequence);
    v1::StreamRequest request;
    v1::Release& release = *request.mutable_message()->mutable_release();
    release.set_segment(record.segment);
    release.set_slot(static_cast<int>(record.slot));
    release.set_sequence(static_cast<int64_t>(record.sequence));
    stream_->Write(request);
  }

  int64_t leases_out() const override { return 0; }

 private:
  const pid_t pid_ = getpid();
  std::unordered_map<uint64_t, Slab> slabs_;  // of `ready`, by sequence
  std::unique_ptr<Stream> stream_;
};

}  // namespace

Result<std::unique_ptr<Carrier>> ConnectGrpc(const std::string& target, bool secure) {
  return std::unique_ptr<Carrier>(std::make_unique<GrpcCarrier>(target, secure));
}

}  // namespace batchd::internal
