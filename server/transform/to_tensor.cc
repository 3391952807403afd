// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema =
      new Schema{.name = "ToTensor",
                 .sentence = "Makes float32 values in [0, 1], channels first.",
                 .params = {}};
  return *schema;
}

class ToTensor : public Transform {
 public:
  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    BATCHD_RETURN_IF_ERROR(CheckNotLast("ToTensor", *format));
    if (format->is_tensor) {
      return Err(absl::StatusCode::kInvalidArgument, "ToTensor comes once; leave this one out");
    }
    table->DivideBy255();
    format->dtype = DType::kFloat32;
    format->layout = Layout::kChw;
    format->is_tensor = true;
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation&) {
  return std::make_unique<ToTensor>();
}

}  // namespace

const TransformKind kToTensorKind = {&GetSchema, &Make};

}  // namespace batchd
