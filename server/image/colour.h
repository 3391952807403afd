// SPDX-License-Identifier: Apache-2.0
//
// Colour operations on 8-bit RGB pictures, in place, equal in every bit to what Pillow 13 computes
// for torchvision's operation of the same name. On every processor the bytes are the same.
//
// A picture has sides of 1 or more; its rows may lie anywhere, and what is behind a row's end is
// neither read nor written. None allocates. Pure functions: thread-safe on different pictures.

#pragma once

#include <cstddef>
#include <cstdint>

#include "server/image/picture.h"

namespace batchd {

// Factors are finite and not negative; as in Pillow they are rounded to float, and 1 leaves the
// picture as it is. Results are cut, not rounded, and clamped to [0, 255].

// Towards black: factor 0 is black.
void AdjustBrightness(const Picture& picture, double factor);

// Towards the picture's mean grey level.
void AdjustContrast(const Picture& picture, double factor);

// Towards the pixel's own grey level.
void AdjustSaturation(const Picture& picture, double factor);

// Towards the picture smoothed by a 3x3 mean of centre weight 5; the outermost pixels stay as they
// are. `scratch` has SharpnessScratchBytes(width) bytes, of any alignment and content.
size_t SharpnessScratchBytes(int width);
void AdjustSharpness(const Picture& picture, double factor, uint8_t* scratch);

// Turns the hue by `turn` of a full circle, within [-0.5, 0.5]: the 8-bit hue gains
// trunc(255 * turn) modulo 256. The way to 8-bit HSV and back loses something even at 0.
void AdjustHue(const Picture& picture, double turn);

// Each channel stretched to [0, 255]; a channel of one level stays as it is.
void Autocontrast(const Picture& picture);

// Each channel's histogram made flat, as far as 8 bits allow.
void Equalize(const Picture& picture);

// Keeps the upper `bits` bits of each value, 0 to 8.
void Posterize(const Picture& picture, int bits);

// Inverts the values that are `threshold` or more.
void Solarize(const Picture& picture, double threshold);

// 255 - value.
void Invert(const Picture& picture);

// Three equal channels: Pillow's grey level, (19595 R + 38470 G + 7471 B + 32768) >> 16.
void Grayscale(const Picture& picture);

}  // namespace batchd
