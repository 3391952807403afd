// SPDX-License-Identifier: Apache-2.0
//
// Listens for the gRPC door and hands connections to gRPC. Its own listener will not do: after one
// accept that has failed for want of descriptors, gRPC 1.51 never accepts again.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/io/unique_fd.h"

namespace batchd {

// Thread-compatible. Destroying it stops it.
class GrpcListener {
 public:
  // `addresses`: "unix:/path" or "host:port"; port 0 takes any free one. A Unix socket that is
  // there already is replaced: the socket door's lock beside it tells that no other daemon serves
  // it. Errors: UNAVAILABLE if an address cannot be had, naming it.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Listen(
      const std::vector<std::string>& addresses);
  ~GrpcListener() { Stop(); }

  // Where it listens, ports filled in.
  const std::vector<std::string>& addresses() const { return addresses_; }

  // Calls `on_connection` on a thread of its own with each connection, a non-blocking descriptor
  // that it takes. Once.
  void Start(std::function<void(int fd)> on_connection);
  // Ends the thread, closes what listens and removes the Unix sockets.
  void Stop();

 private:
  GrpcListener() = default;
  absl::Status ListenAtPath(std::string_view path);
  absl::Status ListenAtPort(const std::string& address);
  void Run();
  // False if there was no descriptor or no memory for one more.
  bool AcceptAll(int listener);

  std::vector<std::string> addresses_;
  std::vector<std::string> paths_;
  std::vector<UniqueFd> listeners_;
  UniqueFd stop_;
  std::function<void(int)> on_connection_;
  std::thread thread_;
};

}  // namespace batchd
