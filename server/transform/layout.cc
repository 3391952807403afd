// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "Layout",
      .sentence = "Puts the channels before or after height and width; comes last, with Cast.",
      .params = {{.name = "layout",
                  .type = ParamType::kString,
                  .sentence = "NCHW or NHWC, as in a batch.",
                  .default_value = std::nullopt,
                  .choices = {"NCHW", "NHWC"}}}};
  return *schema;
}

class SetLayout : public Transform {
 public:
  explicit SetLayout(Layout layout) : layout_(layout) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    if (format->is_laid_out) {
      return Err(absl::StatusCode::kInvalidArgument, "Layout comes once; leave this one out");
    }
    format->layout = layout_;
    format->is_laid_out = true;
    return absl::OkStatus();
  }

 private:
  const Layout layout_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const bool channels_first = operation.arguments["layout"] == "NCHW";
  return std::make_unique<SetLayout>(channels_first ? Layout::kChw : Layout::kHwc);
}

}  // namespace

const TransformKind kLayoutKind = {&GetSchema, &Make};

}  // namespace batchd
