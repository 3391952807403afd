// SPDX-License-Identifier: Apache-2.0
//
// What a batch that lies ready costs a C++ trainer, over shared memory: CPU time of its thread for
// Next(), a look at the column, and the end of the batch before; and how often that allocates.
//
//   client_handoff FOLDER DAEMON_PID [ROUNDS]
//
// The daemon at BATCHD_ADDRESS is stopped (SIGSTOP) while batches are taken, so that it takes no
// time on the trainer's core. Uses the public API alone: it is built against an installed client.

#include <batchd/loader.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <new>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kReady = 24;  // batches
std::atomic<int64_t> allocations{0};

}  // namespace

// Of the whole program with its libraries.
void* operator new(size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size); memory != nullptr) return memory;
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace {

double ThreadCpuMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// CPU time that a process has used so far, in ticks.
int64_t TicksOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  const std::vector<std::string> words{std::istream_iterator<std::string>(fields),
                                       std::istream_iterator<std::string>()};
  return std::atoll(words.at(11).c_str()) + std::atoll(words.at(12).c_str());
}

// A daemon that has made all that it may uses no more time.
void WaitUntilIdle(pid_t pid) {
  for (int64_t before = -1, now = TicksOf(pid); now != before; now = TicksOf(pid)) {
    before = now;
    usleep(300'000);
  }
}

batchd::Status Measure(const char* folder, pid_t daemon, int rounds) {
  batchd::Result<batchd::Loader> loader = batchd::Loader::Open({
      .dataset = batchd::ImageFolder(folder),
      .columns = {{"image",
                   {{"DecodeImage"},
                    {"RandomResizedCrop", R"({"size": 224})"},
                    {"Layout", R"({"layout": "NCHW"})"}}},
                  {"label", {{"Label"}}}},
      .batch_size = 64,
      .shuffle = batchd::Shuffle::kFeistel,
      .prefetch = kReady,
      .transport = batchd::Transport::kShm,
  });
  if (!loader.ok()) return loader.status();
  std::vector<double> costs;
  costs.reserve(static_cast<size_t>(rounds) * kReady);
  int64_t allocated = 0;
  std::optional<batchd::Batch> kept;
  if (batchd::Result<batchd::Batch> first = loader->Next(); first.ok()) {  // maps the segment
    kept.emplace(*std::move(first));
  } else {
    return first.status();
  }
  for (int round = 0; round < rounds; ++round) {
    WaitUntilIdle(daemon);
    kill(daemon, SIGSTOP);
    batchd::Status status;
    for (int i = 0; i < kReady && status.ok(); ++i) {
      const int64_t allocations_before = allocations.load(std::memory_order_relaxed);
      const double started = ThreadCpuMicroseconds();
      batchd::Result<batchd::Batch> batch = loader->Next();
      if (!batch.ok()) {
        status = batch.status();
        break;
      }
      const batchd::Result<batchd::Column> image = batch->column("image");
      if (!image.ok() || image->data() == nullptr) status = image.status();
      kept.emplace(*std::move(batch));  // and the one before goes back
      costs.push_back(ThreadCpuMicroseconds() - started);
      // In the first round the lists become as long as they get.
      if (round > 0) allocated += allocations.load(std::memory_order_relaxed) - allocations_before;
    }
    kill(daemon, SIGCONT);
    if (!status.ok()) return status;
  }
  std::sort(costs.begin(), costs.end());
  std::printf(
      "%zu batches of 64x3x224x224 uint8 that lay ready: min %.1f median %.1f max %.1f us of "
      "CPU, %ld allocations\n",
      costs.size(), costs.front(), costs[costs.size() / 2], costs.back(),
      static_cast<long>(allocated));
  return batchd::Status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: client_handoff FOLDER DAEMON_PID [ROUNDS]\n");
    return 2;
  }
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7;
  const batchd::Status status = Measure(argv[1], std::atoi(argv[2]), rounds);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
