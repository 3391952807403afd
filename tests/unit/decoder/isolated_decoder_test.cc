// SPDX-License-Identifier: Apache-2.0
//
// Decoding in a process of its own: the same as in this one, and what a picture can do to it.

#include "server/decoder/isolated_decoder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "server/decoder/confinement.h"
#include "server/decoder/worker_protocol.h"
#include "tests/conformance/format_pictures.h"
#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

constexpr ImageSize kDoingSize = {4000, 100};  // as decode_worker_main.cc has it

// A picture for which the worker of these tests does something.
ByteVector Doing(const std::string& what) {
  const std::string text = "P6\n#do " + what + "\n";
  return {text.begin(), text.end()};
}

// Its rows, where it makes them.
ByteVector DoingRows() {
  ByteVector rows;
  for (int y = 0; y < kDoingSize.height; ++y) {
    rows.insert(rows.end(), size_t{3} * kDoingSize.width, static_cast<uint8_t>(y % 251));
  }
  return rows;
}

std::string Hex(const void* data, size_t size) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text += fmt::format("{:02x}", static_cast<const uint8_t*>(data)[i]);
  }
  return text;
}

class IsolatedDecoderTest : public testing::Test {
 protected:
  absl::StatusOr<ByteVector> Decode(const ByteVector& bytes) {
    return DecodeWhole(decoder_.get(), bytes);
  }
  // How often the metric has this.
  bool Counted(const std::string& reason, int count) const {
    return metrics_.Scrape().find(fmt::format(
               "batchd_decode_worker_restarts_total{{reason=\"{}\"}} {}\n", reason, count)) !=
           std::string::npos;
  }

  Metrics metrics_;
  DecodeIsolationOptions options_{.program = BATCHD_TEST_WORKER,
                                  .encoded_bytes_max = int64_t{64} << 20,
                                  .memory_bytes_max = int64_t{1} << 30};
  DecodeIsolation isolation_{options_, &metrics_};
  std::unique_ptr<ImageDecoder> decoder_ = isolation_.MakeDecoder();
};

// What a decoder says of a picture and a part of it.
struct Answer {
  absl::Status header;
  ImageSize size;
  int orientation = 0;
  bool reduces = false;
  absl::Status status;
  ByteVector rgb;

  bool operator==(const Answer&) const = default;
};

Answer Ask(ImageDecoder* decoder, Bytes bytes, const DecodeLimits& limits, std::mt19937 random) {
  Answer answer;
  const auto size = decoder->ReadHeader(bytes, limits);
  answer.header = size.status();
  if (!size.ok()) return answer;
  answer.size = *size;
  answer.orientation = decoder->Orientation(bytes);
  const auto below = [&random](int bound) { return static_cast<int>(random() % bound); };
  answer.reduces = limits.is_fast && decoder->Reduce(4);
  const ImageSize made = ReducedSize(*size, answer.reduces ? 4 : 1);
  const int top = below(made.height), left = below(made.width);
  const Box box = {top, left, 1 + below(made.height - top), 1 + below(made.width - left)};
  Scratch scratch;
  CollectingSink sink(box.width);
  answer.status = decoder->Decode(bytes, box, &scratch, &sink);
  answer.rgb = sink.rgb();
  return answer;
}

// The files below a folder, each without its first bytes.
std::vector<std::pair<std::string, ByteVector>> FilesBelow(const std::filesystem::path& folder,
                                                           size_t without_bytes) {
  std::vector<std::pair<std::string, ByteVector>> files;
  if (!std::filesystem::is_directory(folder)) return files;  // the cases may be missing
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    ByteVector bytes = ReadFileBytes(entry.path());
    bytes.erase(bytes.begin(), bytes.begin() + std::min(without_bytes, bytes.size()));
    files.emplace_back(entry.path(), std::move(bytes));
  }
  return files;
}

