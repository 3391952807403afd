// SPDX-License-Identifier: Apache-2.0
//
// Pillow 13's resize on 8-bit RGB, bit for bit: two passes with 22-bit fixed-point weights and
// 8 bits in between, horizontal first, but vertical first where Pillow 13 does that (the height
// shrinks by more than twice what the width loses, in pixels); a side that keeps its length is not
// filtered. Nearest takes Pillow's pixels. This is the scalar reference, which row_pipeline.h must
// equal: whole pictures, one value at a time, nothing clever.

#pragma once

#include <cstdint>

#include "server/image/geometry.h"
#include "server/image/picture.h"
#include "server/image/scratch.h"

namespace batchd {

// Computes `window` of `in` resized to `resized`, into `out`, whose size is the window's. The
// window lies inside `resized`. Uses the areas kResample and kWeights of `scratch`.
void Resample(const ConstPicture& in, ImageSize resized, Filter filter, const Box& window,
              const Picture& out, Scratch* scratch);

// Runs one stage: `in` holds the stage's box; `out` has the stage's output size. Pixels of the
// window outside the resized picture are 0; flips are applied. Uses kResample and kWeights.
void RunStage(const GeometryStage& stage, const ConstPicture& in, const Picture& out,
              Scratch* scratch);

}  // namespace batchd
