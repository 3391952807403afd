// SPDX-License-Identifier: Apache-2.0
//
// What a client may say on the data socket, right or wrong, to a real socket door with real
// sessions behind it. The input is a list of steps, each {what, size (2 bytes), bytes}: see Step.
// The daemon must answer to the end of the connection, whatever comes, and give all memory back.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "proto/shm/wire.h"
#include "server/api/message_json.h"
#include "server/api/socket_door.h"
#include "server/base/check.h"
#include "server/base/log.h"
#include "tests/support/loop_thread.h"
#include "tests/support/picture_folder.h"

namespace batchd {
namespace {

enum class Step : uint8_t {
  kRaw,      // the bytes as they are
  kHello,    // a Hello that is right
  kMessage,  // the bytes as the JSON of a message, in fragments as they should be
  kCut,      // the same in fragments of as many bytes as the first byte says
  kAwait,    // waits for a READY
  kTake,     // answers the oldest READY
  kRelease,  // gives back the oldest batch taken; without one, the last READY once more
  kRecord,   // a record of the bytes, filled up with zeros
};
constexpr int kSteps = 8;
constexpr int kAwaitsMax = 4;
constexpr size_t kSlots = 4;  // of the corpus' sessions
constexpr int kAwaitMilliseconds = 20;
constexpr int kEndMilliseconds = 30'000;
constexpr int kInputsPerLook = 256;

struct World {
  PictureFolder folder{12};
  Metrics metrics;
  LoopThread thread;
  std::unique_ptr<SessionManager> manager;
  std::unique_ptr<SocketDoor> door;
  std::string path = folder.root() + "/sock";

  World() {
    log::SetQuiet(true);
    ManagerOptions options;
    options.reader_threads = 1;
    options.slab_budget_bytes = 16 << 20;
    options.encoded_budget_bytes = 64 << 20;
    // Room for small pictures only: larger ones cost time and show nothing else.
    options.scratch_budget_bytes = 20 << 20;
    options.datasets.roots = {folder.root()};
    options.datasets.any_root = false;
    options.named_datasets = {{"d", {"ImageFolder", {{"root", folder.root()}}}}};
    options.nice = 0;
    manager = SessionManager::Create(options, thread.loop(), &metrics);
    thread.Run(
        [&] { door = SocketDoor::Listen({.path = path}, thread.loop(), manager.get()).value(); });
  }

