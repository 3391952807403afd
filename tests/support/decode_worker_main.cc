// SPDX-License-Identifier: Apache-2.0
//
// A decode worker with one more decoder, for pictures that begin with "#do ": it does what the rest
// of the line says, as a decoder with a fault would, or one that somebody has taken over. The
// daemon takes such bytes for a PNM picture: "P6\n#do …\n".

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "server/base/status.h"
#include "server/decoder/decode_worker.h"

namespace batchd {
namespace {

constexpr std::string_view kMark = "P6\n#do ";
constexpr ImageSize kSize = {4000, 100};  // more than two windows of rows
constexpr int kRowBytes = 3 * kSize.width;

bool is_spoilt = false;  // by an earlier picture

// Each is one system call that no decoder makes.
const std::map<std::string_view, void (*)()> kForbidden = {
    {"open", [] { open("/dev/null", O_RDONLY); }},
    {"socket", [] { socket(AF_INET, SOCK_STREAM, 0); }},
    {"exec", [] { execl("/bin/true", "true", nullptr); }},
    {"fork", [] { fork(); }},
    {"kill", [] { kill(getppid(), SIGTERM); }},
    {"kill itself", [] { raise(SIGKILL); }},
    {"write", [] { [[maybe_unused]] const auto n = write(STDIN_FILENO, "x", 1); }},
    {"ptrace", [] { syscall(SYS_ptrace, 0, 0, 0, 0); }},
    {"executable memory",
     [] { mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }},
    {"make executable", [] { mprotect(&is_spoilt, 1, PROT_READ | PROT_EXEC); }},
};

// Bytes in hexadecimal to the daemon, as an answer.
void SendRaw(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::strtol(std::string(hex.substr(i, 2)).c_str(), nullptr, 16));
  }
  send(STDIN_FILENO, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

class DoingDecoder final : public ImageDecoder {
 public:
  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits&) override {
    std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text.remove_prefix(kMark.size());
    what_ = text.substr(0, text.find('\n'));
    if (what_.starts_with("header:")) Do(what_.substr(7));
    return kSize;
  }

  absl::Status Decode(Bytes, const Box& region, Scratch*, RowSink* sink) override {
    uint8_t row[kRowBytes];
    for (int y = region.top; y < region.top + region.height; ++y) {
      if (y == region.top + region.height / 2) {
        if (what_ == "no memory") return TakeAllMemory();
        Do(what_);
      }
      std::memset(row, y % 251, sizeof(row));
      sink->PutRows(row, kRowBytes, 1);
    }
    return absl::OkStatus();
  }

 private:
  static void Do(const std::string& what) {
    if (what == "spoil") is_spoilt = true;
    if (what == "segv" || (what == "segv if spoilt" && is_spoilt)) Fault();
    if (what == "abort") std::abort();
    if (what == "exit") _exit(0);
    if (what.starts_with("answer ")) {
      SendRaw(what.substr(7));
      char request[1000];  // is read, and no more
      while (recv(STDIN_FILENO, request, sizeof(request), 0) > 0) {
      }
    }
    const auto forbidden = kForbidden.find(what);
    if (forbidden != kForbidden.end()) forbidden->second();
  }

  static void Fault() {
    void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile char*>(page) = 1;
  }

  static absl::Status TakeAllMemory() {
    constexpr size_t kPiece = size_t{1} << 20;
    for (int taken = 0; taken < 1 << 20; ++taken) {
      auto* const piece = static_cast<volatile char*>(std::malloc(kPiece));
      if (piece == nullptr) return absl::ResourceExhaustedError("no memory");
    }
    return absl::OkStatus();
  }

  std::string what_;
};

int Main(int argc, char** argv) {
  DecoderSet decoders;
  DoingDecoder doing;
  return RunDecodeWorker({.memory_bytes_max = argc == 3 ? std::atoll(argv[2]) : 0,
                          .decoder_for = [&](Bytes bytes) -> absl::StatusOr<ImageDecoder*> {
                            const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                                                        bytes.size());
                            if (text.starts_with(kMark)) return &doing;
                            return decoders.For(bytes);
                          }});
}

}  // namespace
}  // namespace batchd

int main(int argc, char** argv) { return batchd::Main(argc, argv); }
