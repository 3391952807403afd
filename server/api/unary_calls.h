// SPDX-License-Identifier: Apache-2.0
//
// GetBatch, Describe and GetStatus of the gRPC door.

#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "batchd/v1/service.pb.h"
#include "server/api/manager_gate.h"

namespace batchd {

// The largest batch that GetBatch gives.
inline constexpr int64_t kGetBatchBytesMax = int64_t{64} << 20;

// The same code; the message cut to what fits the trailing metadata of any client.
grpc::Status ToGrpcStatus(const absl::Status& status);

// Each begins the call and returns its reactor, which owns itself. On gRPC's threads; `request` is
// not kept.
grpc::ServerUnaryReactor* StartGetBatch(std::shared_ptr<ManagerGate> gate,
                                        const v1::GetBatchRequest& request,
                                        v1::GetBatchResponse* response);
grpc::ServerUnaryReactor* StartDescribe(std::shared_ptr<ManagerGate> gate,
                                        const v1::DescribeRequest& request,
                                        v1::DescribeResponse* response);
// `known` has what the door knows: version, pid, uptime, threads.
grpc::ServerUnaryReactor* StartGetStatus(std::shared_ptr<ManagerGate> gate,
                                         v1::GetStatusResponse known,
                                         v1::GetStatusResponse* response);

}  // namespace batchd
