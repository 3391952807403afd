// SPDX-License-Identifier: Apache-2.0
#include "server/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/base/check.h"
#include "server/base/philox.h"
#include "server/base/status.h"
#include "server/base/sync.h"
#include "server/sampling/op_ids.h"
#include "server/sampling/torch_order.h"

namespace batchd {
namespace {

constexpr int64_t kOccurrenceMax = 65535;
constexpr int64_t kSamplesMax = int64_t{1} << 48;  // of an ordinal in a DrawKey

// The steps and parts of DESIGN section 2; the order is the derived class's.
class FixedBatchSampler : public Sampler {
 public:
  explicit FixedBatchSampler(const SamplerOptions& options) : options_(options) {}

  int64_t steps(int64_t) const override {
    const int64_t n = options_.num_samples, g = options_.global_batch_size;
    return options_.last_batch == LastBatch::kDrop ? n / g : (n + g - 1) / g;
  }

  int64_t rows_max(int32_t rank, int32_t world_size) const override {
    return PartOf(/*step=*/0, rank, world_size).count;  // no step has more rows than the first
  }

  void PrepareEpoch(int64_t) const override {}
  bool IsPrepared(int64_t) const override { return true; }

 protected:
  // Positions first, first + stride, … of the epoch's order.
  struct Part {
    int64_t first = 0;
    int64_t stride = 1;
    int64_t count = 0;
  };

  Part PartOf(int64_t step, int64_t rank, int64_t world_size) const {
    const int64_t n = options_.num_samples, g = options_.global_batch_size;
    const int64_t start = step * g;
    // Where the step ends: with pad it goes on beyond the last sample.
    const int64_t end = options_.last_batch == LastBatch::kPad ? start + g : std::min(start + g, n);
    if (options_.shuffle == Shuffle::kTorch) {
      const int64_t first = start + rank;
      return {first, world_size, std::max<int64_t>(0, (end - first + world_size - 1) / world_size)};
    }
    const int64_t first = std::min(start + rank * g / world_size, end);
    const int64_t last = std::min(start + (rank + 1) * g / world_size, end);
    return {first, 1, last - first};
  }

  template <typename OrdinalAt>
  void FillRows(const Address& address, const OrdinalAt& ordinal_at,
                std::vector<SampleRow>* rows) const {
    BATCHD_CHECK(address.step >= 0 && address.step < steps(address.epoch));
    BATCHD_CHECK(address.rank >= 0 && address.rank < address.world_size);
    const Part part = PartOf(address.step, address.rank, address.world_size);
    const int64_t n = options_.num_samples;
    rows->resize(static_cast<size_t>(part.count));
    int64_t position = part.first;
    for (SampleRow& row : *rows) {
      row.ordinal = ordinal_at(position % n);
      row.occurrence = static_cast<uint16_t>(position / n);
      row.is_pad = position >= n;
      position += part.stride;
    }
  }

  const SamplerOptions options_;
};

class SequentialSampler : public FixedBatchSampler {
 public:
  using FixedBatchSampler::FixedBatchSampler;
  void Rows(const Address& address, std::vector<SampleRow>* rows) const override {
    FillRows(
        address, [](int64_t position) { return position; }, rows);
  }
};

class FeistelSampler : public FixedBatchSampler {
 public:
  using FixedBatchSampler::FixedBatchSampler;
  void Rows(const Address& address, std::vector<SampleRow>* rows) const override {
    const FeistelOrder order(options_.num_samples, options_.seed, address.epoch);
    FillRows(
        address, [&order](int64_t position) { return order.At(position); }, rows);
  }
};

class TorchSampler : public FixedBatchSampler {
 public:
  using FixedBatchSampler::FixedBatchSampler;

  void PrepareEpoch(int64_t epoch) const override { OrderOf(epoch); }

  bool IsPrepared(int64_t epoch) const override {
    MutexLock lock(&mu_);
    return Find(epoch) != nullptr;
  }

  void Rows(const Address& address, std::vector<SampleRow>* rows) const override {
    const TorchOrder order = OrderOf(address.epoch);
    FillRows(
        address,
        [&order](int64_t position) {
          return static_cast<int64_t>((*order)[static_cast<size_t>(position)]);
        },
        rows);
  }

 private:
  struct Entry {
    int64_t epoch = -1;
    TorchOrder order;
  };

  // The order, which becomes the most recently used; null if there is none.
  TorchOrder Find(int64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (recent_[0].epoch != epoch) std::swap(recent_[0], recent_[1]);
    if (recent_[0].epoch == epoch) return recent_[0].order;
    std::swap(recent_[0], recent_[1]);
    return nullptr;
  }

