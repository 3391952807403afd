// SPDX-License-Identifier: Apache-2.0
//
// The socket door over the real manager: trainers that come, take batches from shared memory and
// go, politely or not, at any moment.

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <deque>
#include <map>
#include <random>

#include "proto/shm/slab.h"
#include "server/api/socket_door.h"
#include "server/base/sync.h"
#include "tests/support/loop_thread.h"
#include "tests/support/picture_folder.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/api/raw_client.h"

namespace batchd {
namespace {

using Contents = std::map<std::pair<uint64_t, uint64_t>, std::string>;

int OpenFdCount() {
  int count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

// A trainer on the data socket.
class SocketTrainer {
 public:
  explicit SocketTrainer(const std::string& path) : client_(path) {}
  ~SocketTrainer() { Hangup(); }

  // Goes without a word.
  void Hangup() {
    for (const auto& [data, size] : segments_) munmap(data, size);
    segments_.clear();
    client_.Hangup();
  }
  void Hello() {
    EXPECT_TRUE(client_.SendHello());
    EXPECT_EQ(client_.ReceiveHello().version_max, 1);
  }
  void SendOpen(const std::string& root) {
    client_.SendJson(fmt::format(
        R"({{"open": {{"dataset": {{"name": "ImageFolder", "arguments": {{"root": "{}"}}}},
             "pipeline": {{"columns": [{{"name": "image", "operations": [
                 {{"name": "DecodeImage",
                   "arguments": {{"max_pixels": 10000, "max_encoded_bytes": 100000}}}},
                 {{"name": "RandomResizedCrop", "arguments": {{"size": 8}}}}]}}]}},
             "sampling": {{"globalBatchSize": "5", "seed": "9"}},
             "worldSize": 1, "prefetch": 2}}}})",
        root));
  }
  void SendClose() { client_.SendJson(R"({"close": {}})"); }
  void Seek(int generation, int epoch, int step) {
    generation_ = static_cast<uint32_t>(generation);
    client_.SendJson(fmt::format(
        R"({{"seek": {{"generation": {}, "position": {{"epoch": "{}", "step": "{}"}}}}}})",
        generation, epoch, step));
  }
  // Waits for Opened and the first segment.
  void AwaitOpened() {
    while (segments_.empty()) Hear();
  }
  // The next batch, taken; batches of older generations go back unseen.
  wire::Record Next() {
    for (;;) {
      while (ready_.empty()) Hear();
      const wire::Record record = ready_.front();
      ready_.pop_front();
      if (record.generation != generation_) {
        Release(record);
        continue;
      }
      Send(wire::RecordKind::kTake, record);
      return record;
    }
  }
  void Release(const wire::Record& record) { Send(wire::RecordKind::kRelease, record); }
  std::string Content(const wire::Record& record) const {
    const auto& [data, size] = segments_.at(record.segment);
    const uint8_t* slab = static_cast<const uint8_t*>(data) + record.slot * slab_size_bytes_;
    wire::SlabHeader header;
    std::memcpy(&header, slab, sizeof(header));
    return {reinterpret_cast<const char*>(slab), header.used_size_bytes};
  }
  RawClient& raw() { return client_; }

 private:
  void Send(wire::RecordKind kind, wire::Record record) {
    record.kind = static_cast<uint8_t>(kind);
    client_.SendRecords({record});
  }
  void Hear() {
    const std::string bytes = client_.Receive();
    ASSERT_FALSE(bytes.empty()) << "the daemon has hung up";
    if (static_cast<uint8_t>(bytes[0]) != wire::kJsonByte) {
      ready_.resize(ready_.size() + bytes.size() / sizeof(wire::Record));
      for (size_t i = 0, n = bytes.size() / sizeof(wire::Record); i < n; ++i) {
        std::memcpy(&ready_[ready_.size() - n + i], &bytes[i * sizeof(wire::Record)],
                    sizeof(wire::Record));
      }
      return;
    }
    MessageAssembler assembler;
    const auto whole = assembler.Add(bytes);
    ASSERT_TRUE(whole.ok() && *whole);
    const Json message = Json::parse(assembler.message());
    ASSERT_FALSE(message.contains("error")) << message.dump();
    if (!message.contains("segment")) return;
    slab_size_bytes_ = std::stoull(message["segment"]["slabSizeBytes"].get<std::string>());
    const size_t size = slab_size_bytes_ * message["segment"]["slotCount"].get<size_t>();
    void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, client_.received_fds.back(), 0);
    ASSERT_NE(data, MAP_FAILED);
    segments_.push_back({data, size});
  }

  RawClient client_;
  uint32_t generation_ = 0;
  size_t slab_size_bytes_ = 0;
  std::vector<std::pair<void*, size_t>> segments_;
  std::deque<wire::Record> ready_;
};

