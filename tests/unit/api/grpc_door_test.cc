// SPDX-License-Identifier: Apache-2.0
#include "server/api/grpc_door.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <numeric>

#include "batchd/v1/service.grpc.pb.h"
#include "server/api/unary_calls.h"
#include "server/transport/grpc_transport.h"
#include "tests/support/fake_session_manager.h"
#include "tests/support/loop_thread.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

v1::Open GoodOpen() {
  v1::Open open;
  open.mutable_dataset()->set_name("ImageFolder");
  v1::Column* column = open.mutable_pipeline()->add_columns();
  column->set_name("image");
  column->add_operations()->set_name("DecodeImage");
  open.mutable_sampling()->set_global_batch_size(8);
  open.set_world_size(1);
  open.set_prefetch(2);
  return open;
}

// A sealed slab of two columns.
class TestSlab {
 public:
  explicit TestSlab(int64_t pixels = 5)
      : layout_(SlabLayout::Make({{"image", wire::DType::kUint8, {pixels}, pixels},
                                  {"label", wire::DType::kInt64, {}, 8}},
                                 4)
                    .value()),
        bytes_(static_cast<size_t>(layout_.slab_size_bytes()), 0) {
    for (int row = 0; row < 3; ++row) {
      layout_.sample_ids(bytes_.data())[row] = 100 + row;
      std::memset(layout_.row(bytes_.data(), 0, row), 'a' + row, static_cast<size_t>(pixels));
      const int64_t label = row;
      std::memcpy(layout_.row(bytes_.data(), 1, row), &label, 8);
    }
    layout_.row_status(bytes_.data())[2] = 1;
    layout_.WriteHeader(bytes_.data(), 3, 2, 0, 6, 0, 1);
  }

  ReadyBatch Batch(uint64_t sequence) const {
    ReadyBatch batch;
    batch.ref = {0, 0, sequence};
    batch.address = {0, 6, 0, 1};
    batch.rows = 3;
    batch.valid_rows = 2;
    batch.slab = bytes_.data();
    batch.size_bytes = layout_.used_size_bytes();
    return batch;
  }
  OpenedInfo Info() const {
    OpenedInfo info;
    info.columns = layout_.columns();
    info.slab_size_bytes = layout_.slab_size_bytes();
    return info;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  SlabLayout layout_;
  std::vector<uint8_t> bytes_;
};

class GrpcDoorTest : public testing::Test {
 protected:
  ~GrpcDoorTest() override {
    if (door_ != nullptr) door_->Shutdown(Duration::zero());
  }

  void Start(const std::string& address = "127.0.0.1:0") {
    GrpcDoorOptions options;
    options.addresses = {address};
    options.cpu_threads = 3;
    auto door = GrpcDoor::Start(options, loop_.loop(), &manager_);
    ASSERT_OK(door);
    door_ = std::move(*door);
    channel_ = grpc::CreateChannel(door_->addresses()[0], grpc::InsecureChannelCredentials());
    stub_ = v1::BatchService::NewStub(channel_);
  }
  // A context whose call cannot hang a test.
  static std::unique_ptr<grpc::ClientContext> Context() {
    auto context = std::make_unique<grpc::ClientContext>();
    context->set_deadline(
        gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_seconds(20, GPR_TIMESPAN)));
    return context;
  }
  // One call without stubs; the answer's bytes.
  std::string CallBytes(const std::string& method, const std::string& request) {
    grpc::GenericStub stub(channel_);
    auto context = Context();
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(context.get(), method, &queue);
    const auto step = [&](auto&& begin) {
      begin();
      void* tag;
      bool ok = false;
      return queue.Next(&tag, &ok) && ok;
    };
    const grpc::Slice slice(request);
    grpc::ByteBuffer answer;
    EXPECT_TRUE(step([&] { call->StartCall(nullptr); }));
    EXPECT_TRUE(step([&] { call->Write(grpc::ByteBuffer(&slice, 1), nullptr); }));
    EXPECT_TRUE(step([&] { call->Read(&answer, nullptr); }));
    EXPECT_TRUE(step([&] { call->WritesDone(nullptr); }));
    grpc::Status status;
    EXPECT_TRUE(step([&] { call->Finish(&status, nullptr); }));
    EXPECT_TRUE(status.ok()) << status.error_message();
    grpc::Slice bytes;
    EXPECT_TRUE(answer.DumpToSingleSlice(&bytes).ok());
    return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }

  LoopThread loop_;
  FakeSessionManager manager_;
  std::unique_ptr<GrpcDoor> door_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::BatchService::Stub> stub_;
};