TEST_F(IsolatedDecoderTest, SaysOfEveryPictureWhatTheDecodersInThisProcessSay) {
  auto pictures = FilesBelow(std::filesystem::path(BATCHD_CASES_DIR) / "images", 0);
  // In the corpora of the fuzz targets, 8 bytes choose a region.
  for (auto& picture : FilesBelow(BATCHD_CORPUS_DIR, 8)) pictures.push_back(std::move(picture));
  int decoded_count = 0, failed_count = 0;
  std::mt19937 random(3);
  for (const auto& [name, bytes] : pictures) {
    const auto kind = RecogniseImage(bytes);
    if (!kind.ok()) continue;
    SCOPED_TRACE(name);
    const auto own = (*kind)->make();
    constexpr int64_t kPixelsMax = 4 << 20;
    for (const DecodeLimits& limits : {DecodeLimits{.pixels_max = kPixelsMax},
                                       {.pixels_max = kPixelsMax, .goes_on_over_damage = true},
                                       {.pixels_max = kPixelsMax, .is_fast = true},
                                       {.pixels_max = kPixelsMax, .as_mask = true}}) {
      if (limits.as_mask && !(*kind)->has_masks) continue;

      const Answer expected = Ask(own.get(), bytes, limits, random);
      const Answer answer = Ask(decoder_.get(), bytes, limits, random);

      EXPECT_EQ(answer.header, expected.header);
      EXPECT_EQ(answer.status, expected.status);
      EXPECT_TRUE(answer == expected);
      ++(expected.header.ok() && expected.status.ok() ? decoded_count : failed_count);
    }
    random.discard(1);
  }
  EXPECT_GE(decoded_count, 300);
  EXPECT_GE(failed_count, 300);
  EXPECT_TRUE(Counted("fault", 0) && Counted("forbidden_call", 0));
}

TEST_F(IsolatedDecoderTest, RowsOfAnyWidthComeOverInParts) {
  for (const ImageSize size :
       {ImageSize{3000, 400}, ImageSize{3, 400'000}, ImageSize{1, 1 << 20}}) {
    const ByteVector bytes = EncodePnm(size, 3, 255);
    const auto own = DecodeAnyWhole(bytes);
    ASSERT_OK(own);

    const auto rgb = Decode(bytes);

    ASSERT_OK(rgb);
    EXPECT_TRUE(*rgb == *own) << size.width;
  }
}

TEST_F(IsolatedDecoderTest, AFaultInADecoderCostsThatPictureAlone) {
  int fault_count = 0;
  for (const std::string what : {"segv", "abort", "exit", "header:segv"}) {
    SCOPED_TRACE(what);

    const auto broken = Decode(Doing(what));

    EXPECT_THAT(broken, IsBadSample(SampleReason::kUnsupported));
    fault_count += 2;  // with a second try
    EXPECT_TRUE(Counted("fault", fault_count));
    const auto next = Decode(EncodeJpeg({}));
    ASSERT_OK(next);
    EXPECT_EQ(*next, *DecodeAnyWhole(EncodeJpeg({})));
  }
  if (!kConfinesWorkers) return;  // sanitizers end a program in their own way
  EXPECT_THAT(Decode(Doing("segv")),
              FailsWith(absl::StatusCode::kDataLoss, "ended 2 decode workers: signal 11 (SEGV)"));
}

TEST_F(IsolatedDecoderTest, WhatAnEarlierPictureHasSpoiltCostsNothing) {
  ASSERT_OK(Decode(Doing("spoil")));

  const auto rgb = Decode(Doing("segv if spoilt"));  // in the middle of the rows

  ASSERT_OK(rgb);
  EXPECT_TRUE(*rgb == DoingRows());  // each once, though some have come twice
  EXPECT_TRUE(Counted("fault", 1));
}

// The child of this process.
pid_t FindWorker() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "stat");
    std::string pid, name, state;
    pid_t parent = 0;
    if (file >> pid >> name >> state >> parent && parent == getpid()) return std::stoi(pid);
  }
  ADD_FAILURE() << "no worker";
  return 0;
}

// Sends a signal to the worker when the first row of a window comes, `count` times.
class SignallingSink final : public RowSink {
 public:
  SignallingSink(int number, int count) : number_(number), count_(count) {}
  void PutRows(const uint8_t*, ptrdiff_t, int row_count) override {
    if (count_ > 0 && rows_ % RowsPerWindow(kDoingSize.width) == 0) {
      --count_;
      kill(FindWorker(), number_);
    }
    rows_ += row_count;
  }
  int rows() const { return rows_; }

 private:
  const int number_;
  int count_;
  int rows_ = 0;
};

TEST_F(IsolatedDecoderTest, AWorkerThatIsKilledOrStoppedFromOutsideIsReplaced) {
  options_.silence = std::chrono::milliseconds(250);
  DecodeIsolation impatient(options_, &metrics_);
  decoder_ = impatient.MakeDecoder();
  const ByteVector bytes = EncodePnm(kDoingSize, 3, 255);
  for (const int number : {SIGKILL, SIGSEGV, SIGSTOP}) {
    SCOPED_TRACE(number);
    Scratch scratch;
    SignallingSink sink(number, 1);
    ASSERT_OK(decoder_->ReadHeader(bytes, {}));

    EXPECT_OK(decoder_->Decode(bytes, WholeOf(kDoingSize), &scratch, &sink));

    EXPECT_EQ(sink.rows(), kDoingSize.height);
  }
  EXPECT_TRUE(Counted("killed", 1) && Counted("fault", 1) && Counted("silent", 1));
  decoder_.reset();  // before what it belongs to
}

