// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "server/base/status.h"
#include "server/transform/kinds.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "Normalize",
      .sentence = "Takes the mean from each channel and divides by the standard deviation.",
      .params = {{.name = "mean",
                  .type = ParamType::kFloatList,
                  .sentence = "The mean of each channel, red, green, blue.",
                  .default_value = Json::array({0.485, 0.456, 0.406}),
                  .min = -1e30,
                  .max = 1e30,
                  .count_min = 3,
                  .count_max = 3},
                 {.name = "std",
                  .type = ParamType::kFloatList,
                  .sentence = "The standard deviation of each channel; not 0.",
                  .default_value = Json::array({0.229, 0.224, 0.225}),
                  .min = -1e30,
                  .max = 1e30,
                  .count_min = 3,
                  .count_max = 3}}};
  return *schema;
}

using Channels = std::array<float, 3>;

class Normalize : public Transform {
 public:
  Normalize(const Channels& mean, const Channels& std) : mean_(mean), std_(std) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) const override {
    BATCHD_RETURN_IF_ERROR(CheckNotLast("Normalize", *format));
    if (!format->is_tensor) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "Normalize needs float32 values; put ToTensor before it");
    }
    if (format->is_normalized) {
      return Err(absl::StatusCode::kInvalidArgument, "Normalize comes once; leave this one out");
    }
    table->Normalize(mean_, std_);
    format->is_normalized = true;
    return absl::OkStatus();
  }

 private:
  const Channels mean_;
  const Channels std_;
};

// torch keeps both as float32.
Channels ChannelsArgument(const Json& list) {
  return {static_cast<float>(list[0].get<double>()), static_cast<float>(list[1].get<double>()),
          static_cast<float>(list[2].get<double>())};
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const Json& arguments) {
  const Channels std = ChannelsArgument(arguments["std"]);
  for (int c = 0; c < 3; ++c) {
    // Also what becomes 0 as float32.
    if (std[c] != 0.0f) continue;
    return FieldErr(fmt::format("std[{}]", c),
                    "{} cannot be divided by; give a number that is not 0",
                    arguments["std"][c].get<double>());
  }
  return std::make_unique<Normalize>(ChannelsArgument(arguments["mean"]), std);
}

}  // namespace

const TransformKind kNormalizeKind = {&GetSchema, &Make};

}  // namespace batchd
