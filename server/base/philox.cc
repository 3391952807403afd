// SPDX-License-Identifier: Apache-2.0
#include "server/base/philox.h"

namespace batchd {

PhiloxWords Philox4x32(PhiloxWords c, std::array<uint32_t, 2> k) {
  constexpr uint64_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      k[0] += kW0;
      k[1] += kW1;
    }
    const uint64_t p0 = kM0 * c[0];
    const uint64_t p1 = kM1 * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
  }
  return c;
}

uint32_t Draws::U32At(uint16_t draw) const {
  const PhiloxWords counter = {
      static_cast<uint32_t>(key_.ordinal),
      static_cast<uint32_t>((key_.ordinal >> 32) & 0xFFFF) << 16 | key_.occurrence, key_.epoch,
      static_cast<uint32_t>(key_.op_id) << 16 | draw};
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(key_.seed),
                                       static_cast<uint32_t>(key_.seed >> 32)};
  return Philox4x32(counter, key)[0];
}

}  // namespace batchd
