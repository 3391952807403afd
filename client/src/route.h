// SPDX-License-Identifier: Apache-2.0
//
// Where the daemon is, and which carrier goes there.

#pragma once

#include <memory>
#include <string>

#include "batchd/options.h"
#include "client/src/carrier.h"

namespace batchd::internal {

struct Route {
  Transport transport = Transport::kShm;  // kShm or kGrpc
  std::string target;                     // a socket's path, or what gRPC calls a target
  bool is_secure = false;
  std::string private_socket;  // of a private daemon its data socket, else ""
  std::string why;             // for people

  // Starts the private daemon if it is one. Errors: kUnavailable, kProtocol, kArgument, kOther.
  Result<std::unique_ptr<Carrier>> Connect() const;
};

// The route to `address`, else to BATCHD_ADDRESS, else to a private daemon. Errors: kArgument if
// the address is none, or if `transport` cannot go there.
Result<Route> ChooseRoute(std::string address, Transport transport);

}  // namespace batchd::internal
