// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <civetweb.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "server/base/status.h"

namespace batchd {
namespace {

using Routes = std::map<std::string, std::function<HttpReply()>>;

// A connection that sends nothing holds one thread for one time limit: so even many of them delay a
// scrape by no more than a few of these.
constexpr char kThreadCount[] = "8";
// Accepted and waiting for a thread; more wait in the kernel, where they take no descriptor.
constexpr char kQueueSize[] = "8";
constexpr char kRequestTimeoutMilliseconds[] = "1000";
constexpr int kPortMax = 65535;

struct HostPort {
  std::string host;  // IPv6 in brackets
  int port = 0;
};

std::optional<HostPort> ParseAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) return std::nullopt;
  HostPort parsed{address.substr(0, colon), 0};
  const char* const end = address.data() + address.size();
  const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, parsed.port);
  if (error != std::errc() || rest != end || parsed.port < 0 || parsed.port > kPortMax) {
    return std::nullopt;
  }
  const bool bracketed = parsed.host.front() == '[' && parsed.host.back() == ']';
  if (!bracketed && parsed.host.find(':') != std::string::npos) return std::nullopt;
  // A comma would be another address to the library.
  if (parsed.host.find_first_of(", +") != std::string::npos) return std::nullopt;
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  return parsed;
}

std::string_view ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Error";
  }
}

void Send(mg_connection* connection, const HttpReply& reply, bool with_body) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\n{}Connection: close\r\n\r\n",
      reply.status, ReasonPhrase(reply.status), reply.content_type, reply.body.size(),
      reply.status == 405 ? "Allow: GET, HEAD\r\n" : "");
  if (with_body) text += reply.body;
  mg_write(connection, text.data(), text.size());
}

// Every request ends here: what returns a status goes no further into the library.
int OnRequest(mg_connection* connection) {
  const mg_request_info* const info = mg_get_request_info(connection);
  const auto* const routes = static_cast<const Routes*>(info->user_data);
  const std::string_view method = info->request_method ? info->request_method : "";
  HttpReply reply;
  const auto route = routes->find(info->local_uri ? info->local_uri : "");
  if (method != "GET" && method != "HEAD") {
    reply = {405, "text/plain; charset=utf-8", "only GET and HEAD are served\n"};
  } else if (route == routes->end()) {
    reply = {404, "text/plain; charset=utf-8", "no such page\n"};
  } else {
    reply = route->second();
  }
  Send(connection, reply, method != "HEAD");
  return reply.status;
}

// What the library says goes into our errors, not to standard error.
int OnLogMessage(const mg_connection*, const char*) { return 1; }

class CivetwebServer : public HttpServer {
 public:
  explicit CivetwebServer(Routes routes) : routes_(std::move(routes)) {}
  ~CivetwebServer() override {
    if (context_ != nullptr) mg_stop(context_);
  }

  absl::Status Listen(const std::string& address) {
    const std::optional<HostPort> wanted = ParseAddress(address);
    if (!wanted.has_value()) {
      return Err(
          absl::StatusCode::kInvalidArgument,
          "http address \"{}\" is not HOST:PORT with a port of 0 to {}, as in 127.0.0.1:9475",
          address, kPortMax);
    }
    const std::string listening = fmt::format("{}:{}", wanted->host, wanted->port);
    const char* options[] = {"listening_ports",
                             listening.c_str(),
                             "num_threads",
                             kThreadCount,
                             "connection_queue",
                             kQueueSize,
                             "request_timeout_ms",
                             kRequestTimeoutMilliseconds,
                             "enable_keep_alive",
                             "no",
                             nullptr};
    mg_callbacks callbacks{};
    callbacks.begin_request = OnRequest;
    callbacks.log_message = OnLogMessage;
    mg_init_data init{&callbacks, &routes_, options};
    char text[256] = "";
    mg_error_data error{};
    error.text = text;
    error.text_buffer_size = sizeof(text);
    context_ = mg_start2(&init, &error);
    if (context_ == nullptr) {
      return Err(absl::StatusCode::kUnavailable,
                 "http address {} cannot be had (in use, or not of this machine){}{}; give another "
                 "HOST:PORT, port 0 for any free one",
                 address, text[0] ? ": " : "", text);
    }
    mg_server_port port{};
    if (mg_get_server_ports(context_, 1, &port) != 1) {
      return Err(absl::StatusCode::kInternal, "http address {}: no port", address);
    }
    address_ = fmt::format("{}:{}", wanted->host, port.port);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

 private:
  Routes routes_;  // read only; the library's user data is no const pointer
  std::string address_;
  mg_context* context_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Routes routes) {
  // Once in a process, and never undone: it holds nothing that a process's end does not free.
  static const unsigned initialised = mg_init_library(MG_FEATURES_DEFAULT);
  (void)initialised;
  auto server = std::make_unique<CivetwebServer>(std::move(routes));
  BATCHD_RETURN_IF_ERROR(server->Listen(address));
  return server;
}

}  // namespace batchd
