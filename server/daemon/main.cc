// SPDX-License-Identifier: Apache-2.0
//
// `batchd`: the one program. Flags are read here; each command has a file of its own.

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "server/daemon/commands.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/pictures.h"
#include "server/daemon/serve.h"
#include "server/decoder/decode_worker.h"
#include "server/sampling/sampler.h"

namespace batchd {
namespace {

std::optional<std::string> ReadEnv(const std::string& name) {
  const char* const value = getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int RunServe(const RawFlags& flags) {
  const absl::StatusOr<ServeConfig> config = ResolveServeConfig(flags, ReadEnv);
  if (config.ok()) return Serve(*config);
  const int code = Fail(config.status());
  return config.status().code() == absl::StatusCode::kFailedPrecondition ? kExitConfig : code;
}

int RunWorker(int64_t memory_bytes_max) {
  DecoderSet decoders;
  return RunDecodeWorker({.memory_bytes_max = memory_bytes_max,
                          .decoder_for = [&](Bytes bytes) { return decoders.For(bytes); }});
}

// Everything that may be typed.
struct Flags {
  RawFlags serve;
  RawFlags check;
  std::string index_folder;
  PlanFlags plan;
  std::string status_address;
  bool status_json = false;
  std::string health_address = "127.0.0.1:9475";
  std::string plugins_format = "text";
  std::string format = "text";
  DemoFlags demo;
  int64_t worker_memory_bytes = 0;
};

// The settings of serve, for serve and check.
void AddServeFlags(CLI::App* command, RawFlags* flags) {
  for (const Setting& setting : ServeSettings()) {
    const std::string name(setting.name);
    const std::string help(setting.help);
    auto& values = (*flags)[name];
    if (setting.kind == Setting::Kind::kSwitch) {
      command->add_flag_callback(
          "--" + name, [&values] { values = {"true"}; }, help);
    } else {
      auto* const option = command->add_option("--" + name, values, help)->type_name("");
      // One value each time it is given; a repeated single flag is a mistake worth telling.
      option->allow_extra_args(false);
      if (setting.kind == Setting::Kind::kOne) option->expected(1);
    }
  }
  command
      ->add_option("--config", (*flags)["config"],
                   "JSON file with the same names (drain_timeout for --drain-timeout), and "
                   "\"datasets\": {NAME: {\"kind\": …, \"arguments\": {…}}}")
      ->type_name("")
      ->expected(1);
  command->footer(
      std::string("Each flag may come from a variable instead: BATCHD_DRAIN_TIMEOUT for "
                  "--drain-timeout.\nFlags win over variables, these over the file.\n") +
      kExitCodesHelp);
}

void AddPlanFlags(CLI::App* plan, PlanFlags* flags) {
  plan->add_option("folder", flags->folder, "The dataset's folder")->required();
  plan->add_option("--kind", flags->kind, "Kind of dataset")->capture_default_str();
  plan->add_option("--pipeline", flags->pipeline, "Columns as JSON (crop of 224 and label)");
  const CLI::Range sizes(int64_t{1}, kGlobalBatchSizeMax);
  plan->add_option("--batch-size", flags->batch_size, "Rows of each rank")->check(sizes);
  plan->add_option("--global-batch-size", flags->global_batch_size, "Rows of all ranks")
      ->check(sizes);
  plan->add_option("--world-size", flags->world_size, "Number of ranks")
      ->check(CLI::Range(int64_t{1}, int64_t{kWorldSizeMax}))
      ->capture_default_str();
  plan->add_option("--rank", flags->rank, "Whose part")
      ->check(CLI::Range(int64_t{0}, int64_t{kWorldSizeMax - 1}))
      ->capture_default_str();
  plan->add_option("--epoch", flags->epoch, "Which epoch")
      ->check(CLI::Range(int64_t{0}, kEpochMax))
      ->capture_default_str();
  plan->add_option("--seed", flags->seed, "Key of the order")->capture_default_str();
  plan->add_option("--shuffle", flags->shuffle, "none, feistel or torch")
      ->check(CLI::IsMember({"none", "feistel", "torch"}))
      ->capture_default_str();
  plan->add_option("--last-batch", flags->last_batch, "drop, pad or partial")
      ->check(CLI::IsMember({"drop", "pad", "partial"}));
}

void AddFormat(CLI::App* command, std::string* format) {
  command->add_option("--format", *format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

struct Command {
  CLI::App* app;
  std::function<int()> run;
};

std::vector<Command> AddCommands(CLI::App* app, Flags* flags) {
  std::vector<Command> commands;
  const auto add = [&](const char* name, const char* help, std::function<int()> run) {
    CLI::App* const command = app->add_subcommand(name, help);
    commands.push_back({command, std::move(run)});
    return command;
  };
  AddServeFlags(add("serve", "Serve batches to trainers until SIGTERM",
                    [flags] { return RunServe(flags->serve); }),
                &flags->serve);
  CLI::App* const demo = add("demo", "Make a few pictures, read an epoch of them, say how fast",
                             [flags] { return RunDemo(flags->demo); });
  demo->add_option("--count", flags->demo.count, "How many pictures")
      ->check(CLI::Range(int64_t{1}, kPicturesMax))
      ->capture_default_str();
  demo->add_option("--make-images", flags->demo.make_images,
                   "Only make the pictures, in this folder, and keep them");
  add("index", "Write the index of an image folder into it, to travel with the data",
      [flags] { return RunIndex(flags->index_folder); })
      ->add_option("folder", flags->index_folder, "The folder")
      ->required();
  CLI::App* const plan = add("plan", "What an epoch will be, without reading it", [flags] {
    flags->plan.json = flags->format == "json";
    return RunPlan(flags->plan);
  });
  AddPlanFlags(plan, &flags->plan);
  AddFormat(plan, &flags->format);
  CLI::App* const status = add("status", "What a daemon does at this moment", [flags] {
    return RunStatus(flags->status_address, flags->format == "json");
  });
  status
      ->add_option("address", flags->status_address,
                   "unix:PATH or HOST:PORT (this user's private daemon)")
      ->envname("BATCHD_ADDRESS");
  AddFormat(status, &flags->format);
  AddServeFlags(add("check", "Whether this host and the configuration are fit",
                    [flags] { return RunCheck(flags->check, ReadEnv); }),
                &flags->check);
  add("health", "Whether a daemon takes sessions: exit code 0 or 1",
      [flags] { return RunHealth(flags->health_address); })
      ->add_option("--http", flags->health_address, "HOST:PORT of the daemon's HTTP door")
      ->envname("BATCHD_HTTP")
      ->capture_default_str();
  add("plugins", "What can be loaded, decoded and done",
      [flags] {
        return RunPlugins(flags->plugins_format == "json"       ? PluginsFormat::kJson
                          : flags->plugins_format == "markdown" ? PluginsFormat::kMarkdown
                                                                : PluginsFormat::kText);
      })
      ->add_option("--format", flags->plugins_format, "text, json or markdown")
      ->check(CLI::IsMember({"text", "json", "markdown"}))
      ->capture_default_str();
  // For the daemon itself; no help shows it.
  CLI::App* const worker =
      add("decode-worker", "", [flags] { return RunWorker(flags->worker_memory_bytes); });
  worker->group("");
  worker->add_option("memory_bytes", flags->worker_memory_bytes)->required();
  return commands;
}

int Main(int argc, char** argv) {
  CLI::App app("batchd: training batches from a daemon beside the trainer", "batchd");
  app.set_version_flag("--version", "batchd " BATCHD_VERSION);
  app.footer(kExitCodesHelp);
  Flags flags;
  const std::vector<Command> commands = AddCommands(&app, &flags);
  try {  // the library throws, for --help and --version too
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::cerr << "batchd: " << error.what() << "; `batchd --help` and `batchd COMMAND --help` list "
              << "what there is\n";
    return kExitUsage;
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  std::cerr << "batchd: a command is missing; `batchd --help` lists them\n";
  return kExitUsage;
}

}  // namespace

int Fail(const absl::Status& status) {
  std::cerr << "batchd: " << std::string(status.message()) << "\n";
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitData;
  }
}

}  // namespace batchd

int main(int argc, char** argv) { return batchd::Main(argc, argv); }
