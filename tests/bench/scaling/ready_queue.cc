// SPDX-License-Identifier: Apache-2.0
//
// The ready queue alone: how much CPU time a row costs that goes through it, by the number of
// threads that take from it.
//
//   ready_queue THREADS BATCHES WORK_MICROSECONDS SECONDS
//
// THREADS take rows and finish them, as the pool's threads do, each after WORK_MICROSECONDS of CPU
// time (0: none, so that all contend for the lock as hard as they can). One more thread stands for
// the event loop: it begins a batch of 64 rows anew as soon as it is done. BATCHES are in flight:
// with 1 the queue runs dry after each batch and all threads sleep and are woken; with many it
// never does. Prints JSON; the work itself is taken off the CPU time.

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <thread>
#include <vector>

#include "server/memory/segment.h"
#include "server/pipeline/work_queue.h"
#include "tests/support/memory_dataset.h"

namespace batchd {
namespace {

constexpr int kRows = 64;

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

struct Usage {
  double cpu_s;
  int64_t switches;
};
Usage UsageNow() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_nvcsw + usage.ru_nivcsw};
}

// A session of label rows without a loop: what Session does around the queue, and no more.
class Bench {
 public:
  Bench(int batch_count, double work_seconds) : work_seconds_(work_seconds) {
    const auto dataset =
        std::make_shared<MemoryDataset>(std::vector<MemorySample>(1024, MemorySample{"x", {}, 1}));
    plan_.pipeline =
        PipelinePlan::Compile({{{"label", {{"Label", Json::object()}}}}}, dataset).value();
    plan_.sampler = MakeSampler({.num_samples = dataset->num_samples(),
                                 .shuffle = Shuffle::kFeistel,
                                 .global_batch_size = kRows,
                                 .last_batch = LastBatch::kDrop})
                        .value();
    plan_.layout = SlabLayout::Make(plan_.pipeline->shapes(), kRows).value();
    segment_ = Segment::Create(batch_count, plan_.layout.slab_size_bytes(), &budget_).value();
    queue_.AddLane(&lane_);
    for (int i = 0; i < batch_count; ++i) {
      batches_.push_back(std::make_unique<Batch>(&plan_, &lane_, segment_->slab(i),
                                                 [this](Batch* batch) { Return(batch); }));
      returned_.push_back(batches_.back().get());
    }
  }

  // The pool's thread.
  void Take() {
    RowTask task;
    double worked = 0;
    int64_t rows = 0;
    while (queue_.Pop(&task)) {
      if (work_seconds_ > 0) worked += Spin();
      task.batch->FinishRow(task.row, task.ordinal, wire::RowStatus::kOk);
      ++rows;
    }
    MutexLock lock(&mu_);
    rows_ += rows;
    worked_seconds_ += worked;
  }

  // The loop's part: begins what has come back.
  void Feed() {
    std::vector<Batch*> back;
    for (int64_t step = 0;; ++step) {
      {
        MutexLock lock(&mu_);
        while (returned_.empty() && !stopped_) came_back_.Wait(&mu_);
        if (stopped_) return;
        back.swap(returned_);
      }
      for (Batch* const batch : back) {
        batch->Begin({.epoch = 0, .step = step % 16});
        queue_.AddBatch(batch);
      }
      back.clear();
    }
  }

  void Stop() {
    queue_.Stop();
    MutexLock lock(&mu_);
    stopped_ = true;
    came_back_.NotifyAll();
  }

  // Once all threads have ended.
  int64_t rows() {
    MutexLock lock(&mu_);
    return rows_;
  }
  double worked_seconds() {
    MutexLock lock(&mu_);
    return worked_seconds_;
  }

 private:
  void Return(Batch* batch) {
    MutexLock lock(&mu_);
    returned_.push_back(batch);
    came_back_.NotifyOne();
  }

  double Spin() const {
    const double begun = ThreadSeconds();
    double now = begun;
    while (now - begun < work_seconds_) now = ThreadSeconds();
    return now - begun;
  }

  const double work_seconds_;
  BatchPlan plan_;
  Budget budget_{"slabs", int64_t{1} << 30};
  std::unique_ptr<Segment> segment_;
  Lane lane_;
  WorkQueue queue_;
  std::vector<std::unique_ptr<Batch>> batches_;
  Mutex mu_;
  CondVar came_back_;
  std::vector<Batch*> returned_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  int64_t rows_ ABSL_GUARDED_BY(mu_) = 0;
  double worked_seconds_ ABSL_GUARDED_BY(mu_) = 0;
};

int Main(int thread_count, int batch_count, double work_microseconds, double seconds) {
  Bench bench(batch_count, work_microseconds * 1e-6);
  std::vector<std::thread> threads;
  const Usage before = UsageNow();
  for (int i = 0; i < thread_count; ++i) threads.emplace_back(&Bench::Take, &bench);
  threads.emplace_back(&Bench::Feed, &bench);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  bench.Stop();
  for (std::thread& thread : threads) thread.join();
  const Usage after = UsageNow();
  const auto rows = static_cast<double>(bench.rows());
  const double cpu_s = after.cpu_s - before.cpu_s - bench.worked_seconds();
  std::printf(
      "{\"threads\": %d, \"batches\": %d, \"work_us\": %g, \"rows_s\": %.0f, "
      "\"cpu_us_per_row\": %.3f, \"context_switches_per_row\": %.3f}\n",
      thread_count, batch_count, work_microseconds, rows / seconds, 1e6 * cpu_s / rows,
      static_cast<double>(after.switches - before.switches) / rows);
  return 0;
}

}  // namespace
}  // namespace batchd

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("ready_queue THREADS BATCHES WORK_MICROSECONDS SECONDS\n", stderr);
    return 64;
  }
  return batchd::Main(std::atoi(argv[1]), std::atoi(argv[2]), std::atof(argv[3]),
                      std::atof(argv[4]));
}
