// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "server/base/status.h"

namespace batchd {
namespace {

using Kind = Setting::Kind;

constexpr Setting kSettings[] = {
    {"listen", Kind::kList,
     "unix:PATH (data socket at PATH, gRPC at PATH.grpc) or HOST:PORT (gRPC); repeatable"},
    {"i-trust-this-network", Kind::kSwitch,
     "Accept gRPC over TCP without TLS: whoever reaches the port can read the data"},
    {"http", Kind::kOne,
     "HOST:PORT of /metrics, /livez, /readyz and / (127.0.0.1:9475; any free port if private)"},
    {"root", Kind::kList,
     "Folder below which clients may open datasets that no configuration names; repeatable"},
    {"cpus", Kind::kOne, "Threads that decode and transform (as many as the allowed cores)"},
    {"memory", Kind::kOne,
     "Bytes for slabs, decode scratch and encoded data together, with K, M, G or T "
     "(80 % of the cgroup's limit, else half of the machine's memory)"},
    {"decode-isolation", Kind::kOne,
     "none, or process: pictures are decoded in confined processes, so that one that breaks its "
     "decoder costs that sample alone (none)"},
    {"log-format", Kind::kOne, "text or json (text)"},
    {"state-dir", Kind::kOne, "Folder for index caches; may be deleted at any time (none)"},
    {"private", Kind::kSwitch,
     "For this user only, any dataset it can read; ends BATCHD_PRIVATE_LINGER_SECONDS (60) after "
     "the last client. Clients start such a daemon themselves"},
    {"drain-timeout", Kind::kOne, "Seconds that SIGTERM gives clients to finish (30)"},
};

// Where a value comes from, and so how it is named in an error.
struct Found {
  std::vector<std::string> values;
  std::string label;  // "--cpus", "BATCHD_CPUS" or "cpus"
  std::string file;   // of the configuration, or ""

