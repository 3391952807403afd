// SPDX-License-Identifier: Apache-2.0

#include "server/image/warp.h"

#include <algorithm>
#include <cmath>

#include "server/base/check.h"
#include "server/image/fixed_math.h"

namespace batchd {
namespace {

using Fill = std::array<uint8_t, 3>;

WarpPoint Map(const WarpMatrix& m, double x, double y) {
  return {m.a * x + m.b * y + m.c, m.d * x + m.e * y + m.f};
}

const uint8_t* RowOf(const ConstPicture& picture, int y) {
  return picture.data + y * picture.stride_bytes;
}

void Put(const uint8_t* rgb, uint8_t* out) {
  out[0] = rgb[0];
  out[1] = rgb[1];
  out[2] = rgb[2];
}

bool IsInside(double place, int size) { return place >= 0.0 && place < size; }

// Without rotation or shear, Pillow adds the steps up in double, each axis for itself.
void NearestScaled(const ConstPicture& in, const WarpMatrix& m, const Fill& fill,
                   const Picture& out) {
  double y_in = m.f + m.e * 0.5;
  for (int y = 0; y < out.height; ++y, y_in += m.e) {
    uint8_t* to = out.data + y * out.stride_bytes;
    const bool in_row = IsInside(y_in, in.height);
    const uint8_t* const row = in_row ? RowOf(in, static_cast<int>(y_in)) : nullptr;
    double x_in = m.c + m.a * 0.5;
    for (int x = 0; x < out.width; ++x, x_in += m.a, to += 3) {
      const bool inside = in_row && IsInside(x_in, in.width);
      Put(inside ? row + 3 * static_cast<int>(x_in) : fill.data(), to);
    }
  }
}

// Whether 16.16 fixed point holds all places: Pillow looks at the corners.
bool FitsFixedPoint(const WarpMatrix& m, const Picture& out) {
  constexpr double kLimit = 32768.0;
  for (const int x : {0, out.width}) {
    for (const int y : {0, out.height}) {
      const WarpPoint p = Map(m, x, y);
      if (!(std::abs(p.x) < kLimit && std::abs(p.y) < kLimit)) return false;
    }
  }
  return true;
}

int64_t ToFixed(double v) { return static_cast<int64_t>(std::floor(v * 65536.0 + 0.5)); }

void NearestFixed(const ConstPicture& in, const WarpMatrix& m, const Fill& fill,
                  const Picture& out) {
  const int64_t a = ToFixed(m.a), b = ToFixed(m.b), d = ToFixed(m.d), e = ToFixed(m.e);
  int64_t row_x = ToFixed(m.c + m.a * 0.5 + m.b * 0.5);
  int64_t row_y = ToFixed(m.f + m.d * 0.5 + m.e * 0.5);
  const auto width = static_cast<uint64_t>(in.width), height = static_cast<uint64_t>(in.height);
  for (int y = 0; y < out.height; ++y, row_x += b, row_y += e) {
    uint8_t* to = out.data + y * out.stride_bytes;
    int64_t x_in = row_x, y_in = row_y;
    for (int x = 0; x < out.width; ++x, x_in += a, y_in += d, to += 3) {
      const int64_t column = x_in >> 16, row = y_in >> 16;
      // As unsigned numbers, negative ones are too large.
      const bool inside =
          static_cast<uint64_t>(column) < width && static_cast<uint64_t>(row) < height;
      Put(inside ? in.data + row * in.stride_bytes + 3 * column : fill.data(), to);
    }
  }
}

// Pillow's way where places are beyond 16.16: the same sums in double.
void NearestAdded(const ConstPicture& in, const WarpMatrix& m, const Fill& fill,
                  const Picture& out) {
  double row_x = m.c + m.a * 0.5 + m.b * 0.5;
  double row_y = m.f + m.d * 0.5 + m.e * 0.5;
  for (int y = 0; y < out.height; ++y, row_x += m.b, row_y += m.e) {
    uint8_t* to = out.data + y * out.stride_bytes;
    double x_in = row_x, y_in = row_y;
    for (int x = 0; x < out.width; ++x, x_in += m.a, y_in += m.d, to += 3) {
      const bool inside = IsInside(x_in, in.width) && IsInside(y_in, in.height);
      Put(inside ? RowOf(in, static_cast<int>(y_in)) + 3 * static_cast<int>(x_in) : fill.data(),
          to);
    }
  }
}

// The values at kTaps places of one row or column, at `t` from the second-last of the first half.
double Between(double v0, double v1, double t) { return v0 + (v1 - v0) * t; }

double Cubic(double v0, double v1, double v2, double v3, double t) {
  const double p2 = -v0 + v2;
  const double p3 = 2 * (v0 - v1) + v2 - v3;
  const double p4 = -v0 + v1 - v2 + v3;
  return v1 + t * (p2 + t * (p3 + t * p4));
}

struct Bilinear {
  static constexpr int kTaps = 2;
  static double Mix(const double* v, double t) { return Between(v[0], v[1], t); }
  static uint8_t ToByte(double v) { return static_cast<uint8_t>(v); }
};

struct Bicubic {
  static constexpr int kTaps = 4;
  static double Mix(const double* v, double t) { return Cubic(v[0], v[1], v[2], v[3], t); }
  static uint8_t ToByte(double v) {
    return v <= 0.0 ? 0 : v >= 255.0 ? 255 : static_cast<uint8_t>(v);
  }
};

// One pixel, whose place is inside the picture.
template <typename Kernel>
void MixPixel(const ConstPicture& in, WarpPoint place, uint8_t* out) {
  constexpr int kTaps = Kernel::kTaps;
  // Places are those of pixels' centres from here on. Not below -0.5: truncation is the floor of
  // all but those that are negative.
  const double x = place.x - 0.5, y = place.y - 0.5;
  const int x0 = x < 0 ? -1 : static_cast<int>(x), y0 = y < 0 ? -1 : static_cast<int>(y);
  const double tx = x - x0, ty = y - y0;
  int columns[kTaps];
  const uint8_t* rows[kTaps];
  for (int k = 0; k < kTaps; ++k) {
    constexpr int kBefore = kTaps / 2 - 1;
    columns[k] = 3 * std::clamp(x0 + k - kBefore, 0, in.width - 1);
    rows[k] = RowOf(in, std::clamp(y0 + k - kBefore, 0, in.height - 1));
  }
  for (int c = 0; c < 3; ++c) {
    double down[kTaps];
    for (int j = 0; j < kTaps; ++j) {
      double across[kTaps];
      for (int i = 0; i < kTaps; ++i) across[i] = rows[j][columns[i] + c];
      down[j] = Kernel::Mix(across, tx);
    }
    out[c] = Kernel::ToByte(Kernel::Mix(down, ty));
  }
}

template <typename Kernel>
void Mixed(const ConstPicture& in, const WarpMatrix& m, const Fill& fill, const Picture& out) {
  for (int y = 0; y < out.height; ++y) {
    uint8_t* to = out.data + y * out.stride_bytes;
    for (int x = 0; x < out.width; ++x, to += 3) {
      const WarpPoint place = Map(m, x + 0.5, y + 0.5);
      if (IsInside(place.x, in.width) && IsInside(place.y, in.height)) {
        MixPixel<Kernel>(in, place, to);
      } else {
        Put(fill.data(), to);
      }
    }
  }
}

// As Python's degrees % 360.0. fmod is exact, and so the same in every C library.
double Modulo360(double degrees) {
  const double rest = std::fmod(degrees, 360.0);
  return rest < 0 ? rest + 360.0 : rest;
}

}  // namespace

Rotation RotationOf(ImageSize input, double degrees, std::optional<WarpPoint> center, bool expand) {
  BATCHD_CHECK(std::abs(degrees) <= 1e6);
  const double turn = Modulo360(degrees);
  if (expand && !center) {
    // Of a quarter turn the box below would show half a pixel too much on either side where one
    // length is odd and the other even; Pillow transposes the picture instead.
    const ImageSize turned = {input.width, input.height};
    if (turn == 90) return {{0, -1, static_cast<double>(input.width), 1, 0, 0}, turned};
    if (turn == 270) return {{0, 1, 0, -1, 0, static_cast<double>(input.height)}, turned};
  }
  const WarpPoint about = center.value_or(WarpPoint{input.width / 2.0, input.height / 2.0});
  const double radians = -RadiansOf(turn);
  const double cosine = RoundTo15Decimals(NearestCos(radians));
  const double sine = RoundTo15Decimals(NearestSin(radians));
  Rotation rotation = {{cosine, sine, 0, -sine, cosine, 0}, input};
  WarpMatrix& m = rotation.matrix;
  const WarpPoint origin = Map(m, -about.x, -about.y);
  m.c = origin.x + about.x;
  m.f = origin.y + about.y;
  if (!expand) return rotation;

  WarpPoint least = {INFINITY, INFINITY}, most = {-INFINITY, -INFINITY};
  for (const int x : {0, input.width}) {
    for (const int y : {0, input.height}) {
      const WarpPoint p = Map(m, x, y);
      least = {std::min(least.x, p.x), std::min(least.y, p.y)};
      most = {std::max(most.x, p.x), std::max(most.y, p.y)};
    }
  }
  rotation.size.width = static_cast<int>(std::ceil(most.x) - std::floor(least.x));
  rotation.size.height = static_cast<int>(std::ceil(most.y) - std::floor(least.y));
  const WarpPoint first = Map(m, -(rotation.size.width - input.width) / 2.0,
                              -(rotation.size.height - input.height) / 2.0);
  m.c = first.x;
  m.f = first.y;
  return rotation;
}

WarpMatrix AffineMatrix(ImageSize input, const Affine& affine, std::optional<WarpPoint> center) {
  BATCHD_CHECK(affine.scale > 0);
  const WarpPoint about = center.value_or(WarpPoint{input.width * 0.5, input.height * 0.5});
  const double turn = RadiansOf(affine.degrees);
  const double shear_x = RadiansOf(affine.shear_x_degrees);
  const double shear_y = RadiansOf(affine.shear_y_degrees);
  // In torchvision's order of operations. The forward matrix is rotation, shear along y, shear
  // along x; its determinant is 1.
  const double cos_turn = NearestCos(turn - shear_y), sin_turn = NearestSin(turn - shear_y);
  const double cos_y = NearestCos(shear_y), tan_x = NearestTan(shear_x);
  const double a = cos_turn / cos_y;
  const double b = -cos_turn * tan_x / cos_y - NearestSin(turn);
  const double c = sin_turn / cos_y;
  const double d = -sin_turn * tan_x / cos_y + NearestCos(turn);
  WarpMatrix m = {d / affine.scale, -b / affine.scale, 0, -c / affine.scale, a / affine.scale, 0};
  const double x = -about.x - affine.translate_x, y = -about.y - affine.translate_y;
  m.c = (m.a * x + m.b * y) + about.x;
  m.f = (m.d * x + m.e * y) + about.y;
  return m;
}

void Warp(const ConstPicture& in, const WarpMatrix& matrix, Filter filter, const Fill& fill,
          const Picture& out) {
  switch (filter) {
    case Filter::kNearest:
      if (matrix.b == 0 && matrix.d == 0) return NearestScaled(in, matrix, fill, out);
      if (FitsFixedPoint(matrix, out)) return NearestFixed(in, matrix, fill, out);
      return NearestAdded(in, matrix, fill, out);
    case Filter::kBilinear:
      return Mixed<Bilinear>(in, matrix, fill, out);
    case Filter::kBicubic:
      return Mixed<Bicubic>(in, matrix, fill, out);
    default:
      BATCHD_CHECK(filter == Filter::kBicubic);  // the others are filters of a resize
  }
}

}  // namespace batchd