  // All that the sessions had has to come back.
  void WaitUntilEmpty() {
    const TimePoint deadline = Clock::Real()->Now() + std::chrono::milliseconds(kEndMilliseconds);
    for (;;) {
      int sessions = 0;
      thread.Run([&] { sessions = manager->session_count(); });
      if (sessions == 0 && manager->slab_budget().used_bytes() == 0) return;
      BATCHD_CHECK(Clock::Real()->Now() < deadline);
      std::this_thread::yield();
    }
  }
};

class Client {
 public:
  explicit Client(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    BATCHD_CHECK(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  ~Client() { close(fd_); }

  void Do(Step step, std::string_view bytes) {
    switch (step) {
      case Step::kRaw:
        return Send(bytes);
      case Step::kHello: {
        wire::Hello hello{};
        hello.magic = wire::kHelloMagic;
        hello.version_min = hello.version_max = wire::kProtocolVersion;
        return SendStruct(hello);
      }
      case Step::kMessage:
        return SendMessage(bytes, wire::kFragmentBytesMax);
      case Step::kCut:
        if (bytes.empty()) return;
        return SendMessage(bytes.substr(1), std::max<size_t>(static_cast<uint8_t>(bytes[0]), 1));
      case Step::kAwait:
        return Await();
      case Step::kTake:
        if (ready_.empty()) return;
        Answer(ready_.front(), wire::RecordKind::kTake);
        taken_.push_back(ready_.front());
        ready_.pop_front();
        return;
      case Step::kRelease: {
        if (taken_.empty()) return Answer(last_, wire::RecordKind::kRelease);
        const wire::Record taken = taken_.front();
        taken_.pop_front();
        return Answer(taken, wire::RecordKind::kRelease);
      }
      case Step::kRecord: {
        wire::Record record{};
        std::memcpy(&record, bytes.data(), std::min(bytes.size(), sizeof(record)));
        return SendStruct(record);
      }
    }
  }

  // Says that nothing more comes; the daemon then ends the connection.
  void Finish() {
    shutdown(fd_, SHUT_WR);
    while (Receive(kEndMilliseconds)) {
    }
    BATCHD_CHECK(ended_);
  }

 private:
  void Send(std::string_view bytes) {
    if (bytes.empty()) return;
    send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);  // the end may have come
    while (Receive(0)) {
    }
  }
  template <typename T>
  void SendStruct(const T& value) {
    Send({reinterpret_cast<const char*>(&value), sizeof(value)});
  }
  void SendMessage(std::string_view text, size_t part_bytes) {
    has_spoken_ = true;
    wire::FragmentHeader header{};
    header.kind = wire::kJsonByte;
    header.message_size_bytes = static_cast<uint32_t>(text.size());
    while (!text.empty() && !ended_) {
      const std::string_view part = text.substr(0, part_bytes);
      text.remove_prefix(part.size());
      header.last = text.empty() ? 1 : 0;
      std::string datagram(reinterpret_cast<const char*>(&header), sizeof(header));
      Send(datagram.append(part));
    }
  }
  void Answer(wire::Record record, wire::RecordKind kind) {
    record.kind = static_cast<uint8_t>(kind);
    SendStruct(record);
  }
  void Await() {
    // Where none can come there is nothing to wait for.
    if (!has_spoken_ || ready_.size() + taken_.size() >= kSlots || ++awaits_ > kAwaitsMax) return;
    const size_t before = ready_.size();
    while (ready_.size() == before && Receive(kAwaitMilliseconds)) {
    }
  }
  // libFuzzer's own alarm may come between.
  bool WaitReadable(int milliseconds) const {
    pollfd wait{fd_, POLLIN, 0};
    int count;
    do {
      count = poll(&wait, 1, milliseconds);
    } while (count < 0 && errno == EINTR);
    return count > 0;
  }
  // Takes in one datagram; false if none comes in time, or none at all any more.
  bool Receive(int milliseconds) {
    if (ended_ || !WaitReadable(milliseconds)) return false;
    const ssize_t size = recv(fd_, buffer_, sizeof(buffer_), 0);
    ended_ = size <= 0;
    if (ended_) return false;
    for (ssize_t at = 0; buffer_[0] == 1 && at + 64 <= size; at += 64) {
      std::memcpy(&last_, buffer_ + at, sizeof(last_));
      ready_.push_back(last_);
    }
    return true;
  }

  int fd_ = -1;
  bool ended_ = false;
  bool has_spoken_ = false;
  int awaits_ = 0;
  std::deque<wire::Record> ready_;
  std::deque<wire::Record> taken_;
  wire::Record last_{};
  char buffer_[1 << 17];
};

}  // namespace
}  // namespace batchd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace batchd;  // NOLINT: the only function outside
  static auto* const world = new World;
  Client client(world->path);
  std::string_view input(reinterpret_cast<const char*>(data), size);
  while (input.size() >= 3) {
    const auto step = static_cast<Step>(static_cast<uint8_t>(input[0]) % kSteps);
    const size_t wanted = static_cast<uint8_t>(input[1]) | static_cast<uint8_t>(input[2]) << 8;
    const std::string_view bytes = input.substr(3, wanted);
    input.remove_prefix(3 + bytes.size());
    client.Do(step, bytes);
  }
  client.Finish();
  static int count = 0;
  if (++count % kInputsPerLook == 0) world->WaitUntilEmpty();
  return 0;
}