TEST_F(IsolatedDecoderTest, WhatMayPassIsNoFaultOfThePicture) {
  const ByteVector bytes = EncodePnm(kDoingSize, 3, 255);
  Scratch scratch;
  SignallingSink sink(SIGKILL, 2);
  ASSERT_OK(decoder_->ReadHeader(bytes, {}));

  EXPECT_THAT(decoder_->Decode(bytes, WholeOf(kDoingSize), &scratch, &sink),
              FailsWith(absl::StatusCode::kUnavailable, "signal 9 (KILL)"));
  EXPECT_TRUE(Counted("killed", 2));
}

TEST_F(IsolatedDecoderTest, WhatAsksADaemonToEndDoesNotEndItsWorker) {
  ASSERT_OK(Decode(EncodeJpeg({})));
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) kill(FindWorker(), number);
  EXPECT_OK(Decode(EncodeJpeg({})));
  EXPECT_TRUE(Counted("fault", 0) && Counted("killed", 0));
}

TEST_F(IsolatedDecoderTest, WhatDecodingDoesNotNeedEndsTheWorker) {
  if (!kConfinesWorkers) GTEST_SKIP() << "sanitizer builds run workers unconfined: they need more";
  int count = 0;
  for (const std::string what : {"open", "socket", "exec", "fork", "kill", "kill itself", "write",
                                 "ptrace", "executable memory", "make executable"}) {
    SCOPED_TRACE(what);

    EXPECT_THAT(Decode(Doing(what)), FailsWith(absl::StatusCode::kDataLoss,
                                               "unsupported: decoding it has ended 2 decode "
                                               "workers: signal 31 (SYS)"));
    count += 2;
    EXPECT_TRUE(Counted("forbidden_call", count));
  }
}

TEST_F(IsolatedDecoderTest, AWorkerThatTakesAllMemoryIsWithoutMemory) {
  if (!kConfinesWorkers) GTEST_SKIP() << "sanitizer builds run workers unconfined: they need more";

  EXPECT_THAT(Decode(Doing("no memory")),
              FailsWith(absl::StatusCode::kResourceExhausted, "no memory"));
  EXPECT_OK(Decode(EncodeJpeg({})));
}

// Answers that a worker which somebody has taken over may give.
std::vector<WorkerAnswer> WrongHeaders() {
  using Kind = WorkerAnswer::Kind;
  WorkerAnswer good;
  good.kind = Kind::kHeader;
  good.height = good.width = good.orientation = 1;
  std::vector<WorkerAnswer> wrong;
  const auto add = [&](auto change) { change(&wrong.emplace_back(good)); };
  add([](WorkerAnswer* a) { a->kind = Kind::kRows; });
  add([](WorkerAnswer* a) { a->kind = static_cast<Kind>(77); });
  add([](WorkerAnswer* a) { a->height = 0; });
  add([](WorkerAnswer* a) { a->width = -1; });
  add([](WorkerAnswer* a) { a->height = a->width = 60000; });  // above the limit of pixels
  add([](WorkerAnswer* a) { a->orientation = 9; });
  add([](WorkerAnswer* a) { a->code = 3; });
  add([](WorkerAnswer* a) { a->code = 99; });
  add([](WorkerAnswer* a) {
    a->code = 15;
    a->reason = kSampleReasonCount;
  });
  add([](WorkerAnswer* a) {
    a->code = 15;
    a->reason = -1;
  });
  return wrong;
}

