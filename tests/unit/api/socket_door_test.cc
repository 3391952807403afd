// SPDX-License-Identifier: Apache-2.0
#include "server/api/socket_door.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <set>

#include "server/api/peer_watch.h"
#include "tests/support/fake_session_manager.h"
#include "tests/support/loop_thread.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/api/raw_client.h"

namespace batchd {
namespace {

constexpr char kOpen[] = R"({"open": {"dataset": {"name": "ImageFolder"}, "worldSize": 1,
    "pipeline": {"columns": [{"name": "image", "operations": [{"name": "DecodeImage"}]}]},
    "sampling": {"globalBatchSize": "8"}, "prefetch": 4}})";

wire::Record MakeRecord(wire::RecordKind kind, uint32_t slot, uint64_t sequence) {
  wire::Record record{};
  record.kind = static_cast<uint8_t>(kind);
  record.slot = slot;
  record.sequence = sequence;
  return record;
}

int OpenFdCount() {
  int count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

class SocketDoorTest : public testing::Test {
 protected:
  SocketDoorTest() {
    char name[] = "/tmp/batchd-door-XXXXXX";
    folder_ = mkdtemp(name);
    options_.path = folder_ + "/sock";
  }
  ~SocketDoorTest() override {
    loop_.Run([&] { door_.reset(); });
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "the door has left something behind";
  }

  void Listen() {
    loop_.Run([&] {
      auto door = SocketDoor::Listen(options_, loop_.loop(), &manager_);
      ASSERT_OK(door);
      door_ = std::move(*door);
    });
  }
  // A client that has said Hello.
  std::unique_ptr<RawClient> Connect() {
    auto client = std::make_unique<RawClient>(options_.path);
    EXPECT_TRUE(client->SendHello());
    EXPECT_EQ(client->ReceiveHello().version_max, 1);
    return client;
  }
  std::unique_ptr<RawClient> ConnectAndOpen(SessionId id = 1) {
    auto client = Connect();
    client->SendJson(kOpen);
    EXPECT_TRUE(manager_.WaitFor(fmt::format("open {}", id)));
    return client;
  }
  // Runs `fn(output)` of a session on the loop.
  void Say(const std::function<void(SessionOutput*)>& fn, SessionId id = 1) {
    loop_.Run([&] {
      ASSERT_NE(manager_.output(id), nullptr);
      fn(manager_.output(id));
    });
  }

  std::string folder_;
  SocketDoorOptions options_;
  FakeSessionManager manager_;
  LoopThread loop_;
  std::unique_ptr<SocketDoor> door_;
};

// ---- Listening

TEST_F(SocketDoorTest, ASecondDaemonIsToldWhoServes) {
  Listen();

  loop_.Run([&] {
    EXPECT_THAT(SocketDoor::Listen(options_, loop_.loop(), &manager_),
                FailsWith(absl::StatusCode::kAlreadyExists, fmt::format("pid {}", getpid())));
  });

  Connect();  // the first one is unharmed
}

TEST_F(SocketDoorTest, TheSocketOfADeadDaemonIsReplaced) {
  // What kill -9 leaves: a bound socket that nobody listens at, and a lock file without a lock.
  const int dead = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, options_.path.c_str());
  ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(dead);
  std::ofstream(options_.path + ".lock") << "999999999\n";

  Listen();

  Connect();
}

TEST_F(SocketDoorTest, AFileThatIsNoSocketStays) {
  std::ofstream(options_.path) << "precious";

  loop_.Run([&] {
    EXPECT_THAT(SocketDoor::Listen(options_, loop_.loop(), &manager_),
                FailsWith(absl::StatusCode::kAlreadyExists, "no socket"));
  });

  EXPECT_EQ(unlink(options_.path.c_str()), 0);
  unlink((options_.path + ".lock").c_str());
}

TEST_F(SocketDoorTest, APathTooLongIsRefusedWithBothLengths) {
  SocketDoorOptions options;
  options.path = folder_ + "/" + std::string(120, 'x');

  loop_.Run([&] {
    const auto door = SocketDoor::Listen(options, loop_.loop(), &manager_);
    EXPECT_THAT(door, FailsWith(absl::StatusCode::kInvalidArgument, "107"));
    EXPECT_THAT(door, FailsWith(absl::StatusCode::kInvalidArgument,
                                fmt::format("{} bytes", options.path.size())));
  });
}

