// SPDX-License-Identifier: Apache-2.0
#include "server/session/opener.h"

#include <algorithm>
#include <utility>

#include "server/base/log.h"

namespace batchd {
namespace {

constexpr size_t kNameBytesMax = 64;

absl::Status CheckRange(const char* field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return FieldErr(field, "{} is out of range; allowed is from {} to {}", value, min, max);
}

absl::Status CheckRequest(const OpenRequest& request) {
  BATCHD_RETURN_IF_ERROR(CheckRange("world_size", request.world_size, 1, kWorldSizeMax));
  BATCHD_RETURN_IF_ERROR(CheckRange("rank", request.rank, 0, request.world_size - 1));
  BATCHD_RETURN_IF_ERROR(CheckRange("prefetch", request.prefetch, 1, kPrefetchMax));
  if (request.max_bad_count < -1) {
    return FieldErr("sampling.max_bad_count", "{} is negative", request.max_bad_count);
  }
  if (request.max_bad_share != -1.0 &&
      !(request.max_bad_share >= 0 && request.max_bad_share <= 1)) {
    return FieldErr("sampling.max_bad_share", "{} is out of range; allowed is from 0 to 1",
                    request.max_bad_share);
  }
  const std::pair<const char*, const std::string*> names[] = {
      {"job", &request.job}, {"client_version", &request.client_version}};
  for (const auto& [field, name] : names) {
    if (name->size() > kNameBytesMax) {
      return FieldErr(field, "{} bytes are too long; allowed are {}", name->size(), kNameBytesMax);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExpected(const char* what, const std::string& expected,
                           const std::string& actual) {
  if (expected.empty() || expected == actual) return absl::OkStatus();
  return Err(
      absl::StatusCode::kFailedPrecondition,
      "the state was made with {} {}, this is {} {}; go on with the one it was made with, or "
      "load it with strict=False where only pipeline or decoder differ",
      what, expected, what, actual);
}

LastBatch LastBatchOf(const OpenRequest& request) {
  if (request.last_batch.has_value()) return *request.last_batch;
  return request.shuffle == Shuffle::kNone ? LastBatch::kPartial : LastBatch::kDrop;
}

// One for the batch that the trainer works on, and one for the moment in which it has both that and
// the next.
int SlotCount(const OpenRequest& request) {
  return request.single ? 1 : static_cast<int>(request.prefetch) + 2;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Dataset>> Opener::OpenDataset(const OpenRequest& request) {
  OperationSpec spec{request.dataset_name, request.dataset_arguments};
  DatasetContext context = options_.datasets;
  for (const auto& [name, named] : options_.named_datasets) {
    if (name != spec.name) continue;
    spec = named;
    context.any_root = true;  // the operator has named it
    break;                    // `spec` is a kind now, which may be another's name
  }
  const DatasetKind* kind = FindDataset(spec.name);
  if (kind == nullptr) {
    std::vector<std::string> names;
    for (const DatasetKind* each : DatasetKinds()) names.push_back(each->schema().name);
    for (const auto& [name, named] : options_.named_datasets) names.push_back(name);
    return FieldErr("dataset.name", "no dataset \"{}\"; there are {}", spec.name,
                    fmt::join(names, ", "));
  }
  BATCHD_ASSIGN_OR_RETURN(const Json arguments,
                          CheckArguments(kind->schema(), spec.arguments, "dataset"));
  const std::string key =
      fmt::format("{}{}{}", spec.name, context.any_root ? "+" : "-",
                  arguments.dump(-1, ' ', false, Json::error_handler_t::replace));
  // A key is kept only with a dataset: refused opens leave nothing behind.
  const auto known = datasets_.find(key);
  std::shared_ptr<const Dataset> dataset =
      known == datasets_.end() ? nullptr : known->second.lock();
  if (dataset == nullptr || dataset->IsStale()) {
    dataset.reset();
    last_dataset_.reset();
    BATCHD_ASSIGN_OR_RETURN(dataset, kind->open(arguments, context));
    datasets_[key] = dataset;
    std::erase_if(datasets_, [](const auto& entry) { return entry.second.expired(); });
  }
  last_dataset_ = dataset;
  int64_t index_bytes = 0;
  for (const auto& [unused, weak] : datasets_) {
    if (const auto open = weak.lock(); open != nullptr) index_bytes += open->index_bytes();
  }
  Set(metrics_->memory_index, static_cast<double>(index_bytes));
  return dataset;
}

absl::Status Opener::CheckMemory(const OpenRequest& request, const PipelinePlan& pipeline,
                                 const SlabLayout& layout, int slot_count) const {
  const int64_t needed = layout.slab_size_bytes() * slot_count;
  if (needed > options_.slab_budget_bytes) {
    return Err(absl::StatusCode::kResourceExhausted,
               "{} slabs of slab_size_bytes={} need {} bytes, the budget of all slabs is {} bytes; "
               "lower batch_size or prefetch={}, or start the daemon with a larger --memory",
               slot_count, layout.slab_size_bytes(), needed, options_.slab_budget_bytes,
               request.prefetch);
  }
  if (pipeline.encoded_bytes_max() > options_.encoded_budget_bytes) {
    return Err(absl::StatusCode::kResourceExhausted,
               "max_encoded_bytes={} is above the budget of encoded bytes, {}; lower it, or start "
               "the daemon with a larger --memory",
               pipeline.encoded_bytes_max(), options_.encoded_budget_bytes);
  }
  if (pipeline.scratch_bytes_max() > options_.scratch_budget_bytes) {
    return Err(
        absl::StatusCode::kResourceExhausted,
        "a picture of max_pixels may need {} bytes to decode, the budget of decode scratch is "
        "{} bytes; lower DecodeImage(max_pixels=...), or start the daemon with a larger "
        "--memory",
        pipeline.scratch_bytes_max(), options_.scratch_budget_bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SessionParts>> Opener::Open(const OpenRequest& request,
                                                           bool with_memory) {
  BATCHD_RETURN_IF_ERROR(CheckRequest(request));
  BATCHD_ASSIGN_OR_RETURN(std::shared_ptr<const Dataset> dataset, OpenDataset(request));
  BATCHD_ASSIGN_OR_RETURN(std::shared_ptr<const PipelinePlan> pipeline,
                          PipelinePlan::Compile(request.pipeline, dataset, options_.isolation));
  BATCHD_ASSIGN_OR_RETURN(std::shared_ptr<const Sampler> sampler,
                          MakeSampler({.num_samples = dataset->num_samples(),
                                       .seed = request.seed,
                                       .shuffle = request.shuffle,
                                       .global_batch_size = request.global_batch_size,
                                       .last_batch = LastBatchOf(request)}));
  const Fingerprints fingerprints{dataset->fingerprint(), pipeline->fingerprint(),
                                  DecoderFingerprint()};
  BATCHD_RETURN_IF_ERROR(CheckExpected("dataset", request.expected.dataset, fingerprints.dataset));
  BATCHD_RETURN_IF_ERROR(
      CheckExpected("pipeline", request.expected.pipeline, fingerprints.pipeline));
  BATCHD_RETURN_IF_ERROR(CheckExpected("decoder", request.expected.decoder, fingerprints.decoder));
  BATCHD_RETURN_IF_ERROR(SessionState::CheckPosition(*sampler, request.start));

  const auto rank = static_cast<int32_t>(request.rank);
  const auto world_size = static_cast<int32_t>(request.world_size);
  const int64_t rows_max = sampler->rows_max(rank, world_size);
  BATCHD_ASSIGN_OR_RETURN(SlabLayout layout, SlabLayout::Make(pipeline->shapes(), rows_max));
  const int slot_count = SlotCount(request);
  BATCHD_RETURN_IF_ERROR(CheckMemory(request, *pipeline, layout, slot_count));

  auto parts = std::make_unique<SessionParts>();
  parts->info = {.session_id = 0,
                 .fingerprints = fingerprints,
                 .num_samples = dataset->num_samples(),
                 .num_classes = dataset->num_classes(),
                 .steps_per_epoch = sampler->steps(request.start.epoch),
                 .columns = layout.columns(),
                 .rows_max = rows_max,
                 .seed = request.seed,
                 .shuffle = request.shuffle,
                 .global_batch_size = request.global_batch_size,
                 .last_batch = LastBatchOf(request),
                 .on_bad_sample = request.on_bad_sample,
                 .max_bad_count = request.max_bad_count,
                 .max_bad_share = request.max_bad_share,
                 .prefetch = static_cast<int>(request.prefetch),
                 .slab_size_bytes = layout.slab_size_bytes(),
                 .source_name = dataset->source_name(),
                 .warnings = options_.warnings};
  parts->info.warnings.insert(parts->info.warnings.end(), dataset->warnings().begin(),
                              dataset->warnings().end());
  parts->state_options = {.rank = rank,
                          .world_size = world_size,
                          .num_samples = dataset->num_samples(),
                          .start = request.start,
                          .prefetch = static_cast<int>(request.prefetch),
                          .max_bad_count = request.max_bad_count,
                          .max_bad_share = request.max_bad_share,
                          .single = request.single};
  if (with_memory) {
    sampler->PrepareEpoch(request.start.epoch);
    absl::StatusOr<std::unique_ptr<Segment>> segment =
        Segment::Create(slot_count, layout.slab_size_bytes(), slab_budget_);
    if (!segment.ok()) {
      return Annotate(
          segment.status(),
          fmt::format("no memory for {} slabs of slab_size_bytes={} (lower batch_size or "
                      "prefetch={}, end other sessions, or start the daemon with a larger "
                      "--memory)",
                      slot_count, layout.slab_size_bytes(), request.prefetch));
    }
    parts->segment = std::move(segment).value();
  }
  parts->plan = {std::move(pipeline), std::move(sampler),    std::move(layout),
                 request.seed,        request.on_bad_sample, metrics_->ForJob(request.job)};
  return parts;
}

}  // namespace batchd