// A client of Stream.
class StreamClient {
 public:
  StreamClient(v1::BatchService::Stub* stub, std::unique_ptr<grpc::ClientContext> context)
      : context_(std::move(context)), stream_(stub->Stream(context_.get())) {}

  bool Write(const v1::ClientMessage& message) {
    v1::StreamRequest request;
    *request.mutable_message() = message;
    return stream_->Write(request);
  }
  bool WriteOpen() {
    v1::ClientMessage message;
    *message.mutable_open() = GoodOpen();
    return Write(message);
  }
  bool WriteRelease(uint64_t sequence) {
    v1::ClientMessage message;
    message.mutable_release()->set_sequence(static_cast<int64_t>(sequence));
    return Write(message);
  }
  // MESSAGE_NOT_SET at the end of the stream.
  v1::ServerMessage Read() {
    v1::StreamResponse response;
    if (!stream_->Read(&response)) return {};
    return response.message();
  }
  grpc::Status Finish() { return stream_->Finish(); }
  void Cancel() { context_->TryCancel(); }
  void WritesDone() { stream_->WritesDone(); }

 private:
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StreamRequest, v1::StreamResponse>> stream_;
};

// ---- Stream

TEST_F(GrpcDoorTest, AStreamCarriesASessionAndTheBytesOfItsBatches) {
  const TestSlab slab(1'000'000);
  manager_.on_open = [&](SessionId, SessionOutput* output) {
    output->OnOpened(slab.Info());
    output->OnReady(slab.Batch(1));
  };
  Start();
  StreamClient client(stub_.get(), Context());

  ASSERT_TRUE(client.WriteOpen());
  EXPECT_EQ(client.Read().opened().columns(0).name(), "image");
  const v1::Ready ready = client.Read().ready();
  EXPECT_EQ(ready.sequence(), 1);
  std::string image;
  while (static_cast<int64_t>(image.size()) < ready.size_bytes()) {
    const v1::Chunk chunk = client.Read().chunk();
    ASSERT_EQ(chunk.offset_bytes(), static_cast<int64_t>(image.size()));
    ASSERT_LE(chunk.data().size(), size_t{1} << 20);
    ASSERT_FALSE(chunk.data().empty());
    image += chunk.data();
  }
  EXPECT_EQ(std::memcmp(image.data(), slab.bytes().data(), image.size()), 0);
  ASSERT_TRUE(client.WriteRelease(1));
  EXPECT_TRUE(manager_.WaitFor("release 1 0/0#1"));
  v1::ClientMessage close;
  close.mutable_close();
  ASSERT_TRUE(client.Write(close));

  EXPECT_EQ(client.Read().message_case(), v1::ServerMessage::MESSAGE_NOT_SET);
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(GrpcDoorTest, ARefusedOpenIsAnErrorMessageAndTheStatus) {
  Start();
  StreamClient client(stub_.get(), Context());
  v1::ClientMessage message;
  message.mutable_open();
  client.Write(message);

  const v1::Error error = client.Read().error();
  const grpc::Status status = client.Finish();

  EXPECT_EQ(error.field(), "dataset.name");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), error.message());
}

