// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "Pad",
      .sentence = "Adds a border to the picture.",
      .params = {{.name = "padding",
                  .type = ParamType::kIntList,
                  .sentence = "Pixels at all sides; at left and right, top and bottom; or at left, "
                              "top, right, bottom.",
                  .default_value = std::nullopt,
                  .min = 0,
                  .max = kSideMax,
                  .count_min = 1,
                  .count_max = 4},
                 FillParam(0),
                 PaddingModeParam()}};
  return *schema;
}

class PadBorder : public Transform {
 public:
  PadBorder(const std::array<int, 4>& padding, PadMode mode, const Colour& fill)
      : padding_(padding), mode_(mode), fill_(fill) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    BATCHD_RETURN_IF_ERROR(PadsByStep(mode_, fill_) ? CheckFilledPlace("Pad", fill_, format)
                                                    : CheckPixelPlace("Pad", *format));
    if (!format->size.has_value()) return absl::OkStatus();
    const Box box = BoxOf(*format->size);
    format->size = ImageSize{box.height, box.width};
    // Here it is not a sample that is wrong: every row would be that large.
    const absl::Status sides = CheckSides("Pad", *format->size);
    return sides.ok() ? sides : absl::InvalidArgumentError(sides.message());
  }
  absl::Status Plan(PicturePlan* plan, Draws*) const override {
    const Box box = BoxOf(plan->output());
    BATCHD_RETURN_IF_ERROR(CheckSides("Pad", {box.height, box.width}));
    CropOrPad(box, mode_, fill_, plan);
    return absl::OkStatus();
  }

 private:
  Box BoxOf(ImageSize picture) const {
    const auto [left, top, right, bottom] = padding_;
    return {-top, -left, picture.height + top + bottom, picture.width + left + right};
  }

  const std::array<int, 4> padding_;
  const PadMode mode_;
  const Colour fill_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const Json& arguments = operation.arguments;
  BATCHD_ASSIGN_OR_RETURN(const auto padding, PaddingArgument("padding", arguments["padding"]));
  BATCHD_ASSIGN_OR_RETURN(const Colour fill, FillArgument(operation));
  return std::make_unique<PadBorder>(padding, PaddingModeArgument(arguments["padding_mode"]), fill);
}

}  // namespace

const TransformKind kPadKind = {&GetSchema, &Make, /*is_random=*/false, Geometry::kOnly};

}  // namespace batchd
