// SPDX-License-Identifier: Apache-2.0
//
// What a session says to its client, in the domain's words. A transport carries it out; a door
// turns the rest into its messages. All calls come on the event loop, in the order in which they
// happen.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/memory/segment.h"
#include "server/memory/slab_layout.h"
#include "server/sampling/sampler.h"

namespace batchd {

struct Fingerprints {
  std::string dataset;
  std::string pipeline;
  std::string decoder;
};

// See the message Opened for units and meaning.
struct OpenedInfo {
  int64_t session_id = 0;
  Fingerprints fingerprints;
  int64_t num_samples = 0;
  int64_t num_classes = 0;
  int64_t steps_per_epoch = 0;
  std::vector<ColumnShape> columns;
  int64_t rows_max = 0;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  int64_t global_batch_size = 0;
  LastBatch last_batch = LastBatch::kPartial;
  OnBadSample on_bad_sample = OnBadSample::kFail;
  int64_t max_bad_count = -1;   // -1: not set
  double max_bad_share = -1.0;  // -1: not set
  int prefetch = 0;
  int64_t slab_size_bytes = 0;
  std::string source_name;
  std::vector<std::string> warnings;
};

// A slot of a session and one announcement of it.
struct SlotRef {
  int segment = 0;
  int slot = 0;
  uint64_t sequence = 0;
  bool operator==(const SlotRef&) const = default;
};

struct ReadyBatch {
  SlotRef ref;
  uint32_t generation = 0;
  Address address;
  int64_t rows = 0;
  int64_t valid_rows = 0;
  bool last_in_epoch = false;
  // The sealed slab, valid until the client releases it; the daemon writes nothing to it meanwhile.
  const uint8_t* slab = nullptr;
  int64_t size_bytes = 0;
};

// A batch that could not be made; see the message Failure.
struct BatchFailure {
  uint32_t generation = 0;
  Address address;
  absl::Status status;
  int64_t ordinal = -1;
  std::string sample_name;
  Position next;
};

struct ExhaustedInfo {
  int64_t held_slots = 0;
  int64_t slab_size_bytes = 0;
  int64_t budget_bytes = 0;
  int64_t used_bytes = 0;
  std::string message;
};

// Implemented by what carries a session: one object per session. Called on the event loop.
class SessionOutput {
 public:
  virtual ~SessionOutput() = default;

  virtual void OnOpened(const OpenedInfo& info) = 0;
  // The segment lives until the session has ended.
  virtual void OnSegment(int index, const Segment& segment) = 0;
  virtual void OnReady(const ReadyBatch& batch) = 0;
  virtual void OnFailure(const BatchFailure& failure) = 0;
  virtual void OnExhausted(const ExhaustedInfo& info) = 0;
  virtual void OnDraining(int64_t deadline_milliseconds) = 0;
  // The session has ended by a fault (refused open, protocol fault). Last call.
  virtual void OnError(const absl::Status& status) = 0;
};

}  // namespace batchd
