// SPDX-License-Identifier: Apache-2.0
//
// The C++ client behind the tests of tests/behaviour: a command a line on stdin, an answer a line
// on stdout, both JSON. python_driver.py is the same for the other client; clients.py says what the
// commands are.

#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "batchd/loader.h"

namespace {

using Json = nlohmann::json;

// The names of the Python client's exceptions.
const char* KindName(batchd::ErrorKind kind) {
  switch (kind) {
    case batchd::ErrorKind::kArgument:
      return "Argument";
    case batchd::ErrorKind::kOpen:
      return "OpenError";
    case batchd::ErrorKind::kStateMismatch:
      return "StateMismatch";
    case batchd::ErrorKind::kSample:
      return "SampleError";
    case batchd::ErrorKind::kSlotsExhausted:
      return "SlotsExhausted";
    case batchd::ErrorKind::kUnavailable:
      return "Unavailable";
    case batchd::ErrorKind::kConnectionLost:
      return "ConnectionLost";
    case batchd::ErrorKind::kProtocol:
      return "ProtocolError";
    case batchd::ErrorKind::kFork:
      return "ForkError";
    case batchd::ErrorKind::kNone:
    case batchd::ErrorKind::kOther:
      break;
  }
  return "BatchdError";
}

Json ErrorJson(const batchd::Status& status) {
  Json error = {{"kind", KindName(status.kind())},
                {"code", batchd::StatusCodeName(status.code())},
                {"message", status.message()},
                {"field", status.field()}};
  if (const batchd::SampleFault* sample = status.sample(); sample != nullptr) {
    error["reason"] = sample->reason;
    error["ordinal"] = sample->ordinal;
    error["sample_name"] = sample->name;
    error["next_state"] = Json::parse(sample->next_state);
  }
  if (const batchd::SlotsFault* slots = status.slots(); slots != nullptr) {
    error["held_slots"] = slots->held_slots;
    error["slab_size_bytes"] = slots->slab_size_bytes;
  }
  return {{"error", error}};
}

// Of all that a batch holds, columns in the order of their names.
uint64_t Digest(const batchd::Batch& batch, const std::vector<batchd::ColumnSpec>& specs) {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_64bits_reset(state);
  const int64_t address[] = {batch.epoch(), batch.step(), batch.rows()};
  XXH3_64bits_update(state, address, sizeof(address));
  XXH3_64bits_update(state, batch.sample_ids().data(), batch.sample_ids().size_bytes());
  XXH3_64bits_update(state, batch.row_status().data(), batch.row_status().size_bytes());
  std::set<std::string> names;
  for (const batchd::ColumnSpec& spec : specs) names.insert(spec.name);
  for (const std::string& name : names) {
    const batchd::Result<batchd::Column> column = batch.column(name);
    if (!column.ok()) return 0;
    XXH3_64bits_update(state, column->data(), column->size_bytes());
  }
  const uint64_t digest = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return digest;
}

class Driver {
 public:
  Json Do(const Json& command) {
    const std::string name = command["do"];
    if (name == "open") return Open(command["options"]);
    batchd::Loader& loader = *loaders_.at(command["loader"]);
    if (name == "next") {
      if (!command.contains("drop")) return Next(&loader, command.value("hold", false));
      // Another thread lets go of a batch while Next() waits, when somebody opens the FIFO.
      std::thread dropper([this, &command] {
        std::ifstream(command["when"].get<std::string>()).get();
        held_.erase(command["drop"].get<int>());
      });
      Json answer = Next(&loader, false);
      dropper.join();
      return answer;
    }
    if (name == "next_in_threads") return NextInThreads(&loader, command["count"]);
    if (name == "digest") return Look(command["batch"]);
    if (name == "release") {
      held_.at(command["batch"]).first.Release();
      return Json::object();
    }
    if (name == "drop") {
      held_.erase(command["batch"].get<int>());
      return Json::object();
    }
    if (name == "copy") return Copy(command["batch"]);
    if (name == "state") return {{"state", Json::parse(loader.State())}};
    if (name == "load_state") {
      return Done(loader.LoadState(command["state"].dump(), command.value("strict", true)));
    }
    if (name == "set_epoch") return Done(loader.SetEpoch(command["epoch"]));
    if (name == "peek") return Peek(&loader, command["count"]);
    if (name == "classes") return Names(loader.Classes());
    if (name == "names_of") {
      return Names(loader.NamesOf(command["ids"].get<std::vector<int64_t>>()));
    }
    if (name == "about") return About(loader);
    if (name == "fork") {
      return Fork(&loader, command.value("stay", ""), command.value("bare", false));
    }
    if (name == "close") {
      loader.Close();
      return Json::object();
    }
    return {{"error", {{"kind", "Driver"}, {"message", "unknown command " + name}}}};
  }

