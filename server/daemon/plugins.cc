// SPDX-License-Identifier: Apache-2.0
#include <iostream>

#include "server/daemon/commands.h"
#include "server/daemon/exit_codes.h"
#include "server/decoder/decoder.h"
#include "server/transform/transform.h"

namespace batchd {
namespace {

std::string RangeText(const Json& param) {
  std::string text = param["type"].get<std::string>();
  if (param.contains("choices")) {
    text.clear();
    for (const Json& choice : param["choices"]) {
      text += (text.empty() ? "" : " or ") + choice.dump();
    }
    return text;
  }
  if (param.contains("min") && param.contains("max")) {
    text += fmt::format(", {} to {}", param["min"].get<double>(), param["max"].get<double>());
  } else if (param.contains("min")) {
    text += fmt::format(", at least {}", param["min"].get<double>());
  } else if (param.contains("max")) {
    text += fmt::format(", at most {}", param["max"].get<double>());
  }
  return text;
}

std::string DefaultText(const Json& param) {
  return param["required"].get<bool>() ? "must be given" : param["default"].dump();
}

void PrintMarkdown(const Json& entries) {
  for (const Json& entry : entries) {
    std::cout << fmt::format("### {}\n\n{}\n\n", entry["name"].get<std::string>(),
                             entry["sentence"].get<std::string>());
    if (entry["params"].empty()) continue;
    std::cout << "| argument | meaning | values | default |\n|---|---|---|---|\n";
    for (const Json& param : entry["params"]) {
      std::cout << fmt::format("| `{}` | {} | {} | {} |\n", param["name"].get<std::string>(),
                               param["sentence"].get<std::string>(), RangeText(param),
                               DefaultText(param));
    }
    std::cout << "\n";
  }
}

void PrintText(const Json& entries) {
  for (const Json& entry : entries) {
    std::cout << fmt::format("  {:<22} {}\n", entry["name"].get<std::string>(),
                             entry["sentence"].get<std::string>());
    for (const Json& param : entry["params"]) {
      std::cout << fmt::format(
          "      {:<18} {} ({}; default {})\n", param["name"].get<std::string>(),
          param["sentence"].get<std::string>(), RangeText(param), DefaultText(param));
    }
  }
}

}  // namespace

Json PluginsJson() {
  Json operations = Json::array();
  const auto add = [&operations](const Schema& schema, const char* stage) {
    Json entry = SchemaToJson(schema);
    entry["stage"] = stage;
    operations.push_back(std::move(entry));
  };
  for (const Schema* const schema : ColumnSourceSchemas()) add(*schema, "source");
  for (const TransformKind* const kind : TransformKinds()) add(kind->schema(), "transform");
  Json datasets = Json::array();
  for (const DatasetKind* const kind : DatasetKinds()) {
    datasets.push_back(SchemaToJson(kind->schema()));
  }
  Json decoders = Json::array();
  for (const DecoderKind* const kind : DecoderKinds()) {
    decoders.push_back({{"name", std::string(kind->name)},
                        {"sentence", std::string(kind->sentence)},
                        {"build", kind->build()}});
  }
  return {{"operations", std::move(operations)},
          {"datasets", std::move(datasets)},
          {"decoders", std::move(decoders)}};
}

int RunPlugins(PluginsFormat format) {
  const Json all = PluginsJson();
  if (format == PluginsFormat::kJson) {
    std::cout << all.dump(2) << "\n";
    return kExitOk;
  }
  const bool markdown = format == PluginsFormat::kMarkdown;
  for (const char* const part : {"operations", "datasets"}) {
    std::cout << (markdown ? "## " : "") << part << (markdown ? "\n\n" : "\n");
    markdown ? PrintMarkdown(all[part]) : PrintText(all[part]);
  }
  // A page has no build: that is this machine's.
  std::cout << (markdown ? "## decoders\n\n| name | what |\n|---|---|\n" : "decoders\n");
  for (const Json& decoder : all["decoders"]) {
    const auto name = decoder["name"].get<std::string>();
    const auto sentence = decoder["sentence"].get<std::string>();
    if (markdown) {
      std::cout << fmt::format("| `{}` | {} |\n", name, sentence);
    } else {
      std::cout << fmt::format("  {:<22} {} ({})\n", name, sentence,
                               decoder["build"].get<std::string>());
    }
  }
  return kExitOk;
}

}  // namespace batchd
