// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "RandomCrop",
      .sentence = "Cuts a box of one size at a random place.",
      .params = {{.name = "size",
                  .type = ParamType::kSize,
                  .sentence = "Height and width of the result, in pixels; one integer is both.",
                  .default_value = std::nullopt,
                  .min = 1,
                  .max = kSideMax},
                 {.name = "padding",
                  .type = ParamType::kIntList,
                  .sentence = "A border that the picture gets first, as Pad's.",
                  .default_value = Json(nullptr),
                  .min = 0,
                  .max = kSideMax,
                  .count_min = 1,
                  .count_max = 4},
                 {.name = "pad_if_needed",
                  .type = ParamType::kBool,
                  .sentence = "A picture that is smaller than the crop gets what it lacks at both "
                              "sides; otherwise it is an error.",
                  .default_value = false},
                 FillParam(0),
                 PaddingModeParam()}};
  return *schema;
}

class RandomCrop : public Transform {
 public:
  RandomCrop(ImageSize size, const std::array<int, 4>& padding, bool pads_if_needed, PadMode mode,
             const Colour& fill)
      : size_(size), padding_(padding), pads_if_needed_(pads_if_needed), mode_(mode), fill_(fill) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    const bool pads = pads_if_needed_ || padding_ != std::array<int, 4>{};
    BATCHD_RETURN_IF_ERROR(pads && PadsByStep(mode_, fill_)
                               ? CheckFilledPlace("RandomCrop", fill_, format)
                               : CheckPixelPlace("RandomCrop", *format));
    if (format->size.has_value()) BATCHD_RETURN_IF_ERROR(PaddedBox(*format->size).status());
    format->size = size_;
    return absl::OkStatus();
  }

  // Draws: the top, the left.
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    BATCHD_ASSIGN_OR_RETURN(const Box padded, PaddedBox(plan->output()));
    const uint32_t top = draws->NextBelow(padded.height - size_.height + 1);
    const uint32_t left = draws->NextBelow(padded.width - size_.width + 1);
    CropOrPad({padded.top + static_cast<int>(top), padded.left + static_cast<int>(left),
               size_.height, size_.width},
              mode_, fill_, plan);
    return absl::OkStatus();
  }

 private:
  // The picture with its borders, in its own coordinates.
  absl::StatusOr<Box> PaddedBox(ImageSize picture) const {
    const auto [left, top, right, bottom] = padding_;
    Box box = {-top, -left, picture.height + top + bottom, picture.width + left + right};
    const int lacks_rows = std::max(size_.height - box.height, 0);
    const int lacks_columns = std::max(size_.width - box.width, 0);
    if (!pads_if_needed_ && lacks_rows + lacks_columns > 0) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "a picture of {}x{} (height x width) is smaller{} than the crop of {}x{}; set "
                 "pad_if_needed, or put Resize before it",
                 picture.height, picture.width,
                 padding_ == std::array<int, 4>{} ? "" : " with its padding", size_.height,
                 size_.width);
    }
    box.top -= lacks_rows;
    box.left -= lacks_columns;
    box.height += 2 * lacks_rows;
    box.width += 2 * lacks_columns;
    return box;
  }

  const ImageSize size_;
  const std::array<int, 4> padding_;  // left, top, right, bottom
  const bool pads_if_needed_;
  const PadMode mode_;
  const Colour fill_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const Json& arguments = operation.arguments;
  std::array<int, 4> padding = {};
  if (!arguments["padding"].is_null()) {
    BATCHD_ASSIGN_OR_RETURN(padding, PaddingArgument("padding", arguments["padding"]));
  }
  BATCHD_ASSIGN_OR_RETURN(const Colour fill, FillArgument(operation));
  return std::make_unique<RandomCrop>(SizeArgument(arguments["size"]), padding,
                                      arguments["pad_if_needed"].get<bool>(),
                                      PaddingModeArgument(arguments["padding_mode"]), fill);
}

}  // namespace

const TransformKind kRandomCropKind = {&GetSchema, &Make, /*is_random=*/true, Geometry::kOnly};

}  // namespace batchd