 private:
  static Json Done(const batchd::Status& status) {
    return status.ok() ? Json::object() : ErrorJson(status);
  }
  static Json Names(const batchd::Result<std::vector<std::string>>& names) {
    return names.ok() ? Json{{"names", *names}} : ErrorJson(names.status());
  }

  Json Open(const Json& options);

  Json Next(batchd::Loader* loader, bool is_held) {
    batchd::Result<batchd::Batch> batch = loader->Next();
    if (!batch.ok()) return ErrorJson(batch.status());
    Json answer = Describe(*batch, loader->columns());
    if (is_held) answer["batch"] = Hold(*std::move(batch), loader->columns());
    return answer;
  }

  // Each batch is read and given back by one of four threads, while this one takes the next.
  static Json NextInThreads(batchd::Loader* loader, int count) {
    std::vector<uint64_t> digests(static_cast<size_t>(count));
    std::vector<std::vector<std::thread>> threads(4);
    for (int i = 0; i < count; ++i) {
      batchd::Result<batchd::Batch> batch = loader->Next();
      if (!batch.ok()) std::abort();
      std::vector<std::thread>& mine = threads[static_cast<size_t>(i) % threads.size()];
      if (!mine.empty()) mine.back().join();
      mine.emplace_back([&digest = digests[static_cast<size_t>(i)], batch = *std::move(batch),
                         specs = loader->columns(), i]() mutable {
        digest = Digest(batch, specs);
        if (i % 3 == 0) batch.Release();
      });
    }
    for (std::vector<std::thread>& mine : threads) {
      if (!mine.empty()) mine.back().join();
    }
    return {{"digests", digests}};
  }

  Json Describe(const batchd::Batch& batch, const std::vector<batchd::ColumnSpec>& specs) {
    Json status = Json::array();
    for (const batchd::RowStatus row : batch.row_status()) status.push_back(static_cast<int>(row));
    return {{"epoch", batch.epoch()},
            {"step", batch.step()},
            {"rows", batch.rows()},
            {"valid_rows", batch.valid_rows()},
            {"last_in_epoch", batch.last_in_epoch()},
            {"ids", std::vector<int64_t>(batch.sample_ids().begin(), batch.sample_ids().end())},
            {"row_status", status},
            {"digest", Digest(batch, specs)},
            {"state", Json::parse(batch.State())}};
  }

  int Hold(batchd::Batch batch, std::vector<batchd::ColumnSpec> specs) {
    held_.emplace(++last_held_, std::make_pair(std::move(batch), std::move(specs)));
    return last_held_;
  }

  Json Look(int held) {
    const auto& [batch, specs] = held_.at(held);
    const batchd::Result<batchd::Column> column = batch.column(specs.front().name);
    if (!column.ok()) return ErrorJson(column.status());
    return {{"digest", Digest(batch, specs)}};
  }

  Json Copy(int held) {
    const auto& [batch, specs] = held_.at(held);
    batchd::Result<batchd::Batch> copy = batch.Copy();
    if (!copy.ok()) return ErrorJson(copy.status());
    return {{"batch", Hold(*std::move(copy), specs)}};
  }

  Json Peek(batchd::Loader* loader, int count) {
    const batchd::Result<std::vector<batchd::Batch>> batches = loader->Peek(count);
    if (!batches.ok()) return ErrorJson(batches.status());
    Json answer = Json::array();
    for (const batchd::Batch& batch : *batches) {
      answer.push_back(Describe(batch, loader->columns()));
    }
    return {{"batches", answer}};
  }

  Json About(const batchd::Loader& loader) {
    Json columns = Json::object();
    for (const batchd::ColumnSpec& spec : loader.columns()) {
      columns[spec.name] = {batchd::DTypeName(spec.dtype), spec.shape};
    }
    return {{"steps", loader.steps_per_epoch()},
            {"samples", loader.num_samples()},
            {"epoch", loader.epoch()},
            {"reconnects", loader.reconnects()},
            {"transport", loader.transport() == batchd::Transport::kShm ? "shm" : "grpc"},
            {"columns", columns},
            {"text", loader.ToString()},
            {"log", *log_}};
  }

