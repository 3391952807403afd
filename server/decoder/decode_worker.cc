// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/decode_worker.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "server/base/status.h"
#include "server/decoder/confinement.h"
#include "server/decoder/worker_protocol.h"

namespace batchd {
namespace {

constexpr int kSocket = STDIN_FILENO;
constexpr int kMemory = STDOUT_FILENO;
constexpr int kExitStrange = 1;

// Grey, 8x8. Some of libjpeg's code looks at the machine when it is first used, which needs files.
constexpr uint8_t kTinyJpeg[] = {
    0xFF, 0xD8, 0xFF, 0xDB, 0x00, 0x43, 0x00, 0x08, 0x06, 0x06, 0x07, 0x06, 0x05, 0x08, 0x07, 0x07,
    0x07, 0x09, 0x09, 0x08, 0x0A, 0x0C, 0x14, 0x0D, 0x0C, 0x0B, 0x0B, 0x0C, 0x19, 0x12, 0x13, 0x0F,
    0x14, 0x1D, 0x1A, 0x1F, 0x1E, 0x1D, 0x1A, 0x1C, 0x1C, 0x20, 0x24, 0x2E, 0x27, 0x20, 0x22, 0x2C,
    0x23, 0x1C, 0x1C, 0x28, 0x37, 0x29, 0x2C, 0x30, 0x31, 0x34, 0x34, 0x34, 0x1F, 0x27, 0x39, 0x3D,
    0x38, 0x32, 0x3C, 0x2E, 0x33, 0x34, 0x32, 0xFF, 0xC0, 0x00, 0x0B, 0x08, 0x00, 0x08, 0x00, 0x08,
    0x01, 0x01, 0x11, 0x00, 0xFF, 0xC4, 0x00, 0x14, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xFF, 0xC4, 0x00, 0x14, 0x10, 0x01,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0xFF, 0xDA, 0x00, 0x08, 0x01, 0x01, 0x00, 0x00, 0x3F, 0x00, 0x3F, 0xFF, 0xD9};

void Send(const WorkerAnswer& answer) {
  ssize_t sent;
  do {
    sent = send(kSocket, &answer, answer.size_bytes(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) _exit(0);  // the daemon is gone
}

WorkerRequest Receive() {
  WorkerRequest request;
  ssize_t received;
  do {
    received = recv(kSocket, &request, sizeof(request), 0);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) _exit(0);  // the daemon is gone
  if (received != sizeof(request)) _exit(kExitStrange);
  return request;
}

// The shared memory. Its descriptor is closed: nothing else is to be had through it.
struct SharedMemory {
  uint8_t* data = nullptr;
  int64_t size_bytes = 0;

  uint8_t* rows() const { return data + size_bytes - kRowsSizeBytes; }
};

absl::StatusOr<SharedMemory> MapMemory() {
  struct stat status {};
  if (fstat(kMemory, &status) != 0 || status.st_size <= kRowsSizeBytes) {
    return absl::UnavailableError("standard output is not the shared memory of a daemon");
  }
  SharedMemory memory{nullptr, status.st_size};
  void* const data = mmap(nullptr, static_cast<size_t>(memory.size_bytes), PROT_READ | PROT_WRITE,
                          MAP_SHARED, kMemory, 0);
  if (data == MAP_FAILED) return absl::UnavailableError(ErrnoText("mmap", errno));
  memory.data = static_cast<uint8_t*>(data);
  close(kMemory);
  return memory;
}

// Rows on their way to the daemon; it takes them whenever the window is full.
class WindowSink final : public RowSink {
 public:
  WindowSink(uint8_t* window, int width)
      : window_(window), row_bytes_(size_t{3} * width), rows_max_(RowsPerWindow(width)) {}

  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    for (int i = 0; i < row_count; ++i, rgb += stride_bytes) {
      if (row_count_ == rows_max_) {
        WorkerAnswer answer;
        answer.kind = WorkerAnswer::Kind::kRows;
        answer.row_count = row_count_;
        Send(answer);
        if (Receive().kind != WorkerRequest::Kind::kGoOn) _exit(kExitStrange);
        row_count_ = 0;
      }
      std::memcpy(window_ + row_count_ * row_bytes_, rgb, row_bytes_);
      ++row_count_;
    }
  }
  int row_count() const { return row_count_; }

 private:
  uint8_t* const window_;
  const size_t row_bytes_;
  const int rows_max_;
  int row_count_ = 0;
};

class WorkerLoop {
 public:
  WorkerLoop(const DecodeWorkerOptions& options, const SharedMemory& memory)
      : options_(options), memory_(memory) {}

  [[noreturn]] void Run() {
    for (;;) {
      const WorkerRequest request = Receive();
      WorkerAnswer answer;
      if (request.kind == WorkerRequest::Kind::kHeader) {
        answer.kind = WorkerAnswer::Kind::kHeader;
        SetStatus(ReadHeader(request, &answer), &answer);
      } else if (request.kind == WorkerRequest::Kind::kDecode && decoder_ != nullptr) {
        answer.kind = WorkerAnswer::Kind::kEnd;
        if (request.reduction > 1 && !decoder_->Reduce(request.reduction)) _exit(kExitStrange);
        WindowSink sink(memory_.rows(), request.region.width);
        SetStatus(decoder_->Decode(bytes_, request.region, &scratch_, &sink), &answer);
        answer.row_count = sink.row_count();
        scratch_.ReleaseLarge();
      } else {
        _exit(kExitStrange);
      }
      Send(answer);
    }
  }

 private:
  absl::Status ReadHeader(const WorkerRequest& request, WorkerAnswer* answer) {
    bytes_ = Bytes(memory_.data, static_cast<size_t>(request.size_bytes));
    decoder_ = nullptr;
    BATCHD_ASSIGN_OR_RETURN(ImageDecoder* const decoder, options_.decoder_for(bytes_));
    BATCHD_ASSIGN_OR_RETURN(const ImageSize size, decoder->ReadHeader(bytes_, request.limits));
    answer->height = size.height;
    answer->width = size.width;
    answer->orientation = decoder->Orientation(bytes_);
    decoder_ = decoder;
    return absl::OkStatus();
  }

  const DecodeWorkerOptions& options_;
  const SharedMemory memory_;
  Scratch scratch_;
  Bytes bytes_;
  ImageDecoder* decoder_ = nullptr;  // of the last picture whose header is good
};

absl::Status UseDecodersOnce(const DecodeWorkerOptions& options) {
  BATCHD_ASSIGN_OR_RETURN(ImageDecoder* const jpeg, options.decoder_for(kTinyJpeg));
  BATCHD_ASSIGN_OR_RETURN(const ImageSize size, jpeg->ReadHeader(kTinyJpeg, {}));
  uint8_t rows[3 * 8 * 8];
  WindowSink sink(rows, size.width);
  Scratch scratch;
  return jpeg->Decode(kTinyJpeg, {0, 0, size.height, size.width}, &scratch, &sink);
}

}  // namespace

int RunDecodeWorker(const DecodeWorkerOptions& options) {
  int type = 0;
  socklen_t type_size = sizeof(type);
  if (getsockopt(kSocket, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 || type != SOCK_SEQPACKET) {
    std::fputs("batchd: decode-worker is started by `batchd serve --decode-isolation process`\n",
               stderr);
    return kExitStrange;
  }
  // A stopped worker does not see the end of the socket.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const absl::StatusOr<SharedMemory> memory = MapMemory();
  absl::Status status = memory.status();
  if (status.ok()) status = UseDecodersOnce(options);
  if (status.ok() && kConfinesWorkers) status = Confine(options.memory_bytes_max);
  WorkerAnswer ready;
  ready.kind = WorkerAnswer::Kind::kReady;
  SetStatus(status, &ready);
  Send(ready);
  if (!status.ok()) return kExitStrange;
  WorkerLoop(options, *memory).Run();
}

}  // namespace batchd
