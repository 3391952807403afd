// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "server/base/log.h"
#include "server/daemon/commands.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/host_limits.h"
#include "server/daemon/pictures.h"
#include "server/session/manager.h"

namespace batchd {
namespace {

constexpr int64_t kBatchSize = 32;

// A trainer that looks at nothing: it takes each batch and gives it back.
class DemoTrainer : public SessionOutput {
 public:
  DemoTrainer(EventLoop* loop, SessionManager* manager) : loop_(loop), manager_(manager) {}

  void Begin(OpenRequest request) {
    start_ = Clock::Real()->Now();
    id_ = manager_->Open(std::move(request), this);
  }

  void OnOpened(const OpenedInfo&) override {}
  void OnSegment(int, const Segment&) override {}
  void OnReady(const ReadyBatch& batch) override {
    // Later, as a trainer's answer would come: not from within the session's own call.
    loop_->Post([this, batch] { OnBatch(batch); });
  }
  void OnFailure(const BatchFailure& failure) override { End(failure.status); }
  void OnExhausted(const ExhaustedInfo& info) override {
    End(absl::ResourceExhaustedError(info.message));
  }
  void OnDraining(int64_t) override {}
  void OnError(const absl::Status& status) override { End(status); }

  const absl::Status& status() const { return status_; }
  int64_t row_count() const { return row_count_; }
  int64_t batch_count() const { return batch_count_; }
  int64_t size_bytes() const { return size_bytes_; }
  double seconds() const { return ToSeconds(end_ - start_); }

 private:
  void OnBatch(const ReadyBatch& batch) {
    if (ended_) return;
    manager_->Take(id_, batch.ref, Duration(0), true);
    row_count_ += batch.rows;
    size_bytes_ += batch.size_bytes;
    ++batch_count_;
    manager_->Release(id_, batch.ref);
    if (batch.last_in_epoch) End(absl::OkStatus());
  }

  void End(const absl::Status& status) {
    if (ended_) return;
    ended_ = true;
    status_ = status;
    end_ = Clock::Real()->Now();
    // The loop runs on until what was made ahead has ended.
    manager_->SetSessionCountListener([this](int count) {
      if (count == 0) loop_->Stop();
    });
    loop_->Post([this] {
      manager_->Close(id_);
      if (manager_->session_count() == 0) loop_->Stop();
    });
  }

  EventLoop* const loop_;
  SessionManager* const manager_;
  SessionId id_ = 0;
  bool ended_ = false;
  absl::Status status_;
  TimePoint start_;
  TimePoint end_;
  int64_t row_count_ = 0;
  int64_t batch_count_ = 0;
  int64_t size_bytes_ = 0;
};

OpenRequest DemoRequest(const std::string& folder) {
  OpenRequest request;
  request.dataset_name = "ImageFolder";
  request.dataset_arguments = {{"root", folder}};
  request.pipeline.columns = {{"image",
                               {{"DecodeImage", Json::object()},
                                {"RandomResizedCrop", {{"size", 224}}},
                                {"RandomHorizontalFlip", Json::object()}}},
                              {"label", {{"Label", Json::object()}}}};
  request.shuffle = Shuffle::kFeistel;
  request.last_batch = LastBatch::kPartial;
  request.global_batch_size = kBatchSize;
  request.job = "demo";
  return request;
}

absl::Status ReadAnEpoch(const std::string& folder) {
  const HostLimits host = ReadHostLimits();
  const MemorySplit split = SplitMemory(host.default_memory_bytes());
  BATCHD_ASSIGN_OR_RETURN(const auto loop, EventLoop::Create());
  Metrics metrics;
  ManagerOptions options;
  options.cpu_threads = host.allowed_cpus();
  options.slab_budget_bytes = split.slab_bytes;
  options.scratch_budget_bytes = split.scratch_bytes;
  options.encoded_budget_bytes = split.encoded_bytes;
  const auto manager = SessionManager::Create(options, loop.get(), &metrics);
  DemoTrainer trainer(loop.get(), manager.get());
  loop->Post([&] { trainer.Begin(DemoRequest(folder)); });
  loop->Run();
  BATCHD_RETURN_IF_ERROR(trainer.status());
  std::cout << fmt::format(
      "one epoch: {} images in {} batches, {} of slabs, {:.2f} s: {:.0f} images/s on {} threads\n",
      trainer.row_count(), trainer.batch_count(), HumanBytes(trainer.size_bytes()),
      trainer.seconds(), static_cast<double>(trainer.row_count()) / trainer.seconds(),
      options.cpu_threads);
  return absl::OkStatus();
}

absl::StatusOr<std::string> MakeTemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "batchd-demo-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return Err(absl::StatusCode::kUnavailable, "{}", ErrnoText("mkdtemp " + pattern, errno));
  }
  return pattern;
}

absl::Status Demo(int64_t count) {
  BATCHD_ASSIGN_OR_RETURN(const std::string folder, MakeTemporaryFolder());
  std::cout << fmt::format("making {} JPEGs in {}\n", count, folder) << std::flush;
  absl::Status status = MakePictures(folder, count);
  if (status.ok()) status = ReadAnEpoch(folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  BATCHD_RETURN_IF_ERROR(status);
  std::cout
      << "\nwith your own pictures, from Python (pip install ./python_client):\n\n"
         "    import batchd\n"
         "    from batchd import transforms as T\n"
         "    loader = batchd.Loader(batchd.ImageFolder(\"data/train\"),\n"
         "        {\"image\": [T.DecodeImage(), T.RandomResizedCrop(224)], \"label\": T.Label()},\n"
         "        batch_size=32, shuffle=True)\n"
         "    for batch in loader: ...\n\n"
         "as a service: batchd serve --listen unix:/tmp/batchd.sock --root data\n";
  return absl::OkStatus();
}

}  // namespace

int RunDemo(const DemoFlags& flags) {
  log::SetQuiet(true);
  if (!flags.make_images.empty()) {
    const absl::Status status = MakePictures(flags.make_images, flags.count);
    if (!status.ok()) return Fail(status);
    std::cout << fmt::format("{} JPEGs in {}\n", flags.count, flags.make_images);
    return kExitOk;
  }
  const absl::Status status = Demo(flags.count);
  return status.ok() ? kExitOk : Fail(status);
}

}  // namespace batchd