  absl::Status Wrong(const std::string& value, const std::string& what) const {
    if (file.empty()) {
      return Err(absl::StatusCode::kInvalidArgument, "{}={}: {}", label, value, what);
    }
    return Err(absl::StatusCode::kFailedPrecondition, "{}: \"{}\": {}: {}", file, label, value,
               what);
  }
};

std::string EnvName(std::string_view setting) {
  std::string name = "BATCHD_";
  for (const char c : setting) name += c == '-' ? '_' : static_cast<char>(toupper(c));
  return name;
}

std::string KeyName(std::string_view setting) {
  std::string name(setting);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

absl::Status FileError(const std::string& path, const std::string& what) {
  return Err(absl::StatusCode::kFailedPrecondition, "{}: {}", path, what);
}

absl::StatusOr<Json> ReadJsonFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return FileError(path, ErrnoText("open", errno));
  std::ostringstream text;
  text << file.rdbuf();
  try {  // the parser throws; its message has line and column
    Json json = Json::parse(text.str());
    if (!json.is_object()) return FileError(path, "not a JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    return FileError(path, error.what());
  }
}

// A JSON scalar as one would type it.
std::optional<std::string> ScalarText(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number() || json.is_boolean()) return json.dump();
  return std::nullopt;
}

absl::Status ReadDatasets(const std::string& path, const Json& json, ServeConfig* config) {
  if (!json.is_object()) return FileError(path, "\"datasets\" is not an object of name → dataset");
  for (const auto& [name, entry] : json.items()) {
    const std::string where = fmt::format("\"datasets\": \"{}\"", name);
    if (name.empty() || !entry.is_object() || !entry.contains("kind") ||
        !entry["kind"].is_string()) {
      return FileError(path, where + R"( is not {"kind": "ImageFolder", "arguments": {…}})");
    }
    for (const auto& [key, value] : entry.items()) {
      if (key != "kind" && key != "arguments") {
        return FileError(
            path, fmt::format("{}: unknown key \"{}\"; there are kind, arguments", where, key));
      }
    }
    OperationSpec spec{entry["kind"].get<std::string>(), entry.value("arguments", Json::object())};
    const DatasetKind* const kind = FindDataset(spec.name);
    if (kind == nullptr) {
      return FileError(path, fmt::format("{}: there is no kind \"{}\"; `batchd plugins` lists them",
                                         where, spec.name));
    }
    const auto checked = CheckArguments(kind->schema(), spec.arguments, "arguments");
    if (!checked.ok()) {
      return FileError(path, fmt::format("{}: {}", where, std::string(checked.status().message())));
    }
    config->datasets.emplace_back(name, std::move(spec));
  }
  return absl::OkStatus();
}

// The file's settings, as if they had been typed.
absl::Status ReadConfigFile(const std::string& path, std::map<std::string, Found>* found,
                            ServeConfig* config) {
  BATCHD_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  std::string names = "datasets";
  for (const Setting& setting : kSettings) names += ", " + KeyName(setting.name);
  for (const auto& [key, value] : json.items()) {
    if (key == "datasets") {
      BATCHD_RETURN_IF_ERROR(ReadDatasets(path, value, config));
      continue;
    }
    const auto* const setting =
        std::find_if(std::begin(kSettings), std::end(kSettings),
                     [&key = key](const Setting& s) { return KeyName(s.name) == key; });
    if (setting == std::end(kSettings)) {
      return FileError(path, fmt::format("unknown key \"{}\"; there are {}", key, names));
    }
    Found entry{{}, key, path};
    const Json list = value.is_array() ? value : Json::array({value});
    if (value.is_array() && setting->kind != Kind::kList) {
      return FileError(path, fmt::format("\"{}\": a list, where one value is wanted", key));
    }
    for (const Json& item : list) {
      const auto text = ScalarText(item);
      if (!text.has_value()) {
        return FileError(
            path, fmt::format("\"{}\": {} is no text, number or truth value", key, item.dump()));
      }
      entry.values.push_back(*text);
    }
    found->emplace(std::string(setting->name), std::move(entry));
  }
  return absl::OkStatus();
}

// Every setting that was given somewhere, from the place that counts.
absl::StatusOr<std::map<std::string, Found>> Collect(const RawFlags& flags, const EnvReader& env,
                                                     ServeConfig* config) {
  std::map<std::string, Found> found;
  for (const Setting& setting : kSettings) {
    const std::string name(setting.name);
    const auto flag = flags.find(name);
    if (flag != flags.end() && !flag->second.empty()) {
      found.emplace(name, Found{flag->second, "--" + name, ""});
    } else if (const auto value = env(EnvName(name)); value.has_value() && !value->empty()) {
      found.emplace(name, Found{{*value}, EnvName(name), ""});
    }
  }
  const auto flag = flags.find("config");
  std::optional<std::string> path = env("BATCHD_CONFIG");
  if (flag != flags.end() && !flag->second.empty()) path = flag->second.front();
  if (path.has_value() && !path->empty()) {
    BATCHD_RETURN_IF_ERROR(ReadConfigFile(*path, &found, config));
  }
  return found;
}

absl::StatusOr<double> ToNumber(const Found& found, double min, double max, bool whole) {
  const std::string& text = found.values.front();
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || !(value >= min && value <= max) ||
      (whole && value != std::floor(value))) {
    return found.Wrong(text, fmt::format("must be {} from {} to {}",
                                         whole ? "a whole number" : "a number", min, max));
  }
  return value;
}

absl::StatusOr<bool> ToSwitch(const Found& found) {
  const std::string& text = found.values.front();
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return found.Wrong(text, "must be true or false");
}

absl::Status ReadListen(const Found& found, bool trusted, ServeConfig* config) {
  for (const std::string& address : found.values) {
    if (address.starts_with("unix:")) {
      const std::string path = address.substr(5);
      if (path.empty()) return found.Wrong(address, "has no path, as in unix:/run/batchd/sock");
      config->sockets.push_back(std::filesystem::absolute(path).lexically_normal());
      continue;
    }
    const size_t colon = address.rfind(':');
    int port = -1;
    const char* const end = address.data() + address.size();
    if (colon != std::string::npos && colon > 0) {
      const auto [rest, error] = std::from_chars(address.data() + colon + 1, end, port);
      if (error != std::errc() || rest != end) port = -1;
    }
    if (port < 0 || port > 65535) {
      return found.Wrong(address, "is neither unix:PATH nor HOST:PORT with a port of 0 to 65535");
    }
    if (!trusted) {
      return found.Wrong(
          address,
          "gRPC over TCP has no TLS here, so whoever reaches the port can read the "
          "data; say --i-trust-this-network if that is right, or listen on unix:PATH");
    }
    config->tcp.push_back(address);
  }
  return absl::OkStatus();
}

absl::Status ReadRoots(const Found& found, ServeConfig* config) {
  for (const std::string& root : found.values) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::canonical(root, error);
    if (error || !std::filesystem::is_directory(path, error)) {
      return found.Wrong(root, "is no folder that can be opened");
    }
    config->roots.push_back(path);
  }
  return absl::OkStatus();
}

