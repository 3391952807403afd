// SPDX-License-Identifier: Apache-2.0
#include "server/api/grpc_door.h"

#include <grpc/support/time.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <unistd.h>

#include <utility>

#include "batchd/v1/service.grpc.pb.h"
#include "server/api/grpc_listener.h"
#include "server/api/manager_gate.h"
#include "server/api/stream_reactor.h"
#include "server/api/unary_calls.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr char kServiceName[] = "batchd.v1.BatchService";
// An Open is far smaller; nothing else that clients send is large.
constexpr int kReceiveBytesMax = 4 << 20;

class BatchServiceImpl final : public v1::BatchService::CallbackService {
 public:
  BatchServiceImpl(std::shared_ptr<ManagerGate> gate, int cpu_threads)
      : gate_(std::move(gate)), cpu_threads_(cpu_threads), start_(Clock::Real()->Now()) {}

  grpc::ServerBidiReactor<v1::StreamRequest, v1::StreamResponse>* Stream(
      grpc::CallbackServerContext*) override {
    return StreamReactor::Start(gate_);
  }
  grpc::ServerUnaryReactor* GetBatch(grpc::CallbackServerContext*,
                                     const v1::GetBatchRequest* request,
                                     v1::GetBatchResponse* response) override {
    return StartGetBatch(gate_, *request, response);
  }
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext*,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeResponse* response) override {
    return StartDescribe(gate_, *request, response);
  }
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext*, const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* response) override {
    v1::GetStatusResponse known;
    known.set_server_version(BATCHD_VERSION);
    known.set_pid(getpid());
    known.set_uptime_seconds(ToSeconds(Clock::Real()->Now() - start_));
    known.set_cpu_threads(cpu_threads_);
    return StartGetStatus(gate_, std::move(known), response);
  }

 private:
  const std::shared_ptr<ManagerGate> gate_;
  const int cpu_threads_;
  const TimePoint start_;
};

void SetLimits(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(kReceiveBytesMax);
  // A machine that has vanished is noticed after 40 s at most; leases end with the stream.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
}

class GrpcServerDoor final : public GrpcDoor {
 public:
  GrpcServerDoor(const GrpcDoorOptions& options, EventLoop* loop, SessionManager* manager)
      : options_(options),
        gate_(std::make_shared<ManagerGate>(loop, manager)),
        service_(gate_, options.cpu_threads) {}
  ~GrpcServerDoor() override { Shutdown(Duration::zero()); }

  absl::Status Listen() {
    BATCHD_ASSIGN_OR_RETURN(listener_, GrpcListener::Listen(options_.addresses));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    SetLimits(&builder);
    builder.RegisterService(&service_);
    std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor =
        builder.experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
            grpc::InsecureServerCredentials());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return Err(absl::StatusCode::kUnavailable, "cannot start gRPC");
    listener_->Start([acceptor = std::move(acceptor)](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      acceptor->HandleNewConnection(&connection);
    });
    SetServing(false);
    return absl::OkStatus();
  }

  const std::vector<std::string>& addresses() const override { return listener_->addresses(); }

  void SetServing(bool serving) override {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(kServiceName, serving);
  }

  void Shutdown(Duration grace) override {
    if (server_ == nullptr || is_shut_) return;
    is_shut_ = true;
    SetServing(false);
    listener_->Stop();
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_REALTIME),
                                   gpr_time_from_nanos(grace.count(), GPR_TIMESPAN)));
    gate_->Shut();
    server_->Wait();
  }

 private:
  const GrpcDoorOptions options_;
  std::unique_ptr<GrpcListener> listener_;
  const std::shared_ptr<ManagerGate> gate_;
  BatchServiceImpl service_;
  std::unique_ptr<grpc::Server> server_;
  bool is_shut_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcDoor>> GrpcDoor::Start(const GrpcDoorOptions& options,
                                                          EventLoop* loop,
                                                          SessionManager* manager) {
  auto door = std::make_unique<GrpcServerDoor>(options, loop, manager);
  BATCHD_RETURN_IF_ERROR(door->Listen());
  return std::unique_ptr<GrpcDoor>(std::move(door));
}

}  // namespace batchd
