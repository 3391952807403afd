// SPDX-License-Identifier: Apache-2.0
//
// What the tests of queue, readers and batches have in common: a dataset in memory whose source
// does what a test wants, and the plan of a session over it.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/memory/segment.h"
#include "server/pipeline/cpu_pool.h"
#include "tests/support/memory_dataset.h"
#include "tests/support/status_matchers.h"

namespace batchd {

// Samples that are not in memory (TryRead would wait), and reads that a test may hold up or fail.
class ScriptedSource : public MemorySource {
 public:
  explicit ScriptedSource(const std::vector<MemorySample>* samples) : MemorySource(samples) {}

  absl::StatusOr<TryReadResult> TryRead(const SampleLocation& location, size_t inline_bytes_max,
                                        ReadBuffer* buffer) override {
    if (is_cold) return TryReadResult::kWouldWait;
    return MemorySource::TryRead(location, inline_bytes_max, buffer);
  }
  absl::Status Read(const SampleLocation& location, size_t encoded_bytes_max,
                    ReadBuffer* buffer) override {
    if (before_read) BATCHD_RETURN_IF_ERROR(before_read(location.path));
    return MemorySource::Read(location, encoded_bytes_max, buffer);
  }

  // Set while nothing is read. `before_read` is called with the sample's name by the reading
  // thread; what it returns, if it is an error, is what the read comes to.
  bool is_cold = true;
  std::function<absl::Status(const std::string&)> before_read;
};

class ScriptedDataset : public MemoryDataset {
 public:
  explicit ScriptedDataset(const std::vector<MemorySample>& samples)
      : MemoryDataset(samples), samples_(samples), source_(&samples_) {}
  ScriptedSource* source() const override { return &source_; }

 private:
  const std::vector<MemorySample> samples_;
  mutable ScriptedSource source_;
};

// One session's worth of plan and memory, with one lane in one queue.
class PipelineRig {
 public:
  explicit PipelineRig(int sample_count = 12, int64_t batch_size = 6, int slots = 2) {
    std::vector<MemorySample> samples;
    for (int i = 0; i < sample_count; ++i) {
      Draws draws({.seed = 5, .ordinal = static_cast<uint64_t>(i)});
      samples.push_back({fmt::format("{}.ppm", i), EncodePpm(NoisePicture({9, 7}, &draws)), i});
    }
    dataset = std::make_shared<ScriptedDataset>(samples);
    dataset->source()->is_cold = false;  // the plan looks at a header
    plan.pipeline =
        PipelinePlan::Compile(
            {{{"image", {{"DecodeImage", {{"max_pixels", 1000}, {"max_encoded_bytes", 1000}}}}},
              {"label", {{"Label", Json::object()}}}}},
            dataset)
            .value();
    dataset->source()->is_cold = true;
    plan.sampler = MakeSampler({.num_samples = sample_count,
                                .global_batch_size = batch_size,
                                .last_batch = LastBatch::kPartial})
                       .value();
    plan.layout = SlabLayout::Make(plan.pipeline->shapes(), batch_size).value();
    plan.job = metrics.ForJob("rig");
    segment = Segment::Create(slots, plan.layout.slab_size_bytes(), &slabs).value();
    queue.AddLane(&lane);
  }

  std::unique_ptr<Batch> MakeBatch(int slot, std::function<void(Batch*)> done) {
    return std::make_unique<Batch>(&plan, &lane, segment->slab(slot), std::move(done));
  }
  std::string Content(const Batch& batch) const {
    return {reinterpret_cast<const char*>(batch.slab()),
            static_cast<size_t>(plan.layout.slab_size_bytes())};
  }

  std::shared_ptr<ScriptedDataset> dataset;
  Metrics metrics;
  BatchPlan plan;
  Budget slabs{"slabs", int64_t{1} << 24};
  std::unique_ptr<Segment> segment;
  Lane lane;
  WorkQueue queue;
};

}  // namespace batchd
