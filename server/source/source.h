// SPDX-License-Identifier: Apache-2.0
//
// A source gives the bytes of samples: files here, objects of a store later. A read happens in two
// ways: TryRead on a CPU thread, which takes only what is in memory already and never waits, and
// Read on a reader thread, which may. The bytes are the same.
//
// Adding one: a file `<name>_source.cc`, its line in CMakeLists.txt, and a unit test.
// tests/conformance/source_suite.h runs over every implementation.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace batchd {

// Where the bytes of one sample (or of one field of it) are. Reused from sample to sample, so that
// its string allocates rarely.
struct SampleLocation {
  std::string path;          // absolute, or relative to the dataset's root
  int64_t offset_bytes = 0;  // first byte
  int64_t size_bytes = -1;   // -1: up to the end of the file
};

// A budget that makes its caller wait until there is room. Thread-safe.
class ByteGate {
 public:
  virtual ~ByteGate() = default;
  virtual void Acquire(int64_t size_bytes) = 0;
  virtual void Release(int64_t size_bytes) = 0;
};

// Bytes that are read into; grows and never shrinks by itself. Thread-compatible.
class ReadBuffer {
 public:
  // What the buffer holds counts against `gate`, if there is one; it outlives the buffer.
  explicit ReadBuffer(ByteGate* gate = nullptr) : gate_(gate) {}
  ~ReadBuffer() { Free(); }
  ReadBuffer(const ReadBuffer&) = delete;
  ReadBuffer& operator=(const ReadBuffer&) = delete;

  // Room for `size_bytes`, any content; size() becomes that.
  uint8_t* Resize(size_t size_bytes);
  std::span<const uint8_t> bytes() const { return {data_.get(), size_bytes_}; }
  size_t capacity_bytes() const { return capacity_bytes_; }
  void Free();

 private:
  struct FreeDeleter {
    void operator()(uint8_t* p) const;
  };
  ByteGate* const gate_;
  std::unique_ptr<uint8_t, FreeDeleter> data_;
  size_t size_bytes_ = 0;
  size_t capacity_bytes_ = 0;
};

enum class TryReadResult {
  kRead,       // the bytes are in the buffer
  kWouldWait,  // not in memory: call Read on a reader thread
};

// Thread-safe: many threads read at once.
class Source {
 public:
  virtual ~Source() = default;

  // Reads without waiting for a device; takes at most `inline_bytes_max`, above that kWouldWait.
  // Errors: as Read.
  virtual absl::StatusOr<TryReadResult> TryRead(const SampleLocation& location,
                                                size_t inline_bytes_max, ReadBuffer* buffer) = 0;

  // Reads, waiting as long as it takes.
  // Errors: sample errors not_found (missing, no permission, a link that leads outside the root),
  // not_a_file, empty, too_large (above `encoded_bytes_max`), corrupt (not the size that the
  // location says); UNAVAILABLE for what may pass (EIO, ENFILE, ENOMEM, a timeout).
  virtual absl::Status Read(const SampleLocation& location, size_t encoded_bytes_max,
                            ReadBuffer* buffer) = 0;
};

// Files below `root`. With `beneath`, a path or link that leads outside the root is not_found
// (openat2 RESOLVE_BENEATH); without, links may lead anywhere.
// Errors: NOT_FOUND, PERMISSION_DENIED if the root cannot be opened, UNAVAILABLE if not now.
absl::StatusOr<std::unique_ptr<Source>> MakeFileSource(const std::string& root, bool beneath);

}  // namespace batchd
