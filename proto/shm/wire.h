// SPDX-License-Identifier: Apache-2.0
//
// What travels on the data socket, byte for byte.
//
// The data socket is SOCK_SEQPACKET: one send is one datagram. Its first byte says what it is:
//
//   kHelloByte     one Hello, the first datagram each way.
//   kJsonByte      a FragmentHeader and at most kFragmentBytesMax bytes of a proto3-JSON
//                  ClientMessage or ServerMessage (proto/batchd/v1/session.proto). A message of
//                  more bytes comes in several fragments, in order, and nothing in between.
//                  File descriptors ride on the first fragment of the message that names them.
//   1, 2, 3        one to kRecordsPerDatagramMax Records, each of 64 bytes.
//
// All integers are little-endian. There are no pointers. A field that is reserved is sent as 0 and
// not read. A change of any offset raises kProtocolVersion.

#pragma once

#include <cstddef>
#include <cstdint>

namespace batchd::wire {

inline constexpr uint64_t kHelloMagic = 0x3164'6863'7461'6248;  // "Hbatchd1" in memory order
inline constexpr uint8_t kHelloByte = 'H';
inline constexpr uint8_t kJsonByte = 'J';

// The versions that this build speaks; both ends take the highest that both have.
inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr uint16_t kProtocolVersionMin = 1;

inline constexpr size_t kFragmentBytesMax = 64 * 1024;
inline constexpr size_t kMessageBytesMax = 1024 * 1024;
inline constexpr size_t kRecordsPerDatagramMax = 64;

// The first datagram each way. The daemon answers with the version it has chosen in both version
// fields, or, if there is none, with its own range, and then closes.
struct Hello {
  uint64_t magic;        // kHelloMagic
  uint16_t version_min;  // lowest version that the sender speaks
  uint16_t version_max;  // highest
  uint32_t reserved0;
  uint64_t features;  // bit set; none is defined yet
  uint8_t reserved[40];
};
static_assert(sizeof(Hello) == 64);
static_assert(offsetof(Hello, version_min) == 8);
static_assert(offsetof(Hello, version_max) == 10);
static_assert(offsetof(Hello, features) == 16);

struct FragmentHeader {
  uint8_t kind;  // kJsonByte
  uint8_t last;  // 1 on the last fragment of a message, else 0
  uint16_t reserved;
  uint32_t message_size_bytes;  // of the whole message, the same on each of its fragments
};
static_assert(sizeof(FragmentHeader) == 8);
static_assert(offsetof(FragmentHeader, message_size_bytes) == 4);

enum class RecordKind : uint8_t {
  kReady = 1,    // daemon to client: a batch lies in a slot
  kTake = 2,     // client to daemon: next() has returned this batch
  kRelease = 3,  // client to daemon: the slot may be filled again
};

inline constexpr uint8_t kLastInEpoch = 1;  // Record::flags of kReady: the epoch's last step
inline constexpr uint8_t kWasReady = 1;     // Record::flags of kTake: it did not have to wait

// A slot is named by (segment, slot); an announcement of it by `sequence`, which never repeats in a
// session. kTake and kRelease repeat segment, slot and sequence of the kReady that they answer; one
// that does not match what the slot holds closes the session.
struct Record {
  uint8_t kind;   // RecordKind
  uint8_t flags;  // kLastInEpoch, kWasReady
  uint16_t segment;
  uint32_t slot;
  uint64_t sequence;
  uint32_t generation;  // kReady: that of the last Open or Seek; an older one is released unseen
  uint32_t rows;        // kReady: rows in the batch, 0 to the slab's capacity
  uint32_t valid_rows;  // kReady: rows whose status is ok or substituted
  uint32_t rank;        // kReady
  uint64_t epoch;       // kReady
  uint64_t step;        // kReady
  uint32_t world_size;  // kReady
  uint32_t reserved0;
  uint64_t waited_ns;  // kTake: how long next() waited, in nanoseconds
};
static_assert(sizeof(Record) == 64);
static_assert(offsetof(Record, flags) == 1);
static_assert(offsetof(Record, segment) == 2);
static_assert(offsetof(Record, slot) == 4);
static_assert(offsetof(Record, sequence) == 8);
static_assert(offsetof(Record, generation) == 16);
static_assert(offsetof(Record, rows) == 20);
static_assert(offsetof(Record, valid_rows) == 24);
static_assert(offsetof(Record, rank) == 28);
static_assert(offsetof(Record, epoch) == 32);
static_assert(offsetof(Record, step) == 40);
static_assert(offsetof(Record, world_size) == 48);
static_assert(offsetof(Record, waited_ns) == 56);

}  // namespace batchd::wire