  TorchOrder OrderOf(int64_t epoch) const {
    {
      MutexLock lock(&mu_);
      if (TorchOrder order = Find(epoch)) return order;
    }
    // Without the lock: those who use another epoch do not wait.
    TorchOrder order =
        GetTorchOrder(options_.num_samples, static_cast<uint32_t>(options_.seed + epoch));
    MutexLock lock(&mu_);
    if (Find(epoch) == nullptr) {
      recent_[1] = std::exchange(recent_[0], Entry{epoch, order});
    }
    return order;
  }

  mutable Mutex mu_;
  // Most recently used first: the epoch that is read and the one that is prepared.
  mutable std::array<Entry, 2> recent_ ABSL_GUARDED_BY(mu_);
};

absl::Status CheckOptions(const SamplerOptions& options) {
  const int64_t n = options.num_samples, g = options.global_batch_size;
  if (g < 1 || g > kGlobalBatchSizeMax) {
    return FieldErr("sampling.global_batch_size", "{} is out of range; allowed is from 1 to {}", g,
                    kGlobalBatchSizeMax);
  }
  if (n < 1) {
    return absl::FailedPreconditionError(
        "the dataset has no samples; nothing can be drawn from it");
  }
  if (n > kSamplesMax) {
    return FieldErr("sampling.num_samples", "{} is more than {}", n, kSamplesMax);
  }
  if (options.shuffle == Shuffle::kTorch && n > kTorchSamplesMax) {
    return FieldErr("sampling.shuffle",
                    "\"torch\" orders at most {} samples and the dataset has {}; use the default "
                    "shuffle",
                    kTorchSamplesMax, n);
  }
  if (options.last_batch == LastBatch::kDrop && n < g) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "the dataset has {} samples, fewer than global_batch_size={}, and "
               "last_batch=\"drop\" leaves no batch; lower the batch size or use "
               "last_batch=\"partial\" or \"pad\"",
               n, g);
  }
  if (options.last_batch == LastBatch::kPad && (g - 1) / n > kOccurrenceMax) {
    return FieldErr("sampling.global_batch_size",
                    "{} repeats each of {} samples more than {} times to fill one batch; lower it "
                    "or use last_batch=\"partial\"",
                    g, n, kOccurrenceMax);
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view ShuffleName(Shuffle shuffle) {
  constexpr std::string_view kNames[] = {"none", "feistel", "torch"};
  return kNames[static_cast<int>(shuffle)];
}

std::string_view LastBatchName(LastBatch last_batch) {
  constexpr std::string_view kNames[] = {"drop", "pad", "partial"};
  return kNames[static_cast<int>(last_batch)];
}

std::string_view OnBadSampleName(OnBadSample policy) {
  constexpr std::string_view kNames[] = {"fail", "skip", "substitute"};
  return kNames[static_cast<int>(policy)];
}

absl::StatusOr<std::shared_ptr<const Sampler>> MakeSampler(const SamplerOptions& options) {
  BATCHD_RETURN_IF_ERROR(CheckOptions(options));
  std::shared_ptr<const Sampler> sampler;
  switch (options.shuffle) {
    case Shuffle::kNone:
      sampler = std::make_shared<SequentialSampler>(options);
      break;
    case Shuffle::kFeistel:
      sampler = std::make_shared<FeistelSampler>(options);
      break;
    case Shuffle::kTorch:
      sampler = std::make_shared<TorchSampler>(options);
      break;
  }
  return sampler;
}

int64_t SubstituteOrdinal(uint64_t seed, int64_t epoch, int64_t ordinal, int k,
                          int64_t num_samples) {
  BATCHD_CHECK(k >= 0 && k < kSubstituteChainMax && num_samples > 0);
  const Draws draws(DrawKey{.seed = seed,
                            .ordinal = static_cast<uint64_t>(ordinal),
                            .epoch = static_cast<uint32_t>(epoch),
                            .op_id = kSubstituteOpId});
  const uint64_t n = static_cast<uint64_t>(num_samples);
  const uint64_t high = draws.U32At(static_cast<uint16_t>(k));
  if (n <= uint64_t{1} << 32) return static_cast<int64_t>((high * n) >> 32);
  // 32 bits do not reach every sample: 32 more from a draw beyond the chain's.
  const uint64_t low = draws.U32At(static_cast<uint16_t>(k + kSubstituteChainMax));
  __extension__ using Wide = unsigned __int128;
  return static_cast<int64_t>((static_cast<Wide>(high << 32 | low) * n) >> 64);
}

}  // namespace batchd
