// SPDX-License-Identifier: Apache-2.0
//
// The gRPC door: proto/batchd/v1/service.proto with health (grpc.health.v1) and reflection. Its
// reactors, on gRPC's threads, are thin: they post to the event loop, where the SessionManager is.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/io/event_loop.h"
#include "server/session/manager.h"

namespace batchd {

struct GrpcDoorOptions {
  // "unix:/path.grpc" or "host:port"; port 0 takes any free one.
  std::vector<std::string> addresses;
  int cpu_threads = 0;  // for GetStatus
};

// Made and destroyed on the main thread while the loop runs or before it does.
class GrpcDoor {
 public:
  // Errors: UNAVAILABLE if an address cannot be had, naming it.
  static absl::StatusOr<std::unique_ptr<GrpcDoor>> Start(const GrpcDoorOptions& options,
                                                         EventLoop* loop, SessionManager* manager);
  virtual ~GrpcDoor() = default;

  // Where it listens, ports filled in.
  virtual const std::vector<std::string>& addresses() const = 0;

  // Health: SERVING or NOT_SERVING (until the first call), for "" and "batchd.v1.BatchService".
  // Thread-safe; not after Shutdown.
  virtual void SetServing(bool serving) = 0;

  // Ends all streams after `grace` at most and joins gRPC's threads. Not on the loop thread, which
  // must be running.
  virtual void Shutdown(Duration grace) = 0;
};

}  // namespace batchd
