// SPDX-License-Identifier: Apache-2.0
//
// A box of a picture that may reach outside it, and what lies there: numpy's padding modes.

#pragma once

#include <array>
#include <cstdint>

#include "server/image/geometry.h"
#include "server/image/picture.h"

namespace batchd {

enum class PadMode : uint8_t {
  kConstant,   // the fill
  kEdge,       // the pixel at the border
  kReflect,    // mirrored, the pixel at the border not repeated: c b [a b c] b a
  kSymmetric,  // mirrored with it: b a [a b c] c b
};

// Fills `out`, of the box's size, from another picture. Far outside, mirrors repeat. The box has
// sides of 1 or more and lies within 2^30 of the picture. Pure function: thread-safe.
void PadFrom(const ConstPicture& in, const Box& box, PadMode mode,
             const std::array<uint8_t, 3>& fill, const Picture& out);

}  // namespace batchd
