// SPDX-License-Identifier: Apache-2.0
#include "client/src/util.h"

#include <charconv>
#include <cstdlib>
#include <system_error>

namespace batchd::internal {
namespace {

template <typename Number>
Number NumberIn(const Json& message, const char* name) {
  const auto found = message.find(name);
  if (found == message.end()) return 0;
  if (found->is_number()) return found->get<Number>();
  Number number = 0;
  if (found->is_string()) {
    const std::string& text = found->get_ref<const std::string&>();
    std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

std::string ErrnoText(int error_number) { return std::generic_category().message(error_number); }

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const Json& ObjectIn(const Json& message, const char* name) {
  static const Json* const nothing = new Json(Json::object());
  const auto found = message.find(name);
  return found != message.end() && found->is_object() ? *found : *nothing;
}

int64_t IntIn(const Json& message, const char* name) { return NumberIn<int64_t>(message, name); }
uint64_t UintIn(const Json& message, const char* name) { return NumberIn<uint64_t>(message, name); }

std::string TextIn(const Json& message, const char* name) {
  const auto found = message.find(name);
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string WordIn(const Json& message, const char* name, std::string_view prefix) {
  std::string word = TextIn(message, name);
  if (word.starts_with(prefix)) word.erase(0, prefix.size());
  for (char& c : word) c = Lower(c);
  return word;
}

std::string EnumName(std::string_view prefix, std::string_view word) {
  std::string name(prefix);
  for (const char c : word) name += Upper(c);
  return name;
}

Result<std::string> Write(const Json& message) {
  try {
    return message.dump();
  } catch (const Json::exception& error) {
    return ArgumentError("an option cannot be sent: ", error.what());
  }
}

}  // namespace batchd::internal
