// SPDX-License-Identifier: Apache-2.0
//
// Label: the number of the sample's class, one int64 a row.

#include <cstring>

#include "server/base/status.h"
#include "server/pipeline/column.h"

namespace batchd {
namespace {

// What torch's losses ignore by default.
constexpr int64_t kSkippedLabel = -100;

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "Label", .sentence = "The number of the sample's class, as int64.", .params = {}};
  return *schema;
}

class LabelColumn : public ColumnPlan {
 public:
  explicit LabelColumn(const std::string& name)
      : shape_{name, wire::DType::kInt64, {}, sizeof(int64_t)} {}

  const ColumnShape& shape() const override { return shape_; }
  bool needs_bytes() const override { return false; }

  absl::Status MakeRow(const Dataset& dataset, Bytes, const DrawKey& key, Worker*,
                       uint8_t* out) const override {
    const int64_t label = dataset.LabelOf(static_cast<int64_t>(key.ordinal));
    std::memcpy(out, &label, sizeof(label));
    return absl::OkStatus();
  }
  void MakeSkippedRow(uint8_t* out) const override {
    std::memcpy(out, &kSkippedLabel, sizeof(kSkippedLabel));
  }

 private:
  const ColumnShape shape_;
};

absl::StatusOr<MadeColumn> Make(const CheckedColumn& column, const Dataset&, DecodeIsolation*) {
  if (column.operations.size() > 1) {
    const CheckedOperation& next = column.operations[1];
    return FieldErr(next.path, "{} may not follow Label, whose value is complete; leave it out",
                    next.name);
  }
  MadeColumn made;
  made.plan = std::make_unique<LabelColumn>(column.name);
  return made;
}

}  // namespace

const ColumnSource kLabel = {&GetSchema, &Make};

}  // namespace batchd
