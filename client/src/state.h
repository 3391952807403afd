// SPDX-License-Identifier: Apache-2.0
//
// Positions, and states that can be saved: the same on every rank and in every client.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "batchd/status.h"
#include "client/src/util.h"

namespace batchd::internal {

// A place in a run.
struct Position {
  int64_t epoch = 0;
  int64_t step = 0;

  friend bool operator==(const Position&, const Position&) = default;
  Json ToJson() const;  // the message Position
  std::string ToString() const;
};

Position After(int64_t epoch, int64_t step, bool last_in_epoch);

// The end of an epoch is the start of the next. Errors: kStateMismatch past the end.
Result<Position> Normalized(Position position, int64_t steps_per_epoch);

// Which samples are in which batch, in a state's words.
struct Sampling {
  uint64_t seed = 0;
  int64_t global_batch_size = 0;
  std::string shuffle;     // "none", "feistel", "torch"
  std::string last_batch;  // "drop", "pad", "partial"; "" before the daemon has chosen
  std::string on_bad_sample;

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

// What the bytes depend on besides; an empty part is not compared.
struct Fingerprint {
  std::string dataset;
  std::string pipeline;
  std::string decoder;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
  Json ToJson() const;
};

// All of a state but its position.
struct RunState {
  Sampling sampling;
  Fingerprint fingerprint;
};

std::string WriteState(const RunState& run, Position position);

struct LoadedState {
  RunState run;
  Position position;
};

// Errors: kStateMismatch, naming the field, if it is no state that this version can read.
Result<LoadedState> ReadState(std::string_view text);

}  // namespace batchd::internal
