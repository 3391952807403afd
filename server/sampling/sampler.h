// SPDX-License-Identifier: Apache-2.0
//
// A sampler says which samples are in which batch. Nothing else in batchd knows positions.
//
// An epoch is an order of the samples, cut into steps of G rows (the global batch), and each step
// into one part for each rank: rank r of W gets [floor(rG/W), floor((r+1)G/W)) of it (with
// shuffle="torch" every W-th row from r, as torch's ranks do). So a run may go on with another
// world size at any step, and every global batch still holds the same samples.
//
// All of it is a pure function of the options and the address: thread-safe, and the same on every
// machine. tests/conformance/sampler_suite.h runs over every implementation.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace batchd {

enum class Shuffle { kNone, kFeistel, kTorch };
enum class LastBatch { kDrop, kPad, kPartial };
enum class OnBadSample { kFail, kSkip, kSubstitute };

std::string_view ShuffleName(Shuffle shuffle);         // "none", "feistel", "torch"
std::string_view LastBatchName(LastBatch last_batch);  // "drop", "pad", "partial"
std::string_view OnBadSampleName(OnBadSample policy);  // "fail", "skip", "substitute"

inline constexpr int64_t kGlobalBatchSizeMax = int64_t{1} << 24;
inline constexpr int32_t kWorldSizeMax = 1 << 20;
inline constexpr int64_t kEpochMax = (int64_t{1} << 32) - 1;
// torch's randperm draws 32-bit words only below this many samples.
inline constexpr int64_t kTorchSamplesMax = 0xFFFF'FFFFll / 20 - 1;
inline constexpr int kSubstituteChainMax = 16;

struct Address {
  int64_t epoch = 0;
  int64_t step = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  bool operator==(const Address&) const = default;
};

// A place in a run, the same on every rank. step == steps(epoch) is the start of the next epoch.
struct Position {
  int64_t epoch = 0;
  int64_t step = 0;
  bool operator==(const Position&) const = default;
};

struct SamplerOptions {
  int64_t num_samples = 0;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  int64_t global_batch_size = 0;
  LastBatch last_batch = LastBatch::kPartial;
};

// One row of a batch.
struct SampleRow {
  int64_t ordinal = 0;
  uint16_t occurrence = 0;  // how often the ordinal came before in this epoch (0, but for pad rows)
  bool is_pad = false;      // repeats a sample to fill the last step up
  bool operator==(const SampleRow&) const = default;
};

// Thread-safe; immutable but for a bounded cache of O(N) orders (shuffle="torch").
class Sampler {
 public:
  virtual ~Sampler() = default;

  // Steps of the epoch; 1 or more.
  virtual int64_t steps(int64_t epoch) const = 0;

  // The most rows that a batch of this rank has.
  virtual int64_t rows_max(int32_t rank, int32_t world_size) const = 0;

  // Does the work that rows() of this epoch needs and that is not O(1): on the control thread.
  virtual void PrepareEpoch(int64_t epoch) const = 0;

  // Whether rows() of this epoch takes no more than its own rows' time.
  virtual bool IsPrepared(int64_t epoch) const = 0;

  // The rows of a batch, in order; `rows` is overwritten. Requires 0 <= step < steps(epoch) and
  // 0 <= rank < world_size.
  virtual void Rows(const Address& address, std::vector<SampleRow>* rows) const = 0;
};

// Errors: INVALID_ARGUMENT with field "sampling.…": global_batch_size out of [1,
// kGlobalBatchSizeMax] (or a pad epoch that repeats a sample more than 65,535 times),
// shuffle="torch" with too many samples; FAILED_PRECONDITION: no samples, or fewer than one global
// batch with drop, naming both numbers and the way out.
absl::StatusOr<std::shared_ptr<const Sampler>> MakeSampler(const SamplerOptions& options);

// The k-th candidate (0 <= k < kSubstituteChainMax) that takes the place of a bad sample.
int64_t SubstituteOrdinal(uint64_t seed, int64_t epoch, int64_t ordinal, int k,
                          int64_t num_samples);

// The keyed bijection of [0, n) behind Shuffle::kFeistel. Frozen: golden vectors hold it.
class FeistelOrder {
 public:
  // Requires n > 0.
  FeistelOrder(int64_t n, uint64_t seed, int64_t epoch);
  // The ordinal at `position`, 0 <= position < n.
  int64_t At(int64_t position) const;

 private:
  int64_t n_;
  int left_bits_;
  int right_bits_;
  uint64_t keys_[8];
};

}  // namespace batchd
