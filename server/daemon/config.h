// SPDX-License-Identifier: Apache-2.0
//
// The configuration of `batchd serve`: flags over BATCHD_* variables over a JSON file over
// defaults. The names are the same everywhere: --drain-timeout, BATCHD_DRAIN_TIMEOUT,
// "drain_timeout".

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/pipeline/plan.h"

namespace batchd {

// One setting. The table of all of them is what flags, variables, file and --help are made from.
struct Setting {
  enum class Kind { kOne, kList, kSwitch };
  std::string_view name;  // "drain-timeout"
  Kind kind;
  std::string_view help;
};
std::span<const Setting> ServeSettings();

struct ServeConfig {
  std::vector<std::string> sockets;  // data socket paths, absolute; gRPC is at <path>.grpc
  std::vector<std::string> tcp;      // HOST:PORT of gRPC
  std::string http;                  // HOST:PORT
  std::vector<std::string> roots;    // absolute, existing folders
  int cpus = 0;                      // 0: as many as allowed
  int64_t memory_bytes = 0;          // 0: the default
  bool isolates_decoding = false;    // pictures are decoded in processes
  bool json_log = false;
  std::string state_dir;  // "" for none
  bool is_private = false;
  double drain_timeout_seconds = 30;
  double private_linger_seconds = 60;
  std::vector<std::pair<std::string, OperationSpec>> datasets;
};

inline constexpr int kCpusMax = 1024;
inline constexpr double kDrainTimeoutSecondsMax = 3600;

// What was typed: setting → values; a switch has the value "true".
using RawFlags = std::map<std::string, std::vector<std::string>>;
// The value of an environment variable, or nothing.
using EnvReader = std::function<std::optional<std::string>(const std::string& name)>;

// Errors: INVALID_ARGUMENT naming the flag or variable, its value and what would be right;
// FAILED_PRECONDITION naming the file and the key, where the fault is in the file.
absl::StatusOr<ServeConfig> ResolveServeConfig(const RawFlags& flags, const EnvReader& env);

// "64M" → 67108864; suffixes K, M, G, T are powers of 1024. Nothing if it is none.
std::optional<int64_t> ParseBytes(std::string_view text);

}  // namespace batchd