class SocketSessionTest : public testing::Test {
 protected:
  SocketSessionTest() {
    options_.path = pictures_.root() + ".sock";
    manager_options_.cpu_threads = 2;
    manager_options_.reader_threads = 2;
    manager_options_.slab_budget_bytes = int64_t{64} << 20;
    manager_options_.encoded_budget_bytes = int64_t{1} << 20;
    manager_options_.scratch_budget_bytes = int64_t{64} << 20;
    manager_options_.nice = 0;
    loop_.Run([&] {
      manager_ = SessionManager::Create(manager_options_, loop_.loop(), &metrics_);
      manager_->SetSessionCountListener([this](int count) { Count(&session_count_, count); });
      door_ = SocketDoor::Listen(options_, loop_.loop(), manager_.get()).value();
      door_->SetConnectionCountListener([this](int count) { Count(&connection_count_, count); });
    });
  }
  ~SocketSessionTest() override {
    loop_.Run([&] { door_.reset(); });  // closes every connection and its session
    AwaitNobody(/*connections=*/false);
    loop_.Run([&] { manager_.reset(); });
  }

  void Count(int* counter, int count) {
    MutexLock lock(&mu_);
    *counter = count;
    changed_.NotifyAll();
  }
  // Waits until no session is left, and its memory neither.
  void AwaitNobody(bool connections = true) {
    {
      const auto deadline = Clock::Real()->Now() + std::chrono::seconds(30);
      MutexLock lock(&mu_);
      while (session_count_ > 0 || (connections && connection_count_ > 0)) {
        ASSERT_TRUE(changed_.WaitUntil(&mu_, deadline))
            << session_count_ << " sessions, " << connection_count_ << " connections";
      }
    }
    std::promise<void> looked;  // behind the freeing of segments on the control thread
    loop_.Run([&] { manager_->Describe({}, [&](const auto&) { looked.set_value(); }); });
    looked.get_future().wait();
    loop_.Run([&] { EXPECT_EQ(manager_->slab_budget().used_bytes(), 0); });
  }
  std::unique_ptr<SocketTrainer> Connect() {
    return std::make_unique<SocketTrainer>(options_.path);
  }
  std::unique_ptr<SocketTrainer> Open() {
    auto trainer = Connect();
    trainer->Hello();
    trainer->SendOpen(pictures_.root());
    trainer->AwaitOpened();
    return trainer;
  }
  // The first `count` batches.
  Contents FirstBatches(int count) {
    Contents contents;
    auto trainer = Open();
    for (int i = 0; i < count; ++i) {
      const wire::Record record = trainer->Next();
      contents[{record.epoch, record.step}] = trainer->Content(record);
      trainer->Release(record);
    }
    return contents;
  }

  PictureFolder pictures_{23};
  SocketDoorOptions options_;
  ManagerOptions manager_options_;
  Metrics metrics_;
  LoopThread loop_;
  std::unique_ptr<SessionManager> manager_;
  std::unique_ptr<SocketDoor> door_;
  Mutex mu_;
  CondVar changed_;
  int session_count_ = 0, connection_count_ = 0;
};