TEST_F(SocketDoorTest, AMissingFolderIsNamed) {
  SocketDoorOptions options;
  options.path = folder_ + "/none/sock";

  loop_.Run([&] {
    EXPECT_THAT(SocketDoor::Listen(options, loop_.loop(), &manager_),
                FailsWith(absl::StatusCode::kNotFound, options.path));
  });
}

TEST_F(SocketDoorTest, TheSocketsModeFollowsWhoMayConnect) {
  Listen();
  struct stat info;
  ASSERT_EQ(stat(options_.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  loop_.Run([&] { door_.reset(); });
  options_.same_user_only = false;
  Listen();
  ASSERT_EQ(stat(options_.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
}

TEST_F(SocketDoorTest, AConnectionAboveTheLimitHearsWhy) {
  options_.connections_max = 1;
  Listen();
  auto first = Connect();

  auto second = Connect();

  EXPECT_NE(second->ReceiveLastError()["message"].get<std::string>().find("1 connections"),
            std::string::npos);
  first->SendJson(kOpen);
  EXPECT_TRUE(manager_.WaitFor("open 1"));
}

TEST_F(SocketDoorTest, WithoutDescriptorsItWaitsAndThenServes) {
#ifdef BATCHD_UNDER_ASAN
  GTEST_SKIP() << "UBSan's look at a vtable takes descriptors itself, and makes a report without";
#endif
  Listen();
  auto client = std::make_unique<RawClient>(options_.path + "");
  Connect();  // so the first has been accepted too
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int client_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const rlimit none{static_cast<rlim_t>(client_fd), before.rlim_max};
  const Duration cpu_before = [&] {
    Duration cpu;
    loop_.Run([&] { cpu = ThreadCpuTime(); });
    return cpu;
  }();

  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, options_.path.c_str());
  EXPECT_EQ(connect(client_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  wire::Hello hello{wire::kHelloMagic, 1, 1, 0, 0, {}};
  EXPECT_EQ(send(client_fd, &hello, sizeof(hello), 0), 64);
  pollfd answer{client_fd, POLLIN, 0};
  EXPECT_EQ(poll(&answer, 1, 300), 0) << "there was a descriptor left";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);

  EXPECT_EQ(poll(&answer, 1, 20'000), 1);
  loop_.Run([&] {
    EXPECT_LT(ThreadCpuTime() - cpu_before, std::chrono::milliseconds(100)) << "the loop spun";
  });
  close(client_fd);
}

// ---- Hello

TEST_F(SocketDoorTest, AClientFromTheFutureGetsTheVersionsAndTheEnd) {
  Listen();
  RawClient client(options_.path);
  client.SendHello(7, 9);

  const wire::Hello hello = client.ReceiveHello();

  EXPECT_EQ(hello.version_min, wire::kProtocolVersionMin);
  EXPECT_EQ(hello.version_max, wire::kProtocolVersion);
  EXPECT_EQ(client.Receive(), "");
}

TEST_F(SocketDoorTest, AClientThatSpeaksMoreVersionsGetsTheHighestOfBoth) {
  Listen();
  RawClient client(options_.path);
  client.SendHello(0, 9);

  const wire::Hello hello = client.ReceiveHello();

  EXPECT_EQ(hello.version_min, wire::kProtocolVersion);
  EXPECT_EQ(hello.version_max, wire::kProtocolVersion);
}

TEST_F(SocketDoorTest, AStrangerIsToldThatThisIsNotItsSocket) {
  Listen();
  for (const std::string& first : {std::string("GET / HTTP/1.1"), std::string(64, 'H'),
                                   std::string("J"), std::string(90'000, 'x')}) {
    RawClient client(options_.path);
    ASSERT_TRUE(client.Send(first));

    client.ReceiveHello();
    EXPECT_NE(client.ReceiveLastError()["message"].get<std::string>().find("no Hello"),
              std::string::npos);
  }
}

// ---- Messages

TEST_F(SocketDoorTest, AnOpenArrivesAndEverythingThatASessionSaysGoesOut) {
  Listen();
  auto client = ConnectAndOpen();
  EXPECT_EQ(manager_.last_request().dataset_name, "ImageFolder");
  EXPECT_EQ(manager_.last_request().global_batch_size, 8);

  Say([](SessionOutput* output) {
    OpenedInfo info;
    info.session_id = int64_t{1} << 60;
    output->OnOpened(info);
    BatchFailure failure;
    failure.status = SampleErr(SampleReason::kEmpty, "a.jpg has no bytes");
    output->OnFailure(failure);
    output->OnExhausted({4, 4096, 8192, 8000, "release some"});
    output->OnDraining(1500);
    output->OnError(FieldErr("rank", "9 is not in [0, 1)"));
  });

  EXPECT_EQ(client->ReceiveJson()["opened"]["sessionId"], "1152921504606846976");
  EXPECT_EQ(client->ReceiveJson()["failure"]["reason"], "empty");
  EXPECT_EQ(client->ReceiveJson()["exhausted"]["heldSlots"], "4");
  EXPECT_EQ(client->ReceiveJson()["draining"]["deadlineMilliseconds"], 1500);
  const Json error = client->ReceiveLastError();
  EXPECT_EQ(error["code"], 3);
  EXPECT_EQ(error["field"], "rank");
}

TEST_F(SocketDoorTest, ALargeOpenedComesInFragments) {
  Listen();
  auto client = ConnectAndOpen();
  OpenedInfo info;
  for (int i = 0; i < 5000; ++i) {
    info.columns.push_back({fmt::format("column_{}", i), wire::DType::kUint8, {3, 4}, 12});
    info.warnings.push_back(fmt::format("warning {}", i));
  }

  Say([&](SessionOutput* output) {
    output->OnOpened(info);
    output->OnReady({});
  });

  const Json opened = client->ReceiveJson()["opened"];
  EXPECT_GT(client->fragment_count, 5);
  ASSERT_EQ(opened["columns"].size(), 5000u);
  EXPECT_EQ(opened["columns"][4999]["name"], "column_4999");
  EXPECT_EQ(opened["warnings"][4999], "warning 4999");
  EXPECT_EQ(client->ReceiveRecords().size(), 1u);
}

TEST_F(SocketDoorTest, AMessageThatNoFragmentsCanCarryEndsInAnError) {
  Listen();
  auto client = ConnectAndOpen();
  OpenedInfo info;
  info.warnings.assign(3000, std::string(400, 'w'));

  Say([&](SessionOutput* output) { output->OnOpened(info); });

  EXPECT_NE(client->ReceiveLastError()["message"].get<std::string>().find("1048576"),
            std::string::npos);
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(SocketDoorTest, SegmentsComeWithTheirDescriptor) {
  Listen();
  auto client = ConnectAndOpen();
  Budget budget("slabs", 1 << 20);
  auto segment = Segment::Create(3, 8192, &budget);
  ASSERT_OK(segment);
  (*segment)->slab(2)[5] = 77;

  Say([&](SessionOutput* output) { output->OnSegment(0, **segment); });

  const Json message = client->ReceiveJson()["segment"];
  EXPECT_EQ(message["slotCount"], 3);
  EXPECT_EQ(message["slabSizeBytes"], "8192");
  ASSERT_EQ(client->received_fds.size(), 1u);
  void* data = mmap(nullptr, 3 * 8192, PROT_READ, MAP_SHARED, client->received_fds[0], 0);
  ASSERT_NE(data, MAP_FAILED);
  EXPECT_EQ(static_cast<uint8_t*>(data)[2 * 8192 + 5], 77);
  munmap(data, 3 * 8192);
}

TEST_F(SocketDoorTest, QuestionsAreAnswered) {
  Listen();
  auto client = ConnectAndOpen();

  client->SendJson(R"({"query": {"queryId": "7", "sampleNames": {"ordinals": ["1", "0"]}}})");
  client->SendJson(R"({"query": {"queryId": "8", "classNames": {"first": "1"}}})");

  EXPECT_EQ(client->ReceiveJson()["answer"],
            Json::parse(R"({"queryId": "7", "names": ["b.jpg", "a.jpg"]})"));
  EXPECT_EQ(client->ReceiveJson()["answer"]["names"], Json::parse(R"(["b.jpg"])"));
  client->SendJson(R"({"query": {"queryId": "9", "sampleNames": {"ordinals": ["2"]}}})");
  EXPECT_EQ(client->ReceiveLastError()["field"], "query.sample_names.ordinals");
}

TEST_F(SocketDoorTest, SeekAndCloseReachTheSession) {
  Listen();
  auto client = ConnectAndOpen();

  client->SendJson(R"({"seek": {"generation": 3, "position": {"step": "4"}}})");
  EXPECT_TRUE(manager_.WaitFor("seek 1 generation=3 at 0/4"));
  client->SendJson(R"({"close": {}})");

  EXPECT_EQ(client->Receive(), "");
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

// ---- Records

TEST_F(SocketDoorTest, RecordsReachTheSessionInOrderAndAsTheyAre) {
  Listen();
  auto client = ConnectAndOpen();
  wire::Record take = MakeRecord(wire::RecordKind::kTake, 2, 7);
  take.waited_ns = 5;
  take.flags = wire::kWasReady;
  // An old generation is the client's to release: it passes like any other.
  wire::Record release = MakeRecord(wire::RecordKind::kRelease, 2, 7);
  release.segment = 1;

  client->SendRecords({take, release});

  EXPECT_TRUE(manager_.WaitFor("release 1 1/2#7"));
  EXPECT_EQ(manager_.events(), (std::vector<std::string>{"open 1", "take 1 0/2#7 waited=5 ready=1",
                                                         "release 1 1/2#7"}));
}

TEST_F(SocketDoorTest, AReadyBatchComesAsARecord) {
  Listen();
  auto client = ConnectAndOpen();
  ReadyBatch batch;
  batch.ref = {1, 2, 3};
  batch.rows = 8;

  Say([&](SessionOutput* output) { output->OnReady(batch); });

  const auto records = client->ReceiveRecords();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].sequence, 3u);
  EXPECT_EQ(records[0].rows, 8u);
}

TEST_F(SocketDoorTest, NothingIsHandledAfterTheSessionHasFailed) {
  manager_.on_take = [&](SessionId id, const SlotRef&) {
    manager_.output(id)->OnError(
        Err(absl::StatusCode::kFailedPrecondition, "slot 2 is not announced"));
  };
  Listen();
  auto client = ConnectAndOpen();

  client->SendRecords(
      {MakeRecord(wire::RecordKind::kTake, 2, 7), MakeRecord(wire::RecordKind::kRelease, 2, 7)});

  EXPECT_EQ(client->ReceiveLastError()["message"], "slot 2 is not announced");
  EXPECT_TRUE(manager_.WaitFor("close 1"));
  for (const std::string& event : manager_.events()) EXPECT_EQ(event.find("release"), event.npos);
}

TEST_F(SocketDoorTest, ASlowClientGetsEveryRecordOnceItReads) {
  Listen();
  auto client = ConnectAndOpen();
  constexpr uint64_t kCount = 5000;

  Say([&](SessionOutput* output) {
    for (uint64_t i = 0; i < kCount; ++i) {
      ReadyBatch batch;
      batch.ref.sequence = i;
      output->OnReady(batch);
    }
  });

  uint64_t next = 0;
  size_t most = 0;
  while (next < kCount && !HasFailure()) {
    const auto records = client->ReceiveRecords();
    most = std::max(most, records.size());
    for (const wire::Record& record : records) ASSERT_EQ(record.sequence, next++);
  }
  EXPECT_EQ(most, wire::kRecordsPerDatagramMax);
}

TEST_F(SocketDoorTest, AClientThatAsksAndNeverReadsIsNotReadFrom) {
  manager_.names = {std::string(40'000, 'n')};
  Listen();
  auto client = ConnectAndOpen();
  const std::string query = R"({"query": {"sampleNames": {"ordinals": ["0"]}}})";

  // Its own send buffer fills up, because the daemon stops reading: no answer is made in advance.
  timeval patience{0, 300'000};
  setsockopt(client->fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  int sent_count = 0;
  while (sent_count < 10'000 && ForEachFragment(query, [&](std::string_view datagram, bool) {
                                  return client->Send(datagram) ? absl::OkStatus()
                                                                : absl::UnavailableError("full");
                                }).ok()) {
    ++sent_count;
  }
  EXPECT_LT(sent_count, 10'000);

  for (int i = 0; i < sent_count && !HasFailure(); ++i) {
    ASSERT_EQ(client->ReceiveJson()["answer"]["names"][0].get<std::string>().size(), 40'000u);
  }
}

// ---- Faults of a client

TEST_F(SocketDoorTest, EveryMalformedDatagramEndsInAnErrorThatSaysWhatIsWrong) {
  Listen();
  wire::FragmentHeader oversized{wire::kJsonByte, 0, 0, 2'000'000};
  wire::FragmentHeader unfinished{wire::kJsonByte, 0, 0, 5};
  const std::string unfinished_text(reinterpret_cast<const char*>(&unfinished), 8);
  const std::string records65(size_t{65} * 64, '\x02');
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{std::string(reinterpret_cast<const char*>(&oversized), 8) + "x"}, "2000000"},
      {{std::string("J\x01\0\0\x02\0\0\0[]", 10)}, "no ClientMessage"},
      {{"J"}, "no content"},
      {{std::string(wire::kFragmentBytesMax + 9, 'J')}, "exceeds the limit"},
      {{std::string(200'000, 'J')}, "exceeds the limit"},
      {{std::string(63, '\x02')}, "63 bytes"},
      {{records65}, "4160 bytes"},
      {{std::string(64, '\x01')}, "kind 1"},
      {{std::string(64, '\x09')}, "kind 9"},
      {{std::string(64, '\x02')}, "before Open"},
      {{std::string(64, '\x03')}, "before Open"},
      {{unfinished_text + "{", std::string(64, '\x03')}, "between the fragments"},
      {{std::string("H") + std::string(63, '\0')}, "kind 72"},
  };
  for (const auto& [datagrams, words] : cases) {
    auto client = Connect();
    for (const std::string& datagram : datagrams) ASSERT_TRUE(client->Send(datagram));

    const Json error = client->ReceiveLastError();

    EXPECT_NE(error["message"].get<std::string>().find(words), std::string::npos) << error.dump();
  }
  Connect();  // the door itself is well
}

TEST_F(SocketDoorTest, MessagesOutOfTurnEndTheConnection) {
  Listen();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"seek": {"generation": 1}})", "before Open"},
      {R"({"query": {}})", "before Open"},
      {R"({})", "kind that this daemon"},
      {R"({"fromTheFuture": {}})", "kind that this daemon"},
      {R"({"open": {}})", "dataset.name"}};
  for (const auto& [text, words] : cases) {
    auto client = Connect();
    client->SendJson(text);

    EXPECT_NE(client->ReceiveLastError()["message"].get<std::string>().find(words),
              std::string::npos);
  }
}

TEST_F(SocketDoorTest, ASecondOpenEndsTheSession) {
  Listen();
  auto client = ConnectAndOpen();

  client->SendJson(kOpen);

  EXPECT_NE(client->ReceiveLastError()["message"].get<std::string>().find("second Open"),
            std::string::npos);
  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(SocketDoorTest, ASeekThatDoesNotGrowIsAFieldError) {
  Listen();
  auto client = ConnectAndOpen();

  client->SendJson(R"({"seek": {"generation": -1}})");

  EXPECT_EQ(client->ReceiveLastError()["field"], "seek.generation");
}

TEST_F(SocketDoorTest, DescriptorsOfAClientAreClosed) {
  Listen();
  auto client = ConnectAndOpen();
  const int before = OpenFdCount();
  const wire::Record record = MakeRecord(wire::RecordKind::kTake, 0, 1);
  for (int i = 0; i < 20; ++i) {
    alignas(cmsghdr) char control[CMSG_SPACE(200 * sizeof(int))] = {};
    iovec part{const_cast<wire::Record*>(&record), sizeof(record)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(200 * sizeof(int));
    const std::vector<int> fds(200, 0);
    std::memcpy(CMSG_DATA(header), fds.data(), 200 * sizeof(int));
    ASSERT_EQ(sendmsg(client->fd(), &message, 0), 64);
  }

  EXPECT_TRUE(manager_.WaitFor("take 1 0/0#1 waited=0 ready=0", 20));
  EXPECT_EQ(OpenFdCount(), before);
}

// ---- The end of a client

TEST_F(SocketDoorTest, EndOfFileClosesTheSessionAfterWhatWasSaid) {
  int count = -1;
  Listen();
  loop_.Run([&] { door_->SetConnectionCountListener([&](int n) { count = n; }); });
  auto client = ConnectAndOpen();
  const int before = OpenFdCount();

  client->SendRecords({MakeRecord(wire::RecordKind::kRelease, 0, 1)});
  client->Hangup();

  EXPECT_TRUE(manager_.WaitFor("close 1"));
  EXPECT_EQ(manager_.events(), (std::vector<std::string>{"open 1", "release 1 0/0#1", "close 1"}));
  loop_.Run([] {});  // the pass that closed the session has ended
  loop_.Run([&] {
    EXPECT_EQ(count, 0);
    EXPECT_EQ(door_->connection_count(), 0);
  });
  EXPECT_LT(OpenFdCount(), before);
}

TEST_F(SocketDoorTest, AClientThatVanishesWhileItIsSpokenToIsNoFault) {
  Listen();
  auto client = ConnectAndOpen();
  loop_.Run([&] {
    // On the loop, so that the end of file cannot be seen before the send fails.
    client->Hangup();
    manager_.output(1)->OnReady({});
    manager_.output(1)->OnReady({});
    manager_.output(1)->OnError(absl::InternalError("too late"));
  });

  EXPECT_TRUE(manager_.WaitFor("close 1"));
}

TEST_F(SocketDoorTest, TheEndOfTheDoorClosesEverySession) {
  Listen();
  auto first = ConnectAndOpen(1);
  auto second = ConnectAndOpen(2);

  loop_.Run([&] { door_.reset(); });

  EXPECT_TRUE(manager_.WaitFor("close 1"));
  EXPECT_TRUE(manager_.WaitFor("close 2"));
  EXPECT_EQ(first->Receive(), "");
}

// A trainer that dies while a child of it holds the socket: no end of file comes. Returns whether
// the session was closed before the child let go.
class PeerWatchTest : public SocketDoorTest, public testing::WithParamInterface<PeerWatch> {
 protected:
  void RunTrainerWithOrphan() {
    options_.peer_watch = GetParam();
    Listen();
    int hold[2];  // the orphan lives until the test closes hold[1]
    ASSERT_EQ(pipe2(hold, O_CLOEXEC), 0);
    const pid_t trainer = fork();
    if (trainer == 0) {
      close(hold[1]);
      RunChild(hold[0]);
    }
    close(hold[0]);
    hold_fd_ = hold[1];
    EXPECT_TRUE(manager_.WaitFor("open 1"));
    int status;
    ASSERT_EQ(waitpid(trainer, &status, 0), trainer);
  }

  // Async-signal-safe calls only, but for what the parent's other threads cannot hold.
  [[noreturn]] void RunChild(int hold_fd) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, options_.path.data(), options_.path.size());
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) _exit(1);
    const wire::Hello hello{wire::kHelloMagic, 1, 1, 0, 0, {}};
    char buffer[sizeof(wire::FragmentHeader) + sizeof(kOpen)];
    wire::FragmentHeader header{wire::kJsonByte, 1, 0, sizeof(kOpen) - 1};
    std::memcpy(buffer, &header, sizeof(header));
    std::memcpy(buffer + sizeof(header), kOpen, sizeof(kOpen) - 1);
    if (send(fd, &hello, sizeof(hello), 0) != 64) _exit(2);
    if (recv(fd, &header, sizeof(header), 0) <= 0) _exit(3);
    if (fork() == 0) {
      char byte;
      (void)!read(hold_fd, &byte, 1);
      _exit(0);
    }
    if (send(fd, buffer, sizeof(header) + sizeof(kOpen) - 1, 0) <= 0) _exit(4);
    _exit(0);
  }

  int hold_fd_ = -1;
};

TEST_P(PeerWatchTest, SeesThatTheTrainerIsDead) {
  RunTrainerWithOrphan();

  if (GetParam() == PeerWatch::kEndOfFile) {
    loop_.Run([] {});
    EXPECT_EQ(manager_.events(), std::vector<std::string>{"open 1"});
    close(std::exchange(hold_fd_, -1));
  }
  EXPECT_TRUE(manager_.WaitFor("close 1"));

  if (hold_fd_ >= 0) close(hold_fd_);
}

INSTANTIATE_TEST_SUITE_P(Ways, PeerWatchTest,
                         testing::Values(PeerWatch::kBest, PeerWatch::kPeerPidfd,
                                         PeerWatch::kPidfdOpen, PeerWatch::kEndOfFile));

TEST(PeerWatcherTest, SaysWhichWayItTook) {
  LoopThread loop;
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);

  loop.Run([&] {
    EXPECT_EQ(PeerWatcher(fds[0], PeerWatch::kPidfdOpen, loop.loop(), [] {}).way(),
              PeerWatch::kPidfdOpen);
    EXPECT_EQ(PeerWatcher(fds[0], PeerWatch::kEndOfFile, loop.loop(), [] {}).way(),
              PeerWatch::kEndOfFile);
    EXPECT_NE(PeerWatcher(fds[0], PeerWatch::kBest, loop.loop(), [] {}).way(), PeerWatch::kBest);
  });

  close(fds[0]);
  close(fds[1]);
}

}  // namespace
}  // namespace batchd
