// SPDX-License-Identifier: Apache-2.0
//
// Gaussian blur of 8-bit RGB pictures, as torchvision v2's gaussian_blur gives it on a PIL
// picture: a kernel of the given size and standard deviation in each direction, the picture
// reflected at its borders (without repeating the outermost pixel), rounded to 8 bits.
//
// torchvision sums all size_x * size_y products in float32, in an order that its library chooses;
// here the two directions are summed one after the other, in float32 in a fixed order, so that the
// bytes are the same on every machine. What differs is a level where the sum is almost a half:
// measured, 8 values in a million. A picture smaller than the kernel's reach, which torchvision
// refuses, is mirrored as often as it takes.

#pragma once

#include <cstddef>
#include <cstdint>

#include "server/image/geometry.h"
#include "server/image/picture.h"

namespace batchd {

// The largest kernel side.
inline constexpr int kBlurSizeMax = 255;

struct GaussianKernel {
  int size_x = 3;  // pixels, odd, 1 to kBlurSizeMax
  int size_y = 3;
  double sigma_x = 1;  // pixels, 1e-3 to 1e6
  double sigma_y = 1;
};

// What GaussianBlur needs for a picture of that size.
size_t BlurScratchBytes(ImageSize size, const GaussianKernel& kernel);

// Blurs in place. `scratch` has BlurScratchBytes() bytes, 64-byte aligned, with any content.
// Thread-safe on different pictures and scratches; allocates nothing.
void GaussianBlur(const Picture& picture, const GaussianKernel& kernel, uint8_t* scratch);

}  // namespace batchd
