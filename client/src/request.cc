// SPDX-License-Identifier: Apache-2.0
#include "client/src/request.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <system_error>

namespace batchd {

Operation ImageFolder(std::string_view root) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(std::filesystem::path(root), error);
  if (error) path = root;  // the working folder is gone: the daemon will say that it is not there
  path = path.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "data/" is "data"
  internal::Json arguments = {{"root", path.string()}};
  Result<std::string> text = internal::Write(arguments);
  // A path that is no UTF-8 cannot be a proto3 string; Loader::Open() refuses it by this.
  return {"ImageFolder", text.ok() ? *text : "the path is no UTF-8"};
}

namespace internal {
namespace {

constexpr int64_t kRowsMax = int64_t{1} << 24;
constexpr int64_t kWorldMax = int64_t{1} << 20;
constexpr int64_t kPrefetchMax = 256;
constexpr int64_t kExactIntegerMax = int64_t{1} << 53;
constexpr double kReconnectSeconds = 300;

Status CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status();
  return ArgumentError(name, "=", value, " is out of range; allowed is ", low, " to ", high);
}

// A Struct's numbers are doubles: integers that they cannot hold go as text, which daemons take.
void KeepIntegersExact(Json* value) {
  if (value->is_structured()) {
    for (Json& item : *value) KeepIntegersExact(&item);
  } else if (value->is_number_unsigned() && value->get<uint64_t>() > kExactIntegerMax) {
    *value = std::to_string(value->get<uint64_t>());
  } else if (value->is_number_integer() && value->get<int64_t>() < -kExactIntegerMax) {
    *value = std::to_string(value->get<int64_t>());
  }
}

Result<Json> OperationToJson(const std::string& path, const Operation& operation) {
  if (operation.name.empty()) return ArgumentError(path, " has no name");
  Json arguments = Json::parse(operation.arguments, nullptr, /*allow_exceptions=*/false);
  if (!arguments.is_object()) {
    return ArgumentError(path, " ", operation.name,
                         ": the arguments are no JSON object: ", operation.arguments);
  }
  KeepIntegersExact(&arguments);
  return Json{{"name", operation.name}, {"arguments", std::move(arguments)}};
}

Result<Json> PipelineToJson(const std::vector<ColumnOptions>& columns) {
  if (columns.empty()) return ArgumentError("columns is empty; a batch has one at least");
  Json result = Json::array();
  for (const ColumnOptions& column : columns) {
    Json operations = Json::array();
    for (size_t i = 0; i < column.operations.size(); ++i) {
      Result<Json> operation =
          OperationToJson(Cat("columns.", column.name, "[", i, "]"), column.operations[i]);
      if (!operation.ok()) return operation;
      operations.push_back(*std::move(operation));
    }
    result.push_back({{"name", column.name}, {"operations", std::move(operations)}});
  }
  return Json{{"columns", std::move(result)}};
}

// `given`, else the variable of the environment, else `otherwise`.
Result<int64_t> GivenOrEnvironment(std::optional<int> given, const char* variable,
                                   int64_t otherwise) {
  if (given.has_value()) return int64_t{*given};
  const std::string text = Environment(variable);
  if (text.empty()) return otherwise;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return ArgumentError(variable, "=\"", text, "\" of the environment is no integer");
  }
  return number;
}

Status SetPlace(const LoaderOptions& options, Request* request) {
  const Result<int64_t> world = GivenOrEnvironment(options.world_size, "WORLD_SIZE", 1);
  if (!world.ok()) return world.status();
  BATCHD_CLIENT_RETURN_IF_ERROR(CheckRange("world_size", *world, 1, kWorldMax));
  const Result<int64_t> rank = GivenOrEnvironment(options.rank, "RANK", 0);
  if (!rank.ok()) return rank.status();
  BATCHD_CLIENT_RETURN_IF_ERROR(CheckRange("rank", *rank, 0, *world - 1));
  request->rank = static_cast<int>(*rank);
  request->world_size = static_cast<int>(*world);
  return Status();
}

const char* Word(Shuffle shuffle) {
  return shuffle == Shuffle::kTorch ? "torch" : shuffle == Shuffle::kFeistel ? "feistel" : "none";
}
const char* Word(LastBatch last_batch) {
  switch (last_batch) {
    case LastBatch::kDrop:
      return "drop";
    case LastBatch::kPad:
      return "pad";
    case LastBatch::kPartial:
      return "partial";
    case LastBatch::kDefault:
      break;
  }
  return "";
}
const char* Word(OnBadSample policy) {
  return policy == OnBadSample::kSkip         ? "skip"
         : policy == OnBadSample::kSubstitute ? "substitute"
                                              : "fail";
}

