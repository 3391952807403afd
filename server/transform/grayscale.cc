// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{.name = "Grayscale",
                                               .sentence = "Makes the picture grey.",
                                               .params = {{.name = "num_output_channels",
                                                           .type = ParamType::kInt,
                                                           .sentence = "1, or 3 equal ones.",
                                                           .default_value = 1,
                                                           .min = 1,
                                                           .max = 3}}};
  return *schema;
}

class ToGrey : public Transform {
 public:
  explicit ToGrey(int channels) : channels_(channels) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    BATCHD_RETURN_IF_ERROR(CheckPicturePlace("Grayscale", format));
    // All that follows works on three equal channels, to the same values; one of them is given.
    table->SetChannels(channels_);
    format->channels = channels_;
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws*) const override {
    plan->Apply(GrayscaleStep());
    return absl::OkStatus();
  }

 private:
  const int channels_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const int channels = operation.arguments["num_output_channels"].get<int>();
  if (channels == 2) {
    return FieldErr("num_output_channels", "2 is refused; allowed is 1 or 3");
  }
  return std::make_unique<ToGrey>(channels);
}

}  // namespace

const TransformKind kGrayscaleKind = {&GetSchema, &Make};

}  // namespace batchd
