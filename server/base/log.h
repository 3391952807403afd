// SPDX-License-Identifier: Apache-2.0
//
// Logs are events: a constant phrase, then key=value pairs.
//
//   log::Info("session opened", {{"session_id", 7}, {"transport", "shm"}});
//   2026-11-29T10:00:00.123Z I session opened session_id=7 transport=shm
//
// Never one per batch; what must be watched is a metric. Thread-safe.

#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace batchd::log {

enum class Format { kText, kJson };

// Both may be called at any time. The default is text on standard error.
void SetFormat(Format format);
void SetQuiet(bool only_errors);

// One key=value pair. Strings are quoted where they need it, and escaped.
struct Pair {
  Pair(std::string_view k, std::string_view v) : key(k), value(v), is_string(true) {}
  Pair(std::string_view k, const char* v) : Pair(k, std::string_view(v)) {}
  Pair(std::string_view k, const std::string& v) : Pair(k, std::string_view(v)) {}
  Pair(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  template <typename T>
  requires(std::integral<T> || std::floating_point<T>) Pair(std::string_view k, T v)
      : key(k), value(std::to_string(v)) {}

  std::string_view key;
  std::string value;
  bool is_string = false;
};

void Info(std::string_view event, std::initializer_list<Pair> pairs = {});
void Warn(std::string_view event, std::initializer_list<Pair> pairs = {});
void Error(std::string_view event, std::initializer_list<Pair> pairs = {});

// The line without its time stamp; for tests of quoting and escaping.
std::string FormatEvent(Format format, char level, std::string_view event,
                        std::initializer_list<Pair> pairs);

}  // namespace batchd::log
