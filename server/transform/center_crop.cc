// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "CenterCrop",
      .sentence = "Cuts the middle out of the picture; what lies outside it is 0.",
      .params = {{.name = "size",
                  .type = ParamType::kSize,
                  .sentence = "Height and width of the result, in pixels; one integer is both.",
                  .default_value = std::nullopt,
                  .min = 1,
                  .max = kSideMax}}};
  return *schema;
}

class CenterCrop : public Transform {
 public:
  explicit CenterCrop(ImageSize size) : size_(size) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    BATCHD_RETURN_IF_ERROR(CheckPixelPlace("CenterCrop", *format));
    format->size = size_;
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws*) const override {
    plan->Crop(CenterBox(plan->output(), size_));
    return absl::OkStatus();
  }

 private:
  const ImageSize size_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  return std::make_unique<CenterCrop>(SizeArgument(operation.arguments["size"]));
}

}  // namespace

const TransformKind kCenterCropKind = {&GetSchema, &Make, /*is_random=*/false, Geometry::kOnly};

}  // namespace batchd
