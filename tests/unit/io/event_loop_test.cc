// SPDX-License-Identifier: Apache-2.0
#include "server/io/event_loop.h"

#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

std::unique_ptr<EventLoop> MakeLoop() {
  auto loop = EventLoop::Create();
  return loop.ok() ? std::move(loop).value() : nullptr;
}

TEST(EventLoopTest, RunsWhatOtherThreadsPostInOrder) {
  auto loop = MakeLoop();
  std::vector<int> order;
  std::thread poster([&] {
    for (int i = 0; i < 1000; ++i) {
      loop->Post([&order, i] { order.push_back(i); });
    }
    loop->Post([&] { loop->Stop(); });
  });

  loop->Run();
  poster.join();

  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
}

TEST(EventLoopTest, ATimerThatIsDestroyedNeverFires) {
  auto loop = MakeLoop();
  bool fired = false;
  auto dropped = loop->After(std::chrono::milliseconds(1), [&] { fired = true; });
  dropped.reset();
  auto last = loop->After(std::chrono::milliseconds(5), [&] { loop->Stop(); });

  loop->Run();

  EXPECT_FALSE(fired);
  last.reset();
}

TEST(EventLoopTest, ATimerMayDestroyItselfInItsCallback) {
  auto loop = MakeLoop();
  std::unique_ptr<EventLoop::Timer> timer;
  timer = loop->After(std::chrono::milliseconds(0), [&] {
    timer.reset();
    loop->Stop();
  });

  loop->Run();

  EXPECT_EQ(timer, nullptr);
}

TEST(EventLoopTest, AWatchTellsWhenASocketIsReadable) {
  auto loop = MakeLoop();
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
  char byte = 0;
  auto watch = loop->WatchFd(fds[0], [&](bool readable, bool) {
    if (readable && read(fds[0], &byte, 1) == 1) loop->Stop();
  });
  watch->SetWanted(true, false);
  loop->Post([&] { ASSERT_EQ(write(fds[1], "x", 1), 1); });

  loop->Run();

  EXPECT_EQ(byte, 'x');
  watch.reset();
  close(fds[0]);
  close(fds[1]);
}

TEST(EventLoopTest, ASignalComesToTheLoop) {
  auto loop = MakeLoop();
  auto watch = loop->WatchSignal(SIGUSR1, [&] { loop->Stop(); });
  loop->Post([] { kill(getpid(), SIGUSR1); });

  loop->Run();
  watch.reset();
}

}  // namespace
}  // namespace batchd
