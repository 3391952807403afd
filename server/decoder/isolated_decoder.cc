// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/isolated_decoder.h"

#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <optional>

#include "server/base/log.h"
#include "server/base/status.h"
#include "server/decoder/worker_process.h"

namespace batchd {
namespace {

constexpr int kTriesMax = 2;
constexpr Duration kLogInterval = std::chrono::seconds(10);

// A worker that is there and confined.
absl::StatusOr<std::unique_ptr<WorkerProcess>> StartWorker(const std::vector<std::string>& command,
                                                           const DecodeIsolationOptions& options) {
  BATCHD_ASSIGN_OR_RETURN(
      auto worker, WorkerProcess::Start(command, options.encoded_bytes_max, options.silence));
  WorkerAnswer answer;
  if (worker->Receive(&answer) != WorkerProcess::Received::kAnswer ||
      answer.kind != WorkerAnswer::Kind::kReady) {
    return Err(absl::StatusCode::kUnavailable,
               "a decode worker ended before it was ready (wait status {}); see the lines before",
               worker->End());
  }
  const std::optional<absl::Status> status = StatusIn(answer);
  if (!status.has_value()) return absl::UnavailableError("a decode worker's first answer is wrong");
  BATCHD_RETURN_IF_ERROR(*status);
  return worker;
}

// By DecodeIsolation::Ending.
constexpr prometheus::Counter* Metrics::*kCounters[] = {
    &Metrics::decode_workers_faulted, &Metrics::decode_workers_forbidden,
    &Metrics::decode_workers_killed,  &Metrics::decode_workers_silent,
    &Metrics::decode_workers_wrong,
};

}  // namespace

class IsolatedDecoder final : public ImageDecoder {
 public:
  explicit IsolatedDecoder(DecodeIsolation* isolation) : isolation_(isolation) {}

  absl::StatusOr<ImageSize> ReadHeader(Bytes bytes, const DecodeLimits& limits) override {
    if (static_cast<int64_t>(bytes.size()) > isolation_->options_.encoded_bytes_max) {
      return Err(absl::StatusCode::kResourceExhausted,
                 "{} bytes; decode workers have room for {}; raise --memory", bytes.size(),
                 isolation_->options_.encoded_bytes_max);
    }
    limits_ = limits;
    reduction_ = 1;
    loaded_ = {};
    const absl::Status status = Try([&] { return Load(bytes); });
    if (status.ok()) return size_;
    ReleaseLarge(bytes);
    return status;
  }

  absl::Status Decode(Bytes bytes, const Box& region, Scratch*, RowSink* sink) override {
    int put_count = 0;
    const absl::Status status = Try([&]() -> std::optional<absl::Status> {
      if (loaded_.data() != bytes.data() || loaded_.size() != bytes.size()) {
        std::optional<absl::Status> loaded = Load(bytes);
        if (!loaded.has_value() || !loaded->ok()) return loaded;
      }
      return DecodeRows(region, sink, &put_count);
    });
    ReleaseLarge(bytes);
    return status;
  }

  int Orientation(Bytes) override { return orientation_; }

  bool Reduce(int reduction) override {
    const auto kind = RecogniseImage(loaded_);
    if (!kind.ok() || !(*kind)->reduces) return false;
    reduction_ = reduction;
    return true;
  }

 private:
  using Ending = DecodeIsolation::Ending;
  using Received = WorkerProcess::Received;

  // Runs `exchange` with worker_, and again with a fresh one if the worker ends, which it says by
  // nothing.
  template <typename Exchange>
  absl::Status Try(const Exchange& exchange) {
    for (int fault_count = 0, kill_count = 0;;) {
      if (worker_ == nullptr) {
        BATCHD_ASSIGN_OR_RETURN(worker_, StartWorker(isolation_->command_, isolation_->options_));
      }
      received_ = Received::kEnd;
      std::optional<absl::Status> status = exchange();
      if (status.has_value()) return *std::move(status);
      absl::Status ended = EndWorker();
      int* const count = SampleReasonOf(ended).has_value() ? &fault_count : &kill_count;
      if (++*count == kTriesMax) return ended;
    }
  }

  // Nothing may be believed of this worker any more.
  std::nullopt_t Wrong() {
    received_ = Received::kWrong;
    return std::nullopt;
  }

  // As Scratch does with what a large picture has needed.
  void ReleaseLarge(Bytes bytes) {
    if (worker_ == nullptr || bytes.size() <= kScratchKeepBytes) return;
    worker_->ReleaseEncoded(kScratchKeepBytes, static_cast<int64_t>(bytes.size()));
    loaded_ = {};
  }

  bool SendAndReceive(const WorkerRequest& request) {
    if (!worker_->Send(request)) return false;
    received_ = worker_->Receive(&answer_);
    return received_ == Received::kAnswer;
  }

