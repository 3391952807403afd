// SPDX-License-Identifier: Apache-2.0
//
// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3" (SC 2011). A draw is a pure function of a key and a counter, so randomness depends on
// what is drawn and never on thread, batch, rank or time.

#pragma once

#include <array>
#include <cstdint>

namespace batchd {

using PhiloxWords = std::array<uint32_t, 4>;

// Words are least significant first.
PhiloxWords Philox4x32(PhiloxWords counter, std::array<uint32_t, 2> key);

// Who draws what: the counter of DESIGN section 2.
struct DrawKey {
  uint64_t seed = 0;
  uint64_t ordinal = 0;     // of the sample; below 2^48
  uint16_t occurrence = 0;  // how often the sample came before in this epoch
  uint32_t epoch = 0;
  uint16_t op_id = 0;  // 16 bits of XXH32 of "column/Transform#n"
};

// The draws of one operation on one sample, in order. Each NextU32 is word 0 of its own counter, so
// that draw k can be computed without the ones before it. Cheap to make; not thread-safe.
class Draws {
 public:
  explicit Draws(const DrawKey& key) : key_(key) {}

  uint32_t NextU32() { return U32At(next_++); }
  // In [0, 1): u32 * 2^-32.
  double NextUniform() { return NextU32() * 0x1p-32; }
  // In [lo, hi): lo + (hi - lo) * NextUniform().
  double NextUniform(double lo, double hi) { return lo + (hi - lo) * NextUniform(); }
  // In [0, n): (u32 * n) >> 32. Requires n > 0.
  uint32_t NextBelow(uint32_t n) {
    return static_cast<uint32_t>((static_cast<uint64_t>(NextU32()) * n) >> 32);
  }

  uint32_t U32At(uint16_t draw) const;

  const DrawKey& key() const { return key_; }

 private:
  DrawKey key_;
  uint16_t next_ = 0;
};

}  // namespace batchd
