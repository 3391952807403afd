// SPDX-License-Identifier: Apache-2.0
//
// The commands of `batchd` besides serve. Each prints its answer on standard output, what is wrong
// on standard error, and returns the process's exit code (exit_codes.h).

#pragma once

#include <cstdint>
#include <string>

#include "server/base/status.h"
#include "server/daemon/config.h"

namespace batchd {

// Prints "batchd: <what is wrong>" and returns the exit code that belongs to the status.
int Fail(const absl::Status& status);

// Writes the index of an image folder into it.
int RunIndex(const std::string& folder);

struct PlanFlags {
  std::string folder;
  std::string kind = "ImageFolder";
  std::string pipeline;  // {"column": [{"name": …, "arguments": {…}}, …], …} in JSON, or ""
  int64_t batch_size = 0;
  int64_t global_batch_size = 0;
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t epoch = 0;
  uint64_t seed = 0;
  std::string shuffle = "none";
  std::string last_batch;  // "": drop when shuffled, else partial
  bool json = false;
};
// What an epoch will be, without reading it.
int RunPlan(const PlanFlags& flags);

// What a daemon does; `address` is unix:PATH (of its data socket), HOST:PORT, or "" for this user's
// private daemon.
int RunStatus(const std::string& address, bool json);

// Whether host and configuration are fit; one line for each check.
int RunCheck(const RawFlags& flags, const EnvReader& env);

// Whether the daemon at `http_address` takes sessions.
int RunHealth(const std::string& http_address);

enum class PluginsFormat { kText, kJson, kMarkdown };
int RunPlugins(PluginsFormat format);
// The machine-readable list: operations, datasets, decoders.
Json PluginsJson();

struct DemoFlags {
  std::string make_images;  // only makes pictures in this folder, and keeps them
  int64_t count = 512;
};
int RunDemo(const DemoFlags& flags);

}  // namespace batchd
