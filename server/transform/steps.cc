// SPDX-License-Identifier: Apache-2.0
#include "server/transform/steps.h"

#include "server/image/colour.h"

namespace batchd {
namespace {

// A step of one kernel that takes a picture and one number.
template <void (*kernel)(const Picture&, double)>
PictureStep StepOf(double number) {
  return {.run = [](const PictureStep& step, const Picture& picture, const Picture&,
                    Scratch*) { kernel(picture, step.numbers[0]); },
          .numbers = {number}};
}

template <void (*kernel)(const Picture&)>
PictureStep StepOf() {
  return {.run = [](const PictureStep&, const Picture& picture, const Picture&, Scratch*) {
    kernel(picture);
  }};
}

void RunSharpness(const PictureStep& step, const Picture& picture, const Picture&,
                  Scratch* scratch) {
  AdjustSharpness(picture, step.numbers[0],
                  scratch->Get(ScratchArea::kStep, SharpnessScratchBytes(picture.width)));
}

void RunPosterize(const PictureStep& step, const Picture& picture, const Picture&, Scratch*) {
  Posterize(picture, static_cast<int>(step.numbers[0]));
}

void RunBlur(const PictureStep& step, const Picture& picture, const Picture&, Scratch* scratch) {
  const GaussianKernel kernel = {.size_x = static_cast<int>(step.numbers[0]),
                                 .size_y = static_cast<int>(step.numbers[1]),
                                 .sigma_x = step.numbers[2],
                                 .sigma_y = step.numbers[2]};
  const size_t size_bytes = BlurScratchBytes({picture.height, picture.width}, kernel);
  GaussianBlur(picture, kernel, scratch->Get(ScratchArea::kStep, size_bytes));
}

ConstPicture ReadOnly(const Picture& picture) {
  return {picture.data, picture.height, picture.width, picture.stride_bytes};
}

void RunWarp(const PictureStep& step, const Picture& in, const Picture& out, Scratch*) {
  const auto& n = step.numbers;
  Warp(ReadOnly(in), {n[0], n[1], n[2], n[3], n[4], n[5]}, step.filter, step.fill, out);
}

void RunPad(const PictureStep& step, const Picture& in, const Picture& out, Scratch*) {
  PadFrom(ReadOnly(in), step.box, static_cast<PadMode>(step.numbers[0]), step.fill, out);
}

}  // namespace

PictureStep BrightnessStep(double factor) { return StepOf<AdjustBrightness>(factor); }
PictureStep ContrastStep(double factor) { return StepOf<AdjustContrast>(factor); }
PictureStep SaturationStep(double factor) { return StepOf<AdjustSaturation>(factor); }
PictureStep HueStep(double turn) { return StepOf<AdjustHue>(turn); }
PictureStep SharpnessStep(double factor) { return {.run = &RunSharpness, .numbers = {factor}}; }
PictureStep AutocontrastStep() { return StepOf<Autocontrast>(); }
PictureStep EqualizeStep() { return StepOf<Equalize>(); }
PictureStep PosterizeStep(int bits) {
  return {.run = &RunPosterize, .numbers = {static_cast<double>(bits)}};
}
PictureStep SolarizeStep(double threshold) { return StepOf<Solarize>(threshold); }
PictureStep InvertStep() { return StepOf<Invert>(); }
PictureStep GrayscaleStep() { return StepOf<Grayscale>(); }

PictureStep BlurStep(int size_x, int size_y, double sigma) {
  return {.run = &RunBlur,
          .numbers = {static_cast<double>(size_x), static_cast<double>(size_y), sigma}};
}

PictureStep WarpStep(const WarpMatrix& m, ImageSize output, Filter filter,
                     const std::array<uint8_t, 3>& fill) {
  return {.run = &RunWarp,
          .in_place = false,
          .output = output,
          .filter = filter,
          .fill = fill,
          .numbers = {m.a, m.b, m.c, m.d, m.e, m.f}};
}

PictureStep PadStep(const Box& box, PadMode mode, const std::array<uint8_t, 3>& fill) {
  return {.run = &RunPad,
          .in_place = false,
          .output = {box.height, box.width},
          .box = box,
          .fill = fill,
          .numbers = {static_cast<double>(mode)}};
}

}  // namespace batchd
