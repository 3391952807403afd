// SPDX-License-Identifier: Apache-2.0
//
// Hashes, from xxHash. They find accidents, not attacks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace batchd {

uint32_t Xxh32(std::string_view bytes);
uint64_t Xxh3(const void* data, size_t size_bytes);

// XXH3-128 over what is added, as 32 hexadecimal digits. Add() puts the length before the bytes, so
// that ("ab", "c") and ("a", "bc") differ. Thread-compatible.
class Fingerprinter {
 public:
  Fingerprinter();
  ~Fingerprinter();
  void Add(std::string_view bytes);
  void Add(uint64_t number);
  std::string Hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace batchd
