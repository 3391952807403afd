// SPDX-License-Identifier: Apache-2.0
//
// The steps on a whole picture that the transforms add to a plan. Pure functions: thread-safe.

#pragma once

#include <array>
#include <cstdint>

#include "server/image/blur.h"
#include "server/image/pad.h"
#include "server/image/picture_plan.h"
#include "server/image/warp.h"

namespace batchd {

// Colours, in place; ranges as in image/colour.h.
PictureStep BrightnessStep(double factor);
PictureStep ContrastStep(double factor);
PictureStep SaturationStep(double factor);
PictureStep HueStep(double turn);
PictureStep SharpnessStep(double factor);
PictureStep AutocontrastStep();
PictureStep EqualizeStep();
PictureStep PosterizeStep(int bits);
PictureStep SolarizeStep(double threshold);
PictureStep InvertStep();
PictureStep GrayscaleStep();

// Standard deviations are equal in both directions.
PictureStep BlurStep(int size_x, int size_y, double sigma);

// Into another picture.
PictureStep WarpStep(const WarpMatrix& matrix, ImageSize output, Filter filter,
                     const std::array<uint8_t, 3>& fill);
PictureStep PadStep(const Box& box, PadMode mode, const std::array<uint8_t, 3>& fill);

}  // namespace batchd
