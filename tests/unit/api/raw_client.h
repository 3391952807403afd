// SPDX-License-Identifier: Apache-2.0
//
// A client of the data socket that says exactly what a test wants, right or wrong.

#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/shm/wire.h"
#include "server/api/message_json.h"
#include "server/base/schema.h"

namespace batchd {

class RawClient {
 public:
  explicit RawClient(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
        << std::strerror(errno);
  }
  ~RawClient() { Hangup(); }

  void Hangup() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
    for (const int fd : received_fds) close(fd);
    received_fds.clear();
  }
  int fd() const { return fd_; }

  // False if the other end has hung up.
  bool Send(std::string_view datagram) {
    return send(fd_, datagram.data(), datagram.size(), MSG_NOSIGNAL) >= 0;
  }
  template <typename T>
  bool SendStruct(const T& value) {
    return Send({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  bool SendHello(uint16_t version_min = 1, uint16_t version_max = 1) {
    wire::Hello hello{};
    hello.magic = wire::kHelloMagic;
    hello.version_min = version_min;
    hello.version_max = version_max;
    return SendStruct(hello);
  }
  void SendJson(std::string_view text) {
    EXPECT_TRUE(ForEachFragment(text, [&](std::string_view datagram, bool) {
                  return Send(datagram) ? absl::OkStatus() : absl::UnavailableError("hung up");
                }).ok());
  }
  void SendRecords(const std::vector<wire::Record>& records) {
    EXPECT_TRUE(Send({reinterpret_cast<const char*>(records.data()), records.size() * 64}));
  }

  // The next datagram; empty at the end of the connection. Descriptors go to received_fds.
  std::string Receive() {
    pollfd wait{fd_, POLLIN, 0};
    if (poll(&wait, 1, 20'000) <= 0) {
      ADD_FAILURE() << "nothing has come";
      return "";
    }
    std::string bytes(100'000, '\0');
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t size = recvmsg(fd_, &message, MSG_CMSG_CLOEXEC);
    EXPECT_GE(size, 0) << std::strerror(errno);
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
      received_fds.resize(received_fds.size() + (h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(&received_fds.back(), CMSG_DATA(h), sizeof(int));
    }
    bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return bytes;
  }
  wire::Hello ReceiveHello() {
    const std::string bytes = Receive();
    wire::Hello hello{};
    EXPECT_EQ(bytes.size(), sizeof(hello));
    std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof(hello)));
    EXPECT_EQ(hello.magic, wire::kHelloMagic);
    return hello;
  }
  // The next message, put together; `fragment_count` of the last one is kept.
  Json ReceiveJson() {
    MessageAssembler assembler;
    fragment_count = 0;
    for (;;) {
      const std::string bytes = Receive();
      ++fragment_count;
      const auto whole = assembler.Add(bytes);
      EXPECT_TRUE(whole.ok()) << whole.status();
      if (!whole.ok()) return {};
      if (*whole) return Json::parse(assembler.message(), nullptr, false);
    }
  }
  std::vector<wire::Record> ReceiveRecords() {
    const std::string bytes = Receive();
    EXPECT_EQ(bytes.size() % 64, 0u);
    std::vector<wire::Record> records(bytes.size() / 64);
    std::memcpy(records.data(), bytes.data(), records.size() * 64);
    return records;
  }
  // The Error that ends the connection.
  Json ReceiveLastError() {
    const Json message = ReceiveJson();
    EXPECT_EQ(Receive(), "") << "the connection goes on";
    EXPECT_TRUE(message.contains("error")) << message.dump();
    return message.value("error", Json::object());
  }

  std::vector<int> received_fds;
  int fragment_count = 0;

 private:
  int fd_ = -1;
};

}  // namespace batchd