TEST_F(SocketSessionTest, EverySessionAtAnAddressSeesTheSameBytes) {
  const Contents expected = FirstBatches(12);

  auto trainer = Open();
  trainer->Seek(1, 1, 2);

  for (int step = 2; step < 5; ++step) {
    const wire::Record record = trainer->Next();
    EXPECT_EQ(record.epoch, 1u);
    EXPECT_EQ(record.step, static_cast<uint64_t>(step));
    EXPECT_EQ(trainer->Content(record), expected.at({1, record.step}));
    trainer->Release(record);
  }
}

TEST_F(SocketSessionTest, AWildReleaseEndsTheSessionWithItsReason) {
  auto trainer = Open();
  wire::Record record = trainer->Next();
  record.sequence += 100;

  trainer->Release(record);

  std::string last;
  for (std::string bytes; !(bytes = trainer->raw().Receive()).empty();) last = bytes;
  EXPECT_NE(last.find("RELEASE"), std::string::npos) << last;
}

TEST_F(SocketSessionTest, TwoHundredSessionsHalfOfThemCutOffLeaveNothing) {
  const Contents expected = FirstBatches(20);
  AwaitNobody();
  const int fds_before = OpenFdCount();
  std::mt19937 random(11);
  std::deque<std::unique_ptr<SocketTrainer>> open;

  for (int i = 0; i < 200; ++i) {
    auto trainer = Connect();
    const uint32_t stage = random() % 8;  // up to where it gets before it is kept or cut off
    if (stage >= 1) trainer->Hello();
    if (stage >= 2) trainer->SendOpen(pictures_.root());
    if (stage >= 3) trainer->AwaitOpened();
    for (uint32_t step = 4; step <= stage; ++step) {
      if (step == 6) trainer->Seek(1, static_cast<int>(random() % 3), 0);
      const wire::Record record = trainer->Next();
      EXPECT_EQ(trainer->Content(record), expected.at({record.epoch, record.step}));
      if (random() % 2 == 0) trainer->Release(record);
    }
    if (i % 2 == 1 && stage >= 2) {
      trainer->SendClose();
      while (!trainer->raw().Receive().empty()) {
      }
    }
    open.push_back(std::move(trainer));
    if (open.size() > 20) open.erase(open.begin() + static_cast<ptrdiff_t>(random() % 20));
  }
  open.clear();

  AwaitNobody();
  EXPECT_EQ(OpenFdCount(), fds_before);
}

TEST_F(SocketSessionTest, AClosedSessionEndsThoughAChildOfTheTrainerHoldsItsSocket) {
  auto trainer = Open();
  const wire::Record record = trainer->Next();
  EXPECT_EQ(record.step, 0u);
  // A process of the trainer that lives on, with the same descriptor; it only waits.
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(pipe_fds[1]);
    _exit(read(pipe_fds[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(pipe_fds[0]);

  trainer->SendClose();
  trainer->Hangup();

  AwaitNobody();
  close(pipe_fds[1]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(SocketSessionTest, TheDoorMayGoWithSessionsInEveryStage) {
  std::vector<std::unique_ptr<SocketTrainer>> trainers;
  for (int i = 0; i < 24; ++i) {
    trainers.push_back(Connect());
    if (i % 4 >= 1) trainers.back()->Hello();
    if (i % 4 >= 2) trainers.back()->SendOpen(pictures_.root());
    if (i % 4 >= 3) {
      trainers.back()->AwaitOpened();
      trainers.back()->Next();
    }
  }

  loop_.Run([&] { door_.reset(); });

  AwaitNobody(/*connections=*/false);
  for (const auto& trainer : trainers) {
    while (!trainer->raw().Receive().empty()) {
    }
  }
}

}  // namespace
}  // namespace batchd
