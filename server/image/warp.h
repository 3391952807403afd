// SPDX-License-Identifier: Apache-2.0
//
// Rotation and affine maps of 8-bit RGB pictures, as Pillow 13 computes them for torchvision's
// rotate and affine. Which pixels are taken is decided in doubles and 16.16 fixed point, in
// Pillow's order; sines come from fixed_math.h, so that the bytes are the same on every machine.
// Where the C library that Python uses is off the nearest double in a sine's last bit, a place on
// the border between two levels may fall to the other side: measured, 1 affine picture in 100 and
// 1 of its values in 100,000, by one level; nearest and rotation never.
//
// Pure functions: thread-safe. None allocates.

#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "server/image/geometry.h"
#include "server/image/picture.h"

namespace batchd {

// From the centre (x, y) of an output pixel to a place in the input, in pixels, with the corner of
// the first pixel at 0: x' = a x + b y + c, y' = d x + e y + f.
struct WarpMatrix {
  double a = 1, b = 0, c = 0;
  double d = 0, e = 1, f = 0;
};

// In pixels from the picture's left and top edge.
struct WarpPoint {
  double x = 0;
  double y = 0;
};

struct Rotation {
  WarpMatrix matrix;
  ImageSize size;  // of the output
};

// `degrees` counter-clockwise, |degrees| <= 1e6, about `center` or else the middle. Without
// `expand` the output has the input's size; with it, that of the turned picture's bounding box,
// which shows the whole picture if the centre is the middle.
Rotation RotationOf(ImageSize input, double degrees, std::optional<WarpPoint> center, bool expand);

// torchvision's affine, for an output of the input's size. Degrees turn clockwise, |degrees| and
// |shear| <= 1000 (a shear whose cosine is 0 has no meaning: 90); translate in pixels; scale > 0
// enlarges.
struct Affine {
  double degrees = 0;
  double translate_x = 0;
  double translate_y = 0;
  double scale = 1;
  double shear_x_degrees = 0;
  double shear_y_degrees = 0;
};
WarpMatrix AffineMatrix(ImageSize input, const Affine& affine, std::optional<WarpPoint> center);

// Fills `out` from `in`, which are different buffers and may differ in size. A place outside the
// input takes `fill`. `filter` is kNearest, kBilinear or kBicubic (a = -1, over 4x4 pixels, not
// antialiased); neighbours outside are the border's pixels; results are cut, not rounded. The six
// numbers are finite; a place far outside, even beyond the integers, is just outside.
void Warp(const ConstPicture& in, const WarpMatrix& matrix, Filter filter,
          const std::array<uint8_t, 3>& fill, const Picture& out);

}  // namespace batchd
