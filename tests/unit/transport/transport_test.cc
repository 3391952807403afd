// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <vector>

#include "server/transport/grpc_transport.h"
#include "server/transport/shm_transport.h"
#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

ReadyBatch MakeBatch(uint64_t sequence) {
  ReadyBatch batch;
  batch.ref = {3, 5, sequence};
  batch.generation = 2;
  batch.address = {7, 11, 1, 4};
  batch.rows = 16;
  batch.valid_rows = 15;
  batch.last_in_epoch = true;
  return batch;
}

class SocketPair {
 public:
  SocketPair() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds_), 0);
  }
  ~SocketPair() {
    close(fds_[0]);
    CloseOther();
  }
  void CloseOther() {
    if (fds_[1] >= 0) close(std::exchange(fds_[1], -1));
  }
  int own() const { return fds_[0]; }
  int other() const { return fds_[1]; }

  // One datagram from the other end; empty if none is there.
  std::string Read() {
    std::string bytes(100'000, '\0');
    const ssize_t size = recv(fds_[1], bytes.data(), bytes.size(), 0);
    bytes.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return bytes;
  }

 private:
  int fds_[2];
};

TEST(ReadyRecordTest, CarriesWhatTheBatchHas) {
  const wire::Record record = ReadyRecord(MakeBatch(9));

  EXPECT_EQ(record.kind, static_cast<uint8_t>(wire::RecordKind::kReady));
  EXPECT_EQ(record.flags, wire::kLastInEpoch);
  EXPECT_EQ(SlotOf(record), (SlotRef{3, 5, 9}));
  EXPECT_EQ(record.generation, 2u);
  EXPECT_EQ(record.rows, 16u);
  EXPECT_EQ(record.valid_rows, 15u);
  EXPECT_EQ(record.epoch, 7u);
  EXPECT_EQ(record.step, 11u);
  EXPECT_EQ(record.rank, 1u);
  EXPECT_EQ(record.world_size, 4u);
}

TEST(ReadyRecordTest, ASlotOrTimeBeyondItsTypeStaysHarmless) {
  wire::Record record{};
  record.slot = 0xFFFF'FFFF;
  record.waited_ns = ~uint64_t{0};

  EXPECT_EQ(SlotOf(record).slot, -1);
  EXPECT_EQ(WaitedOf(record), Duration::max());
}

TEST(DatagramQueueTest, RecordsThatWaitTravelTogetherAndInOrder) {
  SocketPair pair;
  DatagramQueue queue(pair.own());
  const std::string filler(60'000, 'x');
  while (queue.empty()) ASSERT_OK(queue.Push(filler));
  for (uint64_t i = 0; i < 100; ++i) ASSERT_OK(queue.Push(ReadyRecord(MakeBatch(i))));
  ASSERT_OK(queue.Push("the end"));

  std::vector<size_t> record_counts;
  std::vector<uint64_t> sequences;
  std::string last;
  for (int i = 0; i < 1000 && last != "the end"; ++i) {
    ASSERT_OK(queue.Flush());
    for (std::string bytes = pair.Read(); !bytes.empty(); bytes = pair.Read()) {
      last = bytes;
      if (bytes[0] != static_cast<char>(wire::RecordKind::kReady)) continue;
      record_counts.push_back(bytes.size() / sizeof(wire::Record));
      for (size_t at = 0; at < bytes.size(); at += sizeof(wire::Record)) {
        wire::Record record;
        std::memcpy(&record, bytes.data() + at, sizeof(record));
        sequences.push_back(record.sequence);
      }
    }
  }

  std::vector<uint64_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sequences, all);
  EXPECT_EQ(record_counts, (std::vector<size_t>{64, 36}));
  EXPECT_EQ(last, "the end");
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.size_bytes(), 0u);
}

TEST(DatagramQueueTest, AWaitingDescriptorOutlivesItsOwner) {
  SocketPair pair;
  DatagramQueue queue(pair.own());
  while (queue.empty()) ASSERT_OK(queue.Push(std::string(60'000, 'x')));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);

  ASSERT_OK(queue.Push("with a descriptor", ends[1]));
  close(ends[1]);
  while (!queue.empty()) {
    while (recv(pair.other(), nullptr, 0, MSG_TRUNC) > 0) {
      // Descriptors of a datagram that is read without room for them are closed by the kernel.
    }
    ASSERT_OK(queue.Flush());
  }
  while (recv(pair.other(), nullptr, 0, MSG_TRUNC) > 0) {
  }

  // All copies of the writing end are gone again: the pipe is at its end, not merely empty.
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

TEST(DatagramQueueTest, APeerThatIsGoneIsAnErrorAndNoSignal) {
  SocketPair pair;
  DatagramQueue queue(pair.own());
  pair.CloseOther();

  EXPECT_THAT(queue.Push("x"), FailsWith(absl::StatusCode::kUnavailable, "cannot be reached"));
}

TEST(ChunkCursorTest, CutsAnImageIntoPiecesOfAtMostOneMebibyte) {
  std::vector<uint8_t> slab(static_cast<size_t>(2 * kChunkBytesMax + 5));
  std::iota(slab.begin(), slab.end(), 0);
  ReadyBatch batch = MakeBatch(9);
  batch.slab = slab.data();
  batch.size_bytes = static_cast<int64_t>(slab.size());
  ChunkCursor cursor(batch);

  std::vector<size_t> sizes;
  std::vector<uint8_t> joined;
  while (!cursor.done()) {
    const ChunkCursor::Chunk chunk = cursor.Next();
    EXPECT_EQ(chunk.sequence, 9u);
    EXPECT_EQ(chunk.offset_bytes, static_cast<int64_t>(joined.size()));
    sizes.push_back(chunk.bytes.size());
    joined.insert(joined.end(), chunk.bytes.begin(), chunk.bytes.end());
  }

  EXPECT_EQ(sizes, (std::vector<size_t>{1 << 20, 1 << 20, 5}));
  EXPECT_EQ(joined, slab);
}

}  // namespace
}  // namespace batchd