Status SetSampling(const LoaderOptions& options, Request* request) {
  if (options.batch_size.has_value() == options.global_batch_size.has_value()) {
    return ArgumentError("batch_size and global_batch_size: give exactly one");
  }
  Sampling& sampling = request->sampling;
  if (options.batch_size.has_value()) {
    BATCHD_CLIENT_RETURN_IF_ERROR(CheckRange("batch_size", *options.batch_size, 1, kRowsMax));
    sampling.global_batch_size = *options.batch_size * request->world_size;
  } else {
    sampling.global_batch_size = *options.global_batch_size;
  }
  BATCHD_CLIENT_RETURN_IF_ERROR(
      CheckRange("global_batch_size", sampling.global_batch_size, 1, kRowsMax));
  request->explicit_global_batch_size = options.global_batch_size;
  sampling.seed = options.seed;
  sampling.shuffle = Word(options.shuffle);
  sampling.last_batch = Word(options.last_batch);
  sampling.on_bad_sample = Word(options.on_bad_sample);

  request->bad_samples = Json::object();
  if (options.max_bad_samples.has_value() && options.max_bad_share.has_value()) {
    return ArgumentError("max_bad_samples and max_bad_share: give one at most");
  }
  if (options.max_bad_samples.has_value()) {
    BATCHD_CLIENT_RETURN_IF_ERROR(CheckRange("max_bad_samples", *options.max_bad_samples, 0,
                                             std::numeric_limits<int64_t>::max()));
    request->bad_samples["maxBadCount"] = std::to_string(*options.max_bad_samples);
  }
  if (options.max_bad_share.has_value()) {
    if (!(*options.max_bad_share >= 0 && *options.max_bad_share <= 1)) {
      return ArgumentError("max_bad_share=", *options.max_bad_share,
                           " is out of range; a share is 0 to 1");
    }
    request->bad_samples["maxBadShare"] = *options.max_bad_share;
  }
  return Status();
}

Status SetReconnectTimeout(std::optional<double> given, Request* request) {
  const char* variable = "BATCHD_RECONNECT_TIMEOUT_SECONDS";
  const std::string text = given.has_value() ? "" : Environment(variable);
  double seconds = given.value_or(kReconnectSeconds);
  if (!text.empty()) {
    char* end = nullptr;
    seconds = std::strtod(text.c_str(), &end);
    if (*end != '\0') seconds = -1;
  }
  if (!(seconds >= 0)) {
    return text.empty()
               ? ArgumentError("reconnect_timeout_seconds=", seconds,
                               " is no number of seconds, 0 or more")
               : ArgumentError(variable, "=\"", text, "\" is no number of seconds, 0 or more");
  }
  request->reconnect_timeout_seconds = seconds;
  return Status();
}

}  // namespace

Result<Request> MakeRequest(const LoaderOptions& options) {
  Request request;
  BATCHD_CLIENT_RETURN_IF_ERROR(SetPlace(options, &request));
  BATCHD_CLIENT_RETURN_IF_ERROR(SetSampling(options, &request));
  BATCHD_CLIENT_RETURN_IF_ERROR(CheckRange("prefetch", options.prefetch, 1, kPrefetchMax));
  BATCHD_CLIENT_RETURN_IF_ERROR(SetReconnectTimeout(options.reconnect_timeout_seconds, &request));
  Result<Json> dataset = OperationToJson("dataset", options.dataset);
  if (!dataset.ok()) return dataset.status();
  Result<Json> pipeline = PipelineToJson(options.columns);
  if (!pipeline.ok()) return pipeline.status();
  request.prefetch = options.prefetch;
  request.open = {{"dataset", *std::move(dataset)},
                  {"pipeline", *std::move(pipeline)},
                  {"rank", request.rank},
                  {"worldSize", request.world_size},
                  {"job", options.name},
                  {"clientVersion", "batchd-cpp " BATCHD_VERSION}};
  return request;
}

Json SamplingToJson(const Sampling& sampling, const Json& bad_samples) {
  Json message = bad_samples;
  message["seed"] = std::to_string(sampling.seed);
  message["shuffle"] = EnumName("SHUFFLE_", sampling.shuffle);
  message["globalBatchSize"] = std::to_string(sampling.global_batch_size);
  message["onBadSample"] = EnumName("ON_BAD_SAMPLE_", sampling.on_bad_sample);
  if (!sampling.last_batch.empty()) {
    message["lastBatch"] = EnumName("LAST_BATCH_", sampling.last_batch);
  }
  return message;
}

}  // namespace internal
}  // namespace batchd
