// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/text.h"

#include <cstdint>

#include "fmt/format.h"

namespace batchd {
namespace {

// Length of the UTF-8 character that `text` begins with; 0 if it begins with none. Overlong forms,
// surrogates and what lies above U+10FFFF are none.
size_t CharacterSize(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return size;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace

std::string PrintableName(std::string_view name) {
  if (IsValidUtf8(name)) return std::string(name);
  std::string text;
  while (!name.empty()) {
    const size_t size = CharacterSize(name);
    if (size == 0) {
      text += fmt::format("\\x{:02x}", static_cast<uint8_t>(name[0]));
    } else if (name[0] == '\\') {
      text += "\\\\";
    } else {
      text += name.substr(0, size);
    }
    name.remove_prefix(size == 0 ? 1 : size);
  }
  return text;
}

}  // namespace batchd
