// SPDX-License-Identifier: Apache-2.0
#include "server/transform/kinds.h"

#include <algorithm>
#include <string>
#include <utility>

#include "server/base/status.h"

namespace batchd {
namespace {

class RandomStep : public Transform {
 public:
  RandomStep(std::string name, double p, const PictureStep& step)
      : name_(std::move(name)), p_(p), step_(step) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    return CheckPicturePlace(name_, format);
  }
  // A uniform number is below 1, so that p = 1 always does it and p = 0 never.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    if (draws->NextUniform() < p_) plan->Apply(step_);
    return absl::OkStatus();
  }

 private:
  const std::string name_;
  const double p_;
  const PictureStep step_;
};

}  // namespace

void CropOrPad(const Box& box, PadMode mode, const Colour& fill, PicturePlan* plan) {
  const ImageSize size = plan->output();
  const bool is_inside = box.top >= 0 && box.left >= 0 && box.top + box.height <= size.height &&
                         box.left + box.width <= size.width;
  if (is_inside || !PadsByStep(mode, fill)) {
    plan->Crop(box);
  } else {
    plan->Apply(PadStep(box, mode, fill));
  }
}

std::unique_ptr<Transform> MakeRandomStep(const CheckedOperation& operation,
                                          const PictureStep& step) {
  return std::make_unique<RandomStep>(operation.name, operation.arguments["p"].get<double>(), step);
}

absl::Status CheckNotLast(std::string_view name, const RowFormat& format) {
  if (!format.is_laid_out && !format.is_cast) return absl::OkStatus();
  return Err(absl::StatusCode::kInvalidArgument,
             "{} may not follow {}, which comes last; put {} before it", name,
             format.is_laid_out ? "Layout" : "Cast", name);
}

absl::Status CheckPixelPlace(std::string_view name, const RowFormat& format) {
  BATCHD_RETURN_IF_ERROR(CheckNotLast(name, format));
  if (format.is_tensor) {
    return Err(absl::StatusCode::kInvalidArgument,
               "{} works on 8-bit pixels; put it before ToTensor", name);
  }
  if (format.is_erased) {
    return Err(absl::StatusCode::kInvalidArgument,
               "{} may not follow RandomErasing; put RandomErasing after it", name);
  }
  return absl::OkStatus();
}

absl::Status CheckPicturePlace(std::string_view name, RowFormat* format, int64_t step_bytes) {
  BATCHD_RETURN_IF_ERROR(CheckPixelPlace(name, *format));
  format->step_bytes = std::max(format->step_bytes, step_bytes);
  return absl::OkStatus();
}

absl::Status CheckFilledPlace(std::string_view name, const Colour& fill, RowFormat* format) {
  BATCHD_RETURN_IF_ERROR(CheckPicturePlace(name, format));
  if (format->channels == 1 && (fill[0] != fill[1] || fill[0] != fill[2])) {
    return FieldErr("fill", "{}, {}, {} is no grey, and rows have one channel; give one number",
                    fill[0], fill[1], fill[2]);
  }
  return absl::OkStatus();
}

}  // namespace batchd