TEST_F(IsolatedDecoderTest, AWrongAnswerEndsTheWorker) {
  std::vector<std::string> answers = {"", "00", Hex("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8)};
  for (const WorkerAnswer& answer : WrongHeaders()) {
    answers.push_back(Hex(&answer, answer.size_bytes()));
  }
  WorkerAnswer answer = WrongHeaders()[0];
  answer.kind = WorkerAnswer::Kind::kHeader;
  answer.text_size = 5;  // that are not there
  answers.push_back(Hex(&answer, answer.size_bytes() - 1));
  answers.push_back(Hex(&answer, answer.size_bytes() + 1));
  for (const std::string& hex : answers) {
    SCOPED_TRACE(hex);
    EXPECT_THAT(Decode(Doing("header:answer " + hex)), IsBadSample(SampleReason::kUnsupported));
  }
  EXPECT_OK(Decode(EncodeJpeg({})));
}

TEST_F(IsolatedDecoderTest, WrongRowsNeverReachTheSink) {
  for (const int row_count : {-1, kDoingSize.height + 1, 1 << 30}) {
    for (const auto kind : {WorkerAnswer::Kind::kRows, WorkerAnswer::Kind::kEnd}) {
      SCOPED_TRACE(row_count);
      WorkerAnswer answer;
      answer.kind = kind;
      answer.row_count = row_count;
      EXPECT_THAT(Decode(Doing("answer " + Hex(&answer, answer.size_bytes()))),
                  IsBadSample(SampleReason::kUnsupported));
    }
  }
  WorkerAnswer early;  // all is well, after half of the rows
  early.kind = WorkerAnswer::Kind::kEnd;
  EXPECT_THAT(Decode(Doing("answer " + Hex(&early, early.size_bytes()))),
              IsBadSample(SampleReason::kUnsupported));
  EXPECT_TRUE(Counted("wrong_answer", 14));
}

TEST_F(IsolatedDecoderTest, AnAnswerOfRandomBytesDoesNoHarm) {
  std::mt19937 random(5);
  for (int i = 0; i < 30; ++i) {
    WorkerAnswer answer;
    auto* const bytes = reinterpret_cast<uint8_t*>(&answer);
    for (size_t k = 0; k < sizeof(answer); ++k) bytes[k] = static_cast<uint8_t>(random());
    answer.kind = static_cast<WorkerAnswer::Kind>(random() % 4);
    answer.text_size = random() % 32;
    if (random() % 2 == 0) answer.code = 15;
    if (random() % 2 == 0) answer.reason = static_cast<int>(random() % 9);
    const std::string hex = Hex(&answer, answer.size_bytes());

    // After an answer that is right by chance, the worker is silent: so each has one of its own.
    decoder_ = isolation_.MakeDecoder();
    const auto in_header = Decode(Doing("header:answer " + hex));
    decoder_ = isolation_.MakeDecoder();
    const auto in_rows = Decode(Doing("answer " + hex));

    for (const auto& status : {in_header.status(), in_rows.status()}) {
      EXPECT_TRUE(SampleReasonOf(status).has_value()) << status;
      for (const char c : status.message()) EXPECT_TRUE(c >= 0x20 && c <= 0x7E) << status;
    }
  }
}

TEST_F(IsolatedDecoderTest, EncodedBytesAboveTheRoomAreRefused) {
  const ByteVector bytes(65 << 20);
  EXPECT_THAT(decoder_->ReadHeader(bytes, {}),
              FailsWith(absl::StatusCode::kResourceExhausted, "68157440 bytes"));
}

int64_t SharedBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  file >> size >> resident >> shared;
  return shared * sysconf(_SC_PAGESIZE);
}

TEST_F(IsolatedDecoderTest, WhatALargePictureTookIsGivenBack) {
  constexpr int64_t kLarge = 50 << 20;
  ByteVector bytes = EncodePnm({2, 2}, 3, 255);
  ByteVector broken = EncodePnm({0, 2}, 3, 255);
  bytes.resize(kLarge);
  broken.resize(kLarge);
  ASSERT_OK(Decode(EncodeJpeg({})));
  const int64_t before = SharedBytes();

  EXPECT_OK(Decode(bytes));
  EXPECT_LT(SharedBytes() - before, kLarge / 2);
  EXPECT_THAT(Decode(broken), IsBadSample(SampleReason::kCorrupt));
  EXPECT_LT(SharedBytes() - before, kLarge / 2);
}

TEST_F(IsolatedDecoderTest, NothingIsLeftOfAWorkerAfterItsDecoder) {
  ASSERT_OK(Decode(EncodeJpeg({})));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), 0);  // it runs

  decoder_.reset();

  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(IsolatedDecoderTest, AProgramThatIsNoWorkerIsToldWithTheReason) {
  DecodeIsolation missing({.program = "/nonexistent"}, &metrics_);
  DecodeIsolation other({.program = "/bin/true"}, &metrics_);

  EXPECT_OK(isolation_.Check());
  EXPECT_THAT(missing.Check(), FailsWith(absl::StatusCode::kUnavailable, "/nonexistent: No such"));
  EXPECT_THAT(other.Check(), FailsWith(absl::StatusCode::kUnavailable, "before it was ready"));
}

}  // namespace
}  // namespace batchd