TEST_F(GrpcDoorTest, ASessionThatFailsEndsTheStreamAfterWhatWasSaid) {
  manager_.on_open = [](SessionId, SessionOutput* output) {
    output->OnOpened({});
    output->OnError(Err(absl::StatusCode::kResourceExhausted, "no memory"));
  };
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();

  EXPECT_TRUE(client.Read().has_opened());
  EXPECT_EQ(client.Read().error().message(), "no memory");
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(GrpcDoorTest, AReleasedBatchIsNotReadAnyMore) {
  // More than HTTP/2's windows hold, so that the client's reading decides what is read of the slab.
  TestSlab slab(60'000'000);
  SessionOutput* output = nullptr;
  manager_.on_open = [&](SessionId, SessionOutput* o) {
    output = o;
    o->OnReady(slab.Batch(1));
  };
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();
  EXPECT_EQ(client.Read().ready().sequence(), 1);

  client.WriteRelease(1);
  ASSERT_TRUE(manager_.WaitFor("release 1 0/0#1"));
  loop_.Run([&] {
    // As the session does: the slot is filled anew.
    std::fill(slab.bytes().begin(), slab.bytes().end(), uint8_t{0xEE});
    output->OnDraining(5);
  });

  int64_t received = 0;
  for (;;) {
    const v1::ServerMessage message = client.Read();
    if (!message.has_chunk()) {
      EXPECT_TRUE(message.has_draining());
      break;
    }
    received += static_cast<int64_t>(message.chunk().data().size());
    ASSERT_EQ(message.chunk().data().find('\xEE'), std::string::npos);
  }
  EXPECT_LT(received, slab.Batch(1).size_bytes);
}

TEST_F(GrpcDoorTest, AClientThatVanishesAmidABatchClosesTheSession) {
  auto slab = std::make_unique<TestSlab>(60'000'000);
  manager_.on_open = [&](SessionId, SessionOutput* output) { output->OnReady(slab->Batch(1)); };
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();
  EXPECT_TRUE(client.Read().has_ready());

  client.Cancel();

  EXPECT_TRUE(manager_.WaitFor("close 1"));
  loop_.Run([&] { slab.reset(); });  // a later read of it would be seen by AddressSanitizer
  client.Finish();
}

TEST_F(GrpcDoorTest, AClientThatEndsItsHalfHasClosed) {
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();
  ASSERT_TRUE(manager_.WaitFor("open 1"));

  client.WritesDone();

  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(GrpcDoorTest, QuestionsInAStreamAreAnswered) {
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();
  v1::ClientMessage query;
  query.mutable_query()->set_query_id(5);
  query.mutable_query()->mutable_sample_names()->add_ordinals(1);
  client.Write(query);

  const v1::Answer answer = client.Read().answer();

  EXPECT_EQ(answer.query_id(), 5);
  EXPECT_EQ(answer.names(0), "b.jpg");
}

TEST_F(GrpcDoorTest, ShutdownEndsOpenStreamsAndLeavesTheManagerAlone) {
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();
  ASSERT_TRUE(manager_.WaitFor("open 1"));

  door_->Shutdown(std::chrono::milliseconds(50));

  EXPECT_EQ(manager_.events().back(), "close 1");
  EXPECT_FALSE(client.Finish().ok());
}

// ---- Unary calls

TEST_F(GrpcDoorTest, GetBatchGivesTheColumnsAndEndsItsSession) {
  const TestSlab slab;
  manager_.on_open = [&](SessionId, SessionOutput* output) {
    output->OnOpened(slab.Info());
    output->OnReady(slab.Batch(1));
  };
  Start();
  v1::GetBatchRequest request;
  *request.mutable_open() = GoodOpen();
  request.mutable_address()->set_step(6);
  request.mutable_address()->set_world_size(1);
  v1::GetBatchResponse response;

  const grpc::Status status = stub_->GetBatch(Context().get(), request, &response);

  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(manager_.last_request().single);
  EXPECT_EQ(response.ready().address().step(), 6);
  EXPECT_EQ(std::vector<int64_t>(response.sample_ids().begin(), response.sample_ids().end()),
            (std::vector<int64_t>{100, 101, 102}));
  EXPECT_EQ(response.row_status(), std::string("\0\0\1", 3));
  ASSERT_EQ(response.columns_size(), 2);
  EXPECT_EQ(response.columns(0).layout().name(), "image");
  EXPECT_EQ(response.columns(0).values(), "aaaaabbbbbccccc");
  EXPECT_EQ(response.columns(1).values().size(), 24u);
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(GrpcDoorTest, GetBatchRefusesAHugeBatchWithNumbers) {
  manager_.on_open = [&](SessionId, SessionOutput* output) {
    OpenedInfo info;
    info.slab_size_bytes = kGetBatchBytesMax + 1;
    output->OnOpened(info);
  };
  Start();
  v1::GetBatchRequest request;
  *request.mutable_open() = GoodOpen();
  request.mutable_address();
  v1::GetBatchResponse response;

  const grpc::Status status = stub_->GetBatch(Context().get(), request, &response);

  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("67108865"), std::string::npos);
  EXPECT_NE(status.error_message().find("67108864"), std::string::npos);
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(GrpcDoorTest, GetBatchSaysWhatIsWrongWithASample) {
  manager_.on_open = [&](SessionId, SessionOutput* output) {
    BatchFailure failure;
    failure.status = SampleErr(SampleReason::kTruncated, "a.jpg ends early");
    output->OnFailure(failure);
  };
  Start();
  v1::GetBatchRequest request;
  *request.mutable_open() = GoodOpen();
  request.mutable_address();
  v1::GetBatchResponse response;

  const grpc::Status status = stub_->GetBatch(Context().get(), request, &response);

  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(status.error_message(), "truncated: a.jpg ends early");
}

TEST_F(GrpcDoorTest, AGetBatchThatIsGivenUpEndsItsSession) {
  Start();
  v1::GetBatchRequest request;
  *request.mutable_open() = GoodOpen();
  request.mutable_address();
  v1::GetBatchResponse response;
  auto context = Context();
  std::thread canceller([&] {
    EXPECT_TRUE(manager_.WaitFor("open 1"));
    context->TryCancel();
  });

  EXPECT_EQ(stub_->GetBatch(context.get(), request, &response).error_code(),
            grpc::StatusCode::CANCELLED);

  canceller.join();
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(GrpcDoorTest, DescribeAnswersWithoutASession) {
  manager_.describe_answer->num_samples = 77;
  Start();
  v1::DescribeRequest request;
  v1::DescribeResponse response;
  EXPECT_EQ(stub_->Describe(Context().get(), request, &response).error_message().substr(0, 12),
            "dataset.name");
  *request.mutable_open() = GoodOpen();

  ASSERT_TRUE(stub_->Describe(Context().get(), request, &response).ok());
  EXPECT_EQ(response.opened().num_samples(), 77);

  loop_.Run([&] { manager_.describe_answer = FieldErr("rank", "too high"); });
  EXPECT_EQ(stub_->Describe(Context().get(), request, &response).error_message(), "rank: too high");
}

TEST_F(GrpcDoorTest, GetStatusSaysWhatTheDaemonDoes) {
  Start();
  StreamClient client(stub_.get(), Context());
  client.WriteOpen();
  ASSERT_TRUE(manager_.WaitFor("open 1"));
  v1::GetStatusResponse response;

  ASSERT_TRUE(stub_->GetStatus(Context().get(), {}, &response).ok());

  EXPECT_EQ(response.server_version(), BATCHD_VERSION);
  EXPECT_EQ(response.pid(), getpid());
  EXPECT_EQ(response.cpu_threads(), 3);
  EXPECT_EQ(response.slab_budget_bytes(), int64_t{1} << 30);
  ASSERT_EQ(response.sessions_size(), 1);
  EXPECT_EQ(response.sessions(0).session_id(), 1);
}

// ---- What a stranger finds

TEST_F(GrpcDoorTest, HealthFollowsSetServing) {
  Start();
  const std::string check = "/grpc.health.v1.Health/Check";
  const std::string service =
      "\x0a\x16"
      "batchd.v1.BatchService";  // HealthCheckRequest.service

  EXPECT_EQ(CallBytes(check, ""), "\x08\x02");  // NOT_SERVING
  door_->SetServing(true);
  EXPECT_EQ(CallBytes(check, ""), "\x08\x01");  // SERVING
  EXPECT_EQ(CallBytes(check, service), "\x08\x01");
  door_->SetServing(false);
  EXPECT_EQ(CallBytes(check, service), "\x08\x02");
}

TEST_F(GrpcDoorTest, ReflectionListsTheService) {
  Start();

  // ServerReflectionRequest.list_services = "*"
  const std::string answer =
      CallBytes("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3a\x01*");

  EXPECT_NE(answer.find("batchd.v1.BatchService"), std::string::npos);
  EXPECT_NE(answer.find("grpc.health.v1.Health"), std::string::npos);
}

// ---- Listening

TEST_F(GrpcDoorTest, AnAddressThatIsTakenIsNamed) {
  Start();
  const std::string taken = door_->addresses()[0];
  EXPECT_EQ(taken.find(":0"), std::string::npos);
  GrpcDoorOptions options;
  options.addresses = {"127.0.0.1:0", taken};

  EXPECT_THAT(GrpcDoor::Start(options, loop_.loop(), &manager_),
              FailsWith(absl::StatusCode::kUnavailable, taken));
}

TEST_F(GrpcDoorTest, AUnixSocketOfADeadDaemonIsReplaced) {
  char name[] = "/tmp/batchd-grpc-XXXXXX";
  const std::string folder = mkdtemp(name);
  const std::string path = folder + "/sock.grpc";
  const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(dead);

  Start("unix:" + path);

  v1::GetStatusResponse response;
  EXPECT_TRUE(stub_->GetStatus(Context().get(), {}, &response).ok());
  door_.reset();
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "the socket has been left behind";
}

TEST(GrpcDoorWithoutLoopTest, EndsThoughTheLoopNeverRan) {
  auto loop = EventLoop::Create();
  ASSERT_OK(loop);
  FakeSessionManager manager;
  GrpcDoorOptions options;
  options.addresses = {"127.0.0.1:0"};
  auto door = GrpcDoor::Start(options, loop->get(), &manager);
  ASSERT_OK(door);
  auto stub = v1::BatchService::NewStub(
      grpc::CreateChannel((*door)->addresses()[0], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Stream(&context);
  v1::StreamRequest request;
  *request.mutable_message()->mutable_open() = GoodOpen();
  ASSERT_TRUE(stream->Write(request));

  door->reset();

  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_TRUE(manager.events().empty());
}

}  // namespace
}  // namespace batchd
