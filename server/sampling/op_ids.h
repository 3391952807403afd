// SPDX-License-Identifier: Apache-2.0
//
// Op ids of the draws that belong to no operation of a pipeline. A pipeline whose operation has one
// of them by its hash draws words that are used here as well, for another purpose: harmless.

#pragma once

#include <cstdint>

namespace batchd {

inline constexpr uint16_t kOrderOpId = 0;       // keys of the epoch's order
inline constexpr uint16_t kSubstituteOpId = 1;  // who takes the place of a bad sample

}  // namespace batchd
