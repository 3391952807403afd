// SPDX-License-Identifier: Apache-2.0
#include "server/metrics/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

int PortOf(const HttpServer& server) {
  return std::stoi(server.address().substr(server.address().rfind(':') + 1));
}

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval timeout{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// Everything that the server answers to `request`.
std::string Exchange(int port, const std::string& request) {
  const int fd = Connect(port);
  EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) answer.append(buffer, count);
  close(fd);
  return answer;
}

// One server for all tests: civetweb takes two seconds to stop.
class HttpServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto started = HttpServer::Start(
        "127.0.0.1:0", {{"/metrics",
                         [] {
                           return HttpReply{200, "text/plain; version=0.0.4", "m 1\n"};
                         }},
                        {"/readyz", [] {
                           return HttpReply{503, "text/plain", "draining\n"};
                         }}});
    ASSERT_OK(started);
    server_ = std::move(started).value();
  }
  static void TearDownTestSuite() { server_.reset(); }
  std::string Request(const std::string& line) {
    return Exchange(PortOf(*server_), line + " HTTP/1.1\r\nHost: x\r\n\r\n");
  }

  static inline std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ARouteIsServedWithItsStatusTypeAndBody) {
  const std::string metrics = Request("GET /metrics");
  const std::string readyz = Request("GET /readyz?verbose");

  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"));
  EXPECT_THAT(metrics, HasSubstr("\r\n\r\nm 1\n"));
  EXPECT_THAT(readyz, StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST_F(HttpServerTest, HeadIsAnsweredWithoutABody) {
  const std::string answer = Request("HEAD /metrics");

  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, OtherPathsAreNotFound) {
  for (const std::string path :
       {"/", "/metrics/", "/etc/passwd", "/../../etc/passwd", "/%2e%2e/x"}) {
    EXPECT_THAT(Request("GET " + path), StartsWith("HTTP/1.1 404 ")) << path;
  }
}

TEST_F(HttpServerTest, OtherMethodsAreRefused) {
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const std::string answer = Request(method + " /metrics");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
  }
}

TEST_F(HttpServerTest, WhatIsNoRequestEndsTheConnectionOnly) {
  Exchange(PortOf(*server_), "\x16\x03\x01\x02 no http\r\n\r\n");
  Exchange(PortOf(*server_), "GET " + std::string(20'000, 'a') + " HTTP/1.1\r\n\r\n");

  EXPECT_THAT(Request("GET /metrics"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServerTest, HalfOpenConnectionsDoNotStopAScrape) {
  std::vector<int> held;
  for (int i = 0; i < 20; ++i) {
    held.push_back(Connect(PortOf(*server_)));
    // Half of them have begun a request, the others have said nothing.
    if (i % 2 == 0) {
      EXPECT_EQ(send(held.back(), "GET /met", 8, MSG_NOSIGNAL), 8);
    }
  }

  const auto start = std::chrono::steady_clock::now();
  const std::string answer = Request("GET /metrics");
  const auto took = std::chrono::steady_clock::now() - start;

  EXPECT_THAT(answer, HasSubstr("m 1\n"));
  EXPECT_LT(took, std::chrono::seconds(8));  // three rounds of the time limit, and slack
  for (const int fd : held) close(fd);
}

TEST_F(HttpServerTest, AnAddressInUseIsRefusedByName) {
  EXPECT_THAT(HttpServer::Start(server_->address(), {}),
              FailsWith(absl::StatusCode::kUnavailable, server_->address()));
}

TEST(HttpServerAddressTest, WhatIsNoAddressIsRefused) {
  for (const std::string address :
       {"", "9475", ":9475", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1",
        "127.0.0.1:1,0.0.0.0:2", "::1:80", "127.0.0.1:80s"}) {
    EXPECT_THAT(HttpServer::Start(address, {}),
                FailsWith(absl::StatusCode::kInvalidArgument, "HOST:PORT"))
        << address;
  }
}

TEST(HttpServerAddressTest, LocalhostAndPortZeroGiveTheRealPort) {
  auto server = HttpServer::Start("localhost:0", {});

  ASSERT_OK(server);
  EXPECT_GT(PortOf(**server), 0);
}

}  // namespace
}  // namespace batchd
