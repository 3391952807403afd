// SPDX-License-Identifier: Apache-2.0
#include "server/pipeline/plan.h"

#include <filesystem>
#include <iostream>

#include "server/daemon/commands.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/host_limits.h"
#include "server/dataset/dataset.h"
#include "server/memory/slab_layout.h"
#include "server/sampling/sampler.h"

namespace batchd {
namespace {

constexpr size_t kShownOrdinals = 8;
constexpr char kUsualPipeline[] =
    R"({"image": [{"name": "DecodeImage"}, {"name": "RandomResizedCrop", "arguments": {"size": 224}}],
        "label": [{"name": "Label"}]})";

absl::StatusOr<PipelineSpec> ReadPipeline(const std::string& text) {
  PipelineSpec spec;
  const std::string source = text.empty() ? kUsualPipeline : text;
  try {  // the library throws for what is no JSON, or another type
    // Columns lie in a batch in the order in which they are written.
    const auto columns = nlohmann::ordered_json::parse(source);
    for (const auto& [name, operations] : columns.items()) {
      ColumnSpec column{name, {}};
      for (const auto& operation : operations) {
        column.operations.push_back(
            {operation.at("name").get<std::string>(),
             Json(operation.value("arguments", nlohmann::ordered_json::object()))});
      }
      spec.columns.push_back(std::move(column));
    }
  } catch (const Json::exception& error) {
    return Err(absl::StatusCode::kInvalidArgument,
               R"(--pipeline: {}; it is {{"column": [{{"name": …, "arguments": {{…}}}}, …], …}})",
               error.what());
  }
  return spec;
}

absl::StatusOr<SamplerOptions> ReadSampling(const PlanFlags& flags, int64_t num_samples) {
  SamplerOptions options;
  options.num_samples = num_samples;
  options.seed = flags.seed;
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kFeistel, Shuffle::kTorch}) {
    if (flags.shuffle == ShuffleName(shuffle)) options.shuffle = shuffle;
  }
  options.last_batch = options.shuffle == Shuffle::kNone ? LastBatch::kPartial : LastBatch::kDrop;
  for (const LastBatch last : {LastBatch::kDrop, LastBatch::kPad, LastBatch::kPartial}) {
    if (flags.last_batch == LastBatchName(last)) options.last_batch = last;
  }
  if ((flags.batch_size > 0) == (flags.global_batch_size > 0)) {
    return Err(absl::StatusCode::kInvalidArgument,
               "give one of --batch-size (rows of each rank) and --global-batch-size (of all)");
  }
  options.global_batch_size =
      flags.global_batch_size > 0 ? flags.global_batch_size : flags.batch_size * flags.world_size;
  return options;
}

// What a rank gets: all that `plan` prints, as JSON.
absl::StatusOr<Json> MakePlan(const PlanFlags& flags) {
  if (flags.rank >= flags.world_size) {
    return Err(absl::StatusCode::kInvalidArgument, "--rank={} is not below --world-size={}",
               flags.rank, flags.world_size);
  }
  const DatasetKind* const kind = FindDataset(flags.kind);
  if (kind == nullptr) {
    return Err(absl::StatusCode::kInvalidArgument,
               "--kind={}: no such dataset; `batchd plugins` lists them", flags.kind);
  }
  const std::string folder = std::filesystem::absolute(flags.folder).lexically_normal();
  BATCHD_ASSIGN_OR_RETURN(const Json arguments,
                          CheckArguments(kind->schema(), {{"root", folder}}, "dataset"));
  BATCHD_ASSIGN_OR_RETURN(const auto dataset, kind->open(arguments, DatasetContext{}));
  BATCHD_ASSIGN_OR_RETURN(const PipelineSpec spec, ReadPipeline(flags.pipeline));
  BATCHD_ASSIGN_OR_RETURN(const auto pipeline, PipelinePlan::Compile(spec, dataset));
  BATCHD_ASSIGN_OR_RETURN(const SamplerOptions options,
                          ReadSampling(flags, dataset->num_samples()));
  BATCHD_ASSIGN_OR_RETURN(const auto sampler, MakeSampler(options));
  const auto rank = static_cast<int32_t>(flags.rank);
  const auto world_size = static_cast<int32_t>(flags.world_size);
  BATCHD_ASSIGN_OR_RETURN(
      const SlabLayout layout,
      SlabLayout::Make(pipeline->shapes(), sampler->rows_max(rank, world_size)));

  sampler->PrepareEpoch(flags.epoch);
  const int64_t steps = sampler->steps(flags.epoch);
  std::vector<SampleRow> rows;
  sampler->Rows({flags.epoch, steps - 1, rank, world_size}, &rows);
  const size_t last_rows = rows.size();
  sampler->Rows({flags.epoch, 0, rank, world_size}, &rows);
  Json first = Json::array();
  for (size_t i = 0; i < rows.size() && i < kShownOrdinals; ++i) first.push_back(rows[i].ordinal);
  return Json{{"samples", dataset->num_samples()},
              {"classes", dataset->num_classes()},
              {"dataset_fingerprint", dataset->fingerprint()},
              {"pipeline_fingerprint", pipeline->fingerprint()},
              {"warnings", dataset->warnings()},
              {"epoch", flags.epoch},
              {"seed", flags.seed},
              {"shuffle", std::string(ShuffleName(options.shuffle))},
              {"last_batch", std::string(LastBatchName(options.last_batch))},
              {"global_batch_size", options.global_batch_size},
              {"rank", rank},
              {"world_size", world_size},
              {"steps", steps},
              {"rows_max", sampler->rows_max(rank, world_size)},
              {"first_batch_rows", rows.size()},
              {"last_batch_rows", last_rows},
              {"slab_size_bytes", layout.slab_size_bytes()},
              {"first_ordinals", std::move(first)}};
}

}  // namespace

int RunPlan(const PlanFlags& flags) {
  const absl::StatusOr<Json> plan = MakePlan(flags);
  if (!plan.ok()) return Fail(plan.status());
  if (flags.json) {
    std::cout << plan->dump(2) << "\n";
    return kExitOk;
  }
  for (const auto& [key, value] : plan->items()) {
    if (key == "warnings") continue;
    std::cout << fmt::format("{:<22} {}", key,
                             value.is_string() ? value.get<std::string>() : value.dump());
    if (key == "slab_size_bytes") std::cout << " (" << HumanBytes(value.get<int64_t>()) << ")";
    std::cout << "\n";
  }
  for (const Json& warning : (*plan)["warnings"]) {
    std::cerr << "batchd: " << warning.get<std::string>() << "\n";
  }
  return kExitOk;
}

int RunIndex(const std::string& folder) {
  const absl::StatusOr<int64_t> count = WriteImageFolderIndex(folder);
  if (!count.ok()) return Fail(count.status());
  std::cout << fmt::format("{} samples in {}/.batchd-index\n", *count, folder);
  return kExitOk;
}

}  // namespace batchd
