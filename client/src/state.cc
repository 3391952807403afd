// SPDX-License-Identifier: Apache-2.0
#include "client/src/state.h"

#include <limits>

namespace batchd::internal {
namespace {

constexpr int kStateVersion = 1;

template <typename... Parts>
Status Mismatch(std::string field, const Parts&... parts) {
  return MakeError(ErrorKind::kStateMismatch, StatusCode::kFailedPrecondition, Cat(parts...),
                   std::move(field));
}

std::string Shown(const Json& state, const char* name) {
  return state.contains(name) ? state[name].dump(-1, ' ', false, Json::error_handler_t::replace)
                              : "(nothing)";
}

Status ReadInt(const Json& state, const char* name, int64_t* value) {
  const auto found = state.find(name);
  if (found == state.end() || !found->is_number_integer() ||
      (found->is_number_unsigned() &&
       found->get<uint64_t>() > std::numeric_limits<int64_t>::max())) {
    return Mismatch(name, name, "=", Shown(state, name), " of the state is no int");
  }
  *value = found->get<int64_t>();
  return Status();
}

Status ReadText(const Json& state, const char* name, std::string* value) {
  const auto found = state.find(name);
  if (found == state.end() || !found->is_string()) {
    return Mismatch(name, name, "=", Shown(state, name), " of the state is no str");
  }
  *value = found->get<std::string>();
  return Status();
}

}  // namespace

Json Position::ToJson() const {
  return {{"epoch", std::to_string(epoch)}, {"step", std::to_string(step)}};
}

std::string Position::ToString() const { return Cat("epoch ", epoch, " step ", step); }

Position After(int64_t epoch, int64_t step, bool last_in_epoch) {
  return last_in_epoch ? Position{epoch + 1, 0} : Position{epoch, step + 1};
}

Result<Position> Normalized(Position position, int64_t steps_per_epoch) {
  if (position.step > steps_per_epoch) {
    return Mismatch("samples", "step ", position.step, " of the state is past the epoch's ",
                    steps_per_epoch, " steps");
  }
  return position.step == steps_per_epoch ? Position{position.epoch + 1, 0} : position;
}

Json Fingerprint::ToJson() const {
  Json message = Json::object();
  if (!dataset.empty()) message["dataset"] = dataset;
  if (!pipeline.empty()) message["pipeline"] = pipeline;
  if (!decoder.empty()) message["decoder"] = decoder;
  return message;
}

std::string WriteState(const RunState& run, Position position) {
  const Json state = {{"version", kStateVersion},
                      {"seed", run.sampling.seed},
                      {"global_batch_size", run.sampling.global_batch_size},
                      {"shuffle", run.sampling.shuffle},
                      {"last_batch", run.sampling.last_batch},
                      {"on_bad_sample", run.sampling.on_bad_sample},
                      {"dataset", run.fingerprint.dataset},
                      {"pipeline", run.fingerprint.pipeline},
                      {"decoder", run.fingerprint.decoder},
                      {"epoch", position.epoch},
                      {"samples", position.step * run.sampling.global_batch_size}};
  return state.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<LoadedState> ReadState(std::string_view text) {
  const Json state = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!state.is_object()) return Mismatch("", "the state is no JSON object");
  if (!state.contains("version") || state["version"] != kStateVersion) {
    return Mismatch("version", "a state of version ", Shown(state, "version"),
                    " cannot be loaded; this client reads ", kStateVersion);
  }
  LoadedState loaded;
  Sampling& sampling = loaded.run.sampling;
  const auto seed = state.find("seed");
  if (seed == state.end() || !seed->is_number_unsigned()) {
    return Mismatch("seed", "seed=", Shown(state, "seed"), " of the state is no int from 0 on");
  }
  sampling.seed = seed->get<uint64_t>();
  int64_t samples = 0;
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadInt(state, "global_batch_size", &sampling.global_batch_size));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadInt(state, "epoch", &loaded.position.epoch));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadInt(state, "samples", &samples));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadText(state, "shuffle", &sampling.shuffle));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadText(state, "last_batch", &sampling.last_batch));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadText(state, "on_bad_sample", &sampling.on_bad_sample));
  Fingerprint& fingerprint = loaded.run.fingerprint;
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadText(state, "dataset", &fingerprint.dataset));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadText(state, "pipeline", &fingerprint.pipeline));
  BATCHD_CLIENT_RETURN_IF_ERROR(ReadText(state, "decoder", &fingerprint.decoder));
  const int64_t size = sampling.global_batch_size;
  if (size < 1 || loaded.position.epoch < 0 || samples < 0 || samples % size != 0) {
    return Mismatch("samples", "epoch=", loaded.position.epoch, " and samples=", samples,
                    " of the state are no place in a run with global_batch_size=", size);
  }
  loaded.position.step = samples / size;
  return loaded;
}

}  // namespace batchd::internal
