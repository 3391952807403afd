// SPDX-License-Identifier: Apache-2.0
//
// The HTTP door for people and probes: GET of a few fixed paths, on civetweb. No files are served,
// no forms are read, and every other path is 404, so the parts of civetweb 1.15 with known faults
// are not reached. Half-open connections cannot stop it: each request has a time limit of its own.

#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace batchd {

// The most descriptors that it has for connections.
inline constexpr int kHttpConnectionsMax = 17;

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  // Serves `routes` (path → handler, called on a server thread; thread-safe) at `host:port`; port 0
  // takes any free one. Errors: UNAVAILABLE if the address is in use, naming it and the way out;
  // INVALID_ARGUMENT if it is none.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const std::string& address, std::map<std::string, std::function<HttpReply()>> routes);
  // Takes up to two seconds, and needs that no other thread opens or closes descriptors meanwhile:
  // the library closes its listening one twice.
  virtual ~HttpServer() = default;

  // "127.0.0.1:9475", with the port that was taken.
  virtual const std::string& address() const = 0;
};

}  // namespace batchd
