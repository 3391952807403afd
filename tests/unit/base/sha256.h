// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4) for comparing with the sums in the shared cases; the product needs none.

#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "fmt/format.h"

namespace batchd {

inline std::array<uint32_t, 64> Sha256Constants() {
  // The first 32 bits of the fractions of the cube roots of the first 64 primes.
  std::array<uint32_t, 64> constants{};
  uint64_t found = 0;
  for (uint64_t n = 2; found < 64; ++n) {
    bool is_prime = true;
    for (uint64_t d = 2; d * d <= n; ++d) is_prime &= n % d != 0;
    if (!is_prime) continue;
    // The largest r with r^3 <= n * 2^96, by bisection: r = root * 2^32.
    __extension__ using Wide = unsigned __int128;
    uint64_t low = 0, high = uint64_t{7} << 32;
    while (high - low > 1) {
      const uint64_t mid = low + (high - low) / 2;
      // mid^3 may need 105 bits: it fits.
      (static_cast<Wide>(mid) * mid * mid <= static_cast<Wide>(n) << 96 ? low : high) = mid;
    }
    constants[found++] = static_cast<uint32_t>(low);
  }
  return constants;
}

inline std::string Sha256Hex(std::string_view bytes) {
  static const std::array<uint32_t, 64> kConstants = Sha256Constants();
  std::array<uint32_t, 8> h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string tail(bytes.substr(bytes.size() / 64 * 64));
  tail += '\x80';
  while (tail.size() % 64 != 56) tail += '\0';
  for (int i = 7; i >= 0; --i) tail += static_cast<char>(bytes.size() * 8 >> (8 * i));
  const auto compress = [&h](const char* block) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i) {
      w[i] = 0;
      for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | static_cast<uint8_t>(block[4 * i + k]);
    }
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    std::array<uint32_t, 8> v = h;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t s1 = std::rotr(v[4], 6) ^ std::rotr(v[4], 11) ^ std::rotr(v[4], 25);
      const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kConstants[i] + w[i];
      const uint32_t s0 = std::rotr(v[0], 2) ^ std::rotr(v[0], 13) ^ std::rotr(v[0], 22);
      const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
      v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
    }
    for (size_t i = 0; i < 8; ++i) h[i] += v[i];
  };
  for (size_t i = 0; i + 64 <= bytes.size(); i += 64) compress(bytes.data() + i);
  for (size_t i = 0; i < tail.size(); i += 64) compress(tail.data() + i);
  std::string hex;
  for (const uint32_t word : h) hex += fmt::format("{:08x}", word);
  return hex;
}

// Of integers as little-endian words.
template <typename T>
std::string Sha256OfWords(const T& words) {
  static_assert(std::endian::native == std::endian::little);
  return Sha256Hex({reinterpret_cast<const char*>(words.data()), words.size() * sizeof(words[0])});
}

}  // namespace batchd
