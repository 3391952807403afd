// SPDX-License-Identifier: Apache-2.0
#include "server/base/hash.h"

#include <xxhash.h>

#include "fmt/format.h"
#include "server/base/check.h"

namespace batchd {

uint32_t Xxh32(std::string_view bytes) { return XXH32(bytes.data(), bytes.size(), 0); }
uint64_t Xxh3(const void* data, size_t size_bytes) { return XXH3_64bits(data, size_bytes); }

struct Fingerprinter::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Fingerprinter::Fingerprinter() : state_(std::make_unique<State>()) {
  BATCHD_CHECK(state_->xxh != nullptr);
  XXH3_128bits_reset(state_->xxh);
}

Fingerprinter::~Fingerprinter() = default;

void Fingerprinter::Add(std::string_view bytes) {
  Add(bytes.size());
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Fingerprinter::Add(uint64_t number) {
  uint8_t little_endian[8];
  for (int i = 0; i < 8; ++i) little_endian[i] = static_cast<uint8_t>(number >> (8 * i));
  XXH3_128bits_update(state_->xxh, little_endian, sizeof(little_endian));
}

std::string Fingerprinter::Hex() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_->xxh);
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

}  // namespace batchd
