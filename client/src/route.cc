// SPDX-License-Identifier: Apache-2.0
#include "client/src/route.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "client/src/private_daemon.h"

namespace batchd::internal {
namespace {

constexpr std::string_view kGrpcSuffix = ".grpc";

Route LocalRoute(std::string path, Transport transport, bool is_private) {
  const std::string daemon = Cat(is_private ? "private daemon at " : "", "unix:", path);
  Route route;
  if (is_private) route.private_socket = path;
  const bool is_grpc_socket = path.ends_with(kGrpcSuffix);
  if (transport == Transport::kGrpc || (transport == Transport::kBest && is_grpc_socket)) {
    if (!is_grpc_socket) path += kGrpcSuffix;
    route.transport = Transport::kGrpc;
    route.target = "unix:" + path;
    route.why = transport == Transport::kGrpc ? "as asked" : "the address is a gRPC socket";
  } else {
    route.target = path;
    route.why = transport == Transport::kShm ? "as asked" : "the daemon is on this machine";
  }
  route.why += "; " + daemon;
  return route;
}

bool IsPort(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Result<std::unique_ptr<Carrier>> Route::Connect() const {
  if (!private_socket.empty()) {
    BATCHD_CLIENT_RETURN_IF_ERROR(EnsurePrivateDaemon(private_socket));
  }
  if (transport == Transport::kShm) return ConnectShm(target);
#ifdef BATCHD_CLIENT_GRPC
  return ConnectGrpc(target, is_secure);
#else
  return MakeError(ErrorKind::kOther, StatusCode::kUnimplemented,
                   Cat("this build of the client has no gRPC to reach ", target,
                       " by; build it with -DBATCHD_GRPC=ON"));
#endif
}

Result<Route> ChooseRoute(std::string address, Transport transport) {
  if (address.empty()) address = Environment("BATCHD_ADDRESS");
  if (address.empty()) return LocalRoute(PrivateSocketPath(), transport, /*is_private=*/true);
  std::string_view rest = address;
  if (rest.starts_with("unix:")) {
    rest.remove_prefix(5);
    if (rest.starts_with("//")) rest.remove_prefix(2);
    std::error_code error;
    const std::filesystem::path path =
        std::filesystem::absolute(std::filesystem::path(rest), error);
    return LocalRoute(error ? std::string(rest) : path.lexically_normal().string(), transport,
                      /*is_private=*/false);
  }
  Route route;
  route.transport = Transport::kGrpc;
  if (rest.starts_with("grpcs://")) {
    route.is_secure = true;
    rest.remove_prefix(8);
  }
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || !IsPort(rest.substr(colon + 1))) {
    return ArgumentError("address=", address,
                         " is none of unix:PATH, HOST:PORT and grpcs://HOST:PORT");
  }
  if (transport == Transport::kShm) {
    return ArgumentError("transport=kShm needs a daemon on this machine at unix:PATH; ", address,
                         " is reached by kGrpc");
  }
  route.target = rest;
  route.why =
      Cat(transport == Transport::kGrpc ? "as asked" : "the daemon is reached over the network",
          "; ", address);
  return route;
}

}  // namespace batchd::internal