// What a private daemon's clients hand down; no setting, since nobody types it.
absl::Status ReadLinger(const EnvReader& env, ServeConfig* config) {
  constexpr char kName[] = "BATCHD_PRIVATE_LINGER_SECONDS";
  const auto value = env(kName);
  if (!value.has_value() || value->empty()) return absl::OkStatus();
  BATCHD_ASSIGN_OR_RETURN(config->private_linger_seconds,
                          ToNumber(Found{{*value}, kName, ""}, 0, 86400, false));
  return absl::OkStatus();
}

}  // namespace

std::span<const Setting> ServeSettings() { return kSettings; }

std::optional<int64_t> ParseBytes(std::string_view text) {
  static constexpr std::string_view kSuffixes = "KMGT";
  int shift = 0;
  if (!text.empty()) {
    const size_t suffix = kSuffixes.find(static_cast<char>(toupper(text.back())));
    if (suffix != std::string_view::npos) {
      shift = 10 * static_cast<int>(suffix + 1);
      text.remove_suffix(1);
    }
  }
  int64_t value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || rest != text.data() + text.size())
    return std::nullopt;
  if (value < 0 || value > (std::numeric_limits<int64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

absl::StatusOr<ServeConfig> ResolveServeConfig(const RawFlags& flags, const EnvReader& env) {
  ServeConfig config;
  BATCHD_ASSIGN_OR_RETURN(const auto found, Collect(flags, env, &config));
  const auto get = [&](const char* name) -> const Found* {
    const auto it = found.find(name);
    return it == found.end() || it->second.values.empty() ? nullptr : &it->second;
  };
  bool trusted = false;
  if (const Found* f = get("i-trust-this-network")) {
    BATCHD_ASSIGN_OR_RETURN(trusted, ToSwitch(*f));
  }
  if (const Found* f = get("private")) {
    BATCHD_ASSIGN_OR_RETURN(config.is_private, ToSwitch(*f));
  }
  config.http = config.is_private ? "127.0.0.1:0" : "127.0.0.1:9475";
  if (const Found* f = get("http")) config.http = f->values.front();
  if (const Found* f = get("state-dir")) config.state_dir = f->values.front();
  if (const Found* f = get("root")) BATCHD_RETURN_IF_ERROR(ReadRoots(*f, &config));
  if (const Found* f = get("listen")) BATCHD_RETURN_IF_ERROR(ReadListen(*f, trusted, &config));
  if (const Found* f = get("cpus")) {
    BATCHD_ASSIGN_OR_RETURN(const double cpus, ToNumber(*f, 1, kCpusMax, true));
    config.cpus = static_cast<int>(cpus);
  }
  if (const Found* f = get("memory")) {
    const auto bytes = ParseBytes(f->values.front());
    if (!bytes.has_value() || *bytes < (int64_t{16} << 20)) {
      return f->Wrong(f->values.front(), "must be a number of bytes, 16M or more, as in 4G");
    }
    config.memory_bytes = *bytes;
  }
  if (const Found* f = get("decode-isolation")) {
    const std::string& isolation = f->values.front();
    if (isolation != "none" && isolation != "process") {
      return f->Wrong(isolation, "must be none or process");
    }
    config.isolates_decoding = isolation == "process";
  }
  if (const Found* f = get("log-format")) {
    const std::string& format = f->values.front();
    if (format != "text" && format != "json") return f->Wrong(format, "must be text or json");
    config.json_log = format == "json";
  }
  if (const Found* f = get("drain-timeout")) {
    BATCHD_ASSIGN_OR_RETURN(config.drain_timeout_seconds,
                            ToNumber(*f, 0, kDrainTimeoutSecondsMax, false));
  }
  BATCHD_RETURN_IF_ERROR(ReadLinger(env, &config));
  if (config.sockets.empty() && config.tcp.empty()) {
    return Err(absl::StatusCode::kInvalidArgument,
               "--listen is missing: say where, as in --listen unix:/run/batchd/sock");
  }
  if (config.is_private && !config.tcp.empty()) {
    return Err(absl::StatusCode::kInvalidArgument,
               "--private serves this user only and so no TCP address ({}); leave one of them out",
               config.tcp.front());
  }
  return config;
}

}  // namespace batchd
