// SPDX-License-Identifier: Apache-2.0
//
// A dataset whose samples lie in memory, for tests: name, bytes, label each.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/status.h"
#include "server/dataset/dataset.h"
#include "tests/support/test_picture.h"

namespace batchd {

struct MemorySample {
  std::string name;
  std::vector<uint8_t> bytes;
  int64_t label = 0;
};

// Locations are the samples' names. Thread-safe.
class MemorySource : public Source {
 public:
  explicit MemorySource(const std::vector<MemorySample>* samples) : samples_(samples) {}

  absl::StatusOr<TryReadResult> TryRead(const SampleLocation& location, size_t inline_bytes_max,
                                        ReadBuffer* buffer) override {
    const MemorySample* const sample = Find(location);
    if (sample != nullptr && sample->bytes.size() > inline_bytes_max) {
      return TryReadResult::kWouldWait;
    }
    BATCHD_RETURN_IF_ERROR(Read(location, inline_bytes_max, buffer));
    return TryReadResult::kRead;
  }

  absl::Status Read(const SampleLocation& location, size_t encoded_bytes_max,
                    ReadBuffer* buffer) override {
    reads.fetch_add(1);
    const MemorySample* const sample = Find(location);
    if (sample == nullptr) return SampleErr(SampleReason::kNotFound, "{}", location.path);
    if (sample->bytes.empty()) return SampleErr(SampleReason::kEmpty, "no bytes");
    if (sample->bytes.size() > encoded_bytes_max) {
      return SampleErr(SampleReason::kTooLarge, "{} bytes; at most {}", sample->bytes.size(),
                       encoded_bytes_max);
    }
    std::memcpy(buffer->Resize(sample->bytes.size()), sample->bytes.data(), sample->bytes.size());
    return absl::OkStatus();
  }

  std::atomic<int> reads = 0;

 private:
  const MemorySample* Find(const SampleLocation& location) const {
    const auto found = std::find_if(samples_->begin(), samples_->end(), [&](const auto& sample) {
      return sample.name == location.path;
    });
    return found == samples_->end() ? nullptr : &*found;
  }
  const std::vector<MemorySample>* const samples_;
};

// Immutable: thread-safe.
class MemoryDataset : public Dataset {
 public:
  explicit MemoryDataset(std::vector<MemorySample> samples)
      : samples_(std::move(samples)), source_(&samples_) {
    for (const MemorySample& sample : samples_) {
      class_count_ = std::max(class_count_, sample.label + 1);
    }
  }

  int64_t num_samples() const override { return static_cast<int64_t>(samples_.size()); }
  int64_t num_classes() const override { return class_count_; }
  std::string ClassName(int64_t index) const override { return fmt::format("class{}", index); }
  std::string NameOf(int64_t ordinal) const override { return at(ordinal).name; }
  int64_t LabelOf(int64_t ordinal) const override { return at(ordinal).label; }
  void Locate(int64_t ordinal, SampleLocation* location) const override {
    location->path = at(ordinal).name;
    location->offset_bytes = 0;
    location->size_bytes = -1;
  }
  MemorySource* source() const override { return &source_; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::string& source_name() const override { return source_name_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  int64_t index_bytes() const override { return 0; }
  bool IsStale() const override { return false; }

  const MemorySample& at(int64_t ordinal) const { return samples_[static_cast<size_t>(ordinal)]; }

 private:
  const std::vector<MemorySample> samples_;
  mutable MemorySource source_;
  int64_t class_count_ = 0;
  const std::string fingerprint_ = "00000000000000000000000000000000";
  const std::string source_name_ = "memory";
  const std::vector<std::string> warnings_;
};

// The picture as a binary PPM: the simplest encoding that a decoder knows.
inline std::vector<uint8_t> EncodePpm(const TestPicture& picture) {
  const std::string header =
      fmt::format("P6\n{} {}\n255\n", picture.size.width, picture.size.height);
  std::vector<uint8_t> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), picture.pixels.begin(), picture.pixels.end());
  return bytes;
}

}  // namespace batchd
