// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "Cast",
      .sentence = "Changes the type of the values and never scales them; comes last, with Layout.",
      .params = {{.name = "dtype",
                  .type = ParamType::kString,
                  .sentence = "float16 and bfloat16 round to the nearest, ties to even; uint8 cuts "
                              "towards zero and clamps to 0 and 255.",
                  .default_value = std::nullopt,
                  .choices = {"uint8", "float16", "bfloat16", "float32"}}}};
  return *schema;
}

class Cast : public Transform {
 public:
  explicit Cast(DType dtype) : dtype_(dtype) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    if (format->is_cast) {
      return Err(absl::StatusCode::kInvalidArgument, "Cast comes once; leave this one out");
    }
    table->CastTo(dtype_);
    format->dtype = dtype_;
    format->is_cast = true;
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const std::string& name = operation.arguments["dtype"].get_ref<const std::string&>();
  for (const DType dtype : {DType::kUint8, DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
    if (name == DTypeName(dtype)) return std::make_unique<Cast>(dtype);
  }
  return FieldErr("dtype", "\"{}\" is unknown", name);
}

}  // namespace

const TransformKind kCastKind = {&GetSchema, &Make};

}  // namespace batchd
