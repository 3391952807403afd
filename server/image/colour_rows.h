// SPDX-License-Identifier: Apache-2.0
//
// What the colour operations of colour.h do to a row, compiled once for each instruction set
// (Google Highway's dispatch). The arithmetic is that of Pillow's C code, operation by operation
// in its types, so that the results do not depend on the width of a vector.
//
// A blend is level + factor * (value - level) in float, cut and clamped to [0, 255].
// Pure functions: thread-safe.

#pragma once

#include <cstdint>

namespace batchd {

// `count` values towards one level.
void BlendWithLevel(uint8_t* values, int count, uint8_t level, float factor);

// `width` pixels, each towards its own grey level: factor 0 makes them grey.
void BlendWithGrey(uint8_t* rgb, int width, float factor);

// The `count` values at `here` towards their smoothed values, into `out`, which may not overlap.
// `above`, `here` and `below` are rows of which the pixels before and behind are read, too.
void BlendWithSmooth(const uint8_t* above, const uint8_t* here, const uint8_t* below, int count,
                     float factor, uint8_t* out);

// The sum of the grey levels of `width` pixels.
int64_t SumOfGrey(const uint8_t* rgb, int width);

// RGB -> 8-bit HSV, hue + `steps` modulo 256, -> RGB.
void TurnHue(uint8_t* rgb, int width, int steps);

}  // namespace batchd