  // Puts the bytes before the worker and reads the header.
  std::optional<absl::Status> Load(Bytes bytes) {
    std::memcpy(worker_->encoded(), bytes.data(), bytes.size());
    if (!SendAndReceive({.kind = WorkerRequest::Kind::kHeader,
                         .limits = limits_,
                         .size_bytes = static_cast<int64_t>(bytes.size())})) {
      return std::nullopt;
    }
    if (answer_.kind != WorkerAnswer::Kind::kHeader) return Wrong();
    std::optional<absl::Status> status = StatusIn(answer_);
    if (!status.has_value()) return Wrong();
    if (!status->ok()) return status;
    const auto size = CheckedSize(answer_.height, answer_.width, limits_);
    if (!size.ok() || answer_.orientation < 1 || answer_.orientation > 8) return Wrong();
    size_ = *size;
    orientation_ = answer_.orientation;
    loaded_ = bytes;
    return status;
  }

  // Rows from `*put_count` on go to the sink; an earlier try has put those before.
  std::optional<absl::Status> DecodeRows(const Box& region, RowSink* sink, int* put_count) {
    const int rows_max = RowsPerWindow(region.width);
    const auto row_bytes = ptrdiff_t{3} * region.width;
    WorkerRequest request = {
        .kind = WorkerRequest::Kind::kDecode, .reduction = reduction_, .region = region};
    for (int done = 0;;) {
      if (!SendAndReceive(request)) return std::nullopt;
      const bool is_end = answer_.kind == WorkerAnswer::Kind::kEnd;
      if (!is_end && answer_.kind != WorkerAnswer::Kind::kRows) return Wrong();
      const int count = answer_.row_count;
      if (count < (is_end ? 0 : 1) || count > std::min(rows_max, region.height - done)) {
        return Wrong();
      }
      const uint8_t* row = worker_->rows();
      for (int i = 0; i < count;) {
        const int skipped = std::min(*put_count - done, count - i);
        const int put = skipped > 0 ? skipped : std::min(kRowsPerPut, count - i);
        if (skipped <= 0) {
          sink->PutRows(row, row_bytes, put);
          *put_count += put;
        }
        row += put * row_bytes;
        i += put;
        done += put;
      }
      if (is_end) {
        std::optional<absl::Status> status = StatusIn(answer_);
        if (!status.has_value() || (status->ok() && done != region.height)) return Wrong();
        return status;
      }
      request.kind = WorkerRequest::Kind::kGoOn;
    }
  }

  // What that says about the picture.
  absl::Status EndWorker() {
    const int pid = worker_->pid();
    const int wait_status = worker_->End();
    worker_.reset();
    loaded_ = {};
    const auto [ending, how] = EndingOf(received_, wait_status);
    isolation_->Report(ending, pid, how);
    if (ending == Ending::kKilled || ending == Ending::kSilent) {
      return Err(absl::StatusCode::kUnavailable,
                 "decode workers have ended {} times in a row over it: {}; is the machine short of "
                 "memory, or does somebody stop them?",
                 kTriesMax, how);
    }
    return SampleErr(SampleReason::kUnsupported,
                     "decoding it has ended {} decode workers: {}; leave it out or save it anew",
                     kTriesMax, how);
  }

  static std::pair<Ending, std::string> EndingOf(Received received, int wait_status) {
    if (received == Received::kWrong)
      return {Ending::kWrongAnswer, "an answer that no decoder gives"};
    if (received == Received::kSilence) return {Ending::kSilent, "no answer"};
    if (wait_status >= 0 && WIFSIGNALED(wait_status)) {
      const int number = WTERMSIG(wait_status);
      const char* const name = sigabbrev_np(number);
      return {number == SIGSYS    ? Ending::kForbiddenCall
              : number == SIGKILL ? Ending::kKilled
                                  : Ending::kFault,
              fmt::format("signal {} ({})", number, name == nullptr ? "?" : name)};
    }
    if (wait_status >= 0 && WIFEXITED(wait_status)) {
      return {Ending::kFault, fmt::format("exit code {}", WEXITSTATUS(wait_status))};
    }
    return {Ending::kFault, "an unknown end"};
  }

  DecodeIsolation* const isolation_;
  std::unique_ptr<WorkerProcess> worker_;
  Received received_ = Received::kEnd;  // the last that came, or did not
  WorkerAnswer answer_;
  DecodeLimits limits_;
  Bytes loaded_;  // whose bytes and header the worker has
  ImageSize size_;
  int orientation_ = 1;
  int reduction_ = 1;
};

DecodeIsolation::DecodeIsolation(const DecodeIsolationOptions& options, Metrics* metrics)
    : options_(options),
      command_({options.program, "decode-worker", std::to_string(options.memory_bytes_max)}),
      metrics_(metrics) {}

std::unique_ptr<ImageDecoder> DecodeIsolation::MakeDecoder() {
  return std::make_unique<IsolatedDecoder>(this);
}

absl::Status DecodeIsolation::Check() const { return StartWorker(command_, options_).status(); }

void DecodeIsolation::Report(Ending ending, int pid, const std::string& how) {
  Add(metrics_->*kCounters[static_cast<int>(ending)]);
  MutexLock lock(&mu_);
  const TimePoint now = Clock::Real()->Now();
  if (now < next_log_) {
    ++unlogged_count_;
    return;
  }
  log::Warn("decode worker ended", {{"pid", pid}, {"by", how}, {"unlogged", unlogged_count_}});
  unlogged_count_ = 0;
  next_log_ = now + kLogInterval;
}

}  // namespace batchd