  // What a forked child sees: the kind of error of each call. Then it tries to give all back; with
  // `stay` it lives on until somebody opens that FIFO. `bare`: no handler sees the fork.
  Json Fork(batchd::Loader* loader, const std::string& stay, bool is_bare) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    const pid_t child = is_bare ? _Fork() : fork();
    if (child == 0) {
      const std::vector<int64_t> ids = {1};
      const Json kinds = {KindName(loader->Next().status().kind()),
                          KindName(loader->NamesOf(ids).status().kind()),
                          KindName(loader->Peek().status().kind())};
      if (stay.empty()) {
        for (auto& [number, held] : held_) held.first.Release();
        held_.clear();
        loader->Close();
      }
      const std::string text = kinds.dump();
      const bool is_written = write(ends[1], text.data(), text.size()) > 0;
      if (!stay.empty()) std::ifstream(stay).get();
      _exit(is_written ? 0 : 1);
    }
    close(ends[1]);
    std::string text(1000, '\0');
    text.resize(std::max<ssize_t>(read(ends[0], text.data(), text.size()), 0));
    close(ends[0]);
    if (!stay.empty()) return {{"kinds", Json::parse(text)}};
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return {{"error", {{"kind", "Driver"}, {"message", "the child has died"}}}};
    return {{"kinds", Json::parse(text)}};
  }

  std::map<int, std::unique_ptr<batchd::Loader>> loaders_;
  std::map<int, std::pair<batchd::Batch, std::vector<batchd::ColumnSpec>>> held_;
  int last_held_ = 0;
  std::shared_ptr<std::vector<std::string>> log_ = std::make_shared<std::vector<std::string>>();
};

template <typename Enum>
Enum WordOf(const Json& options, const char* name, std::map<std::string, Enum> words) {
  return options.contains(name) ? words.at(options[name]) : Enum{};
}

template <typename T>
void Set(const Json& options, const char* name, T* value) {
  if (options.contains(name)) *value = options[name].get<T>();
}
template <typename T>
void Set(const Json& options, const char* name, std::optional<T>* value) {
  if (options.contains(name)) *value = options[name].get<T>();
}

Json Driver::Open(const Json& given) {
  batchd::LoaderOptions options;
  options.dataset = given.contains("root") ? batchd::ImageFolder(given["root"].get<std::string>())
                                           : batchd::Operation{given.value("dataset", "x")};
  for (const Json& column : given["columns"]) {
    batchd::ColumnOptions& added = options.columns.emplace_back();
    added.name = column[0];
    for (const Json& operation : column[1]) {
      added.operations.push_back({operation[0], operation[1].dump()});
    }
  }
  options.shuffle = WordOf<batchd::Shuffle>(
      given, "shuffle",
      {{"feistel", batchd::Shuffle::kFeistel}, {"torch", batchd::Shuffle::kTorch}});
  options.last_batch = WordOf<batchd::LastBatch>(given, "last_batch",
                                                 {{"drop", batchd::LastBatch::kDrop},
                                                  {"pad", batchd::LastBatch::kPad},
                                                  {"partial", batchd::LastBatch::kPartial}});
  options.on_bad_sample =
      WordOf<batchd::OnBadSample>(given, "on_bad_sample",
                                  {{"fail", batchd::OnBadSample::kFail},
                                   {"skip", batchd::OnBadSample::kSkip},
                                   {"substitute", batchd::OnBadSample::kSubstitute}});
  options.transport = WordOf<batchd::Transport>(
      given, "transport", {{"shm", batchd::Transport::kShm}, {"grpc", batchd::Transport::kGrpc}});
  Set(given, "batch_size", &options.batch_size);
  Set(given, "global_batch_size", &options.global_batch_size);
  Set(given, "seed", &options.seed);
  Set(given, "max_bad_samples", &options.max_bad_samples);
  Set(given, "max_bad_share", &options.max_bad_share);
  Set(given, "prefetch", &options.prefetch);
  Set(given, "name", &options.name);
  Set(given, "rank", &options.rank);
  Set(given, "world_size", &options.world_size);
  Set(given, "address", &options.address);
  Set(given, "reconnect_timeout", &options.reconnect_timeout_seconds);
  options.log = [log = log_](std::string_view line) { log->emplace_back(line); };
  batchd::Result<batchd::Loader> loader = batchd::Loader::Open(std::move(options));
  if (!loader.ok()) return ErrorJson(loader.status());
  const int number = static_cast<int>(loaders_.size()) + 1;
  loaders_[number] = std::make_unique<batchd::Loader>(*std::move(loader));
  return {{"loader", number}};
}

}  // namespace

int main() {
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << driver.Do(Json::parse(line)).dump() << std::endl;
  }
}
