// SPDX-License-Identifier: Apache-2.0
#include "server/base/log.h"

#include <atomic>
#include <memory>

#include "nlohmann/json.hpp"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace batchd::log {
namespace {

std::atomic<Format> format{Format::kText};

// A logger of our own: the process may use spdlog's default one for itself.
spdlog::logger& Logger() {
  static auto* logger = [] {
    auto* made = new spdlog::logger("batchd", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v", spdlog::pattern_time_type::utc);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

std::string JsonText(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool NeedsQuotes(std::string_view value) {
  if (value.empty()) return true;
  for (const unsigned char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7F) return true;
  }
  return false;
}

std::string TimeText() {
  const auto now = spdlog::log_clock::now();
  const auto since_epoch = now.time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm tm{};
  gmtime_r(&seconds, &tm);
  return fmt::format("{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}.{:03d}Z", tm.tm_year + 1900,
                     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ms % 1000);
}

void Write(spdlog::level::level_enum level, char letter, std::string_view event,
           std::initializer_list<Pair> pairs) {
  const Format f = format.load(std::memory_order_relaxed);
  const std::string line = FormatEvent(f, letter, event, pairs);
  if (f == Format::kJson) {
    Logger().log(level, "{{\"ts\":\"{}\",{}", TimeText(), line.substr(1));
  } else {
    Logger().log(level, "{} {}", TimeText(), line);
  }
}

}  // namespace

void SetFormat(Format f) { format.store(f, std::memory_order_relaxed); }

void SetQuiet(bool only_errors) {
  Logger().set_level(only_errors ? spdlog::level::err : spdlog::level::info);
}

std::string FormatEvent(Format f, char level, std::string_view event,
                        std::initializer_list<Pair> pairs) {
  std::string line;
  if (f == Format::kJson) {
    line = fmt::format("{{\"level\":\"{}\",\"event\":{}", level, JsonText(event));
    for (const Pair& p : pairs) {
      line += fmt::format(",{}:{}", JsonText(p.key), p.is_string ? JsonText(p.value) : p.value);
    }
    return line + "}";
  }
  line = fmt::format("{} {}", level, event);
  for (const Pair& p : pairs) {
    const bool quote = p.is_string && NeedsQuotes(p.value);
    line += fmt::format(" {}={}", p.key, quote ? JsonText(p.value) : p.value);
  }
  return line;
}

void Info(std::string_view event, std::initializer_list<Pair> pairs) {
  Write(spdlog::level::info, 'I', event, pairs);
}
void Warn(std::string_view event, std::initializer_list<Pair> pairs) {
  Write(spdlog::level::warn, 'W', event, pairs);
}
void Error(std::string_view event, std::initializer_list<Pair> pairs) {
  Write(spdlog::level::err, 'E', event, pairs);
}

}  // namespace batchd::log
