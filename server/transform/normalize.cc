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
                  .sentence = "The mean of each channel, red, green, blue; one number is all.",
                  .default_value = Json::array({0.485, 0.456, 0.406}),
                  .min = -1e30,
                  .max = 1e30,
                  .count_min = 1,
                  .count_max = 3},
                 {.name = "std",
                  .type = ParamType::kFloatList,
                  .sentence = "The standard deviation of each channel; not 0.",
                  .default_value = Json::array({0.229, 0.224, 0.225}),
                  .min = -1e30,
                  .max = 1e30,
                  .count_min = 1,
                  .count_max = 3}}};
  return *schema;
}

// One number for each channel, or one for all.
struct Channels {
  std::array<float, 3> values;
  size_t count;
};

absl::Status CheckCount(const char* name, const Channels& channels, const RowFormat& format) {
  if (channels.count == 1 || channels.count == static_cast<size_t>(format.channels)) {
    return absl::OkStatus();
  }
  return FieldErr(name, "{} numbers for rows of {} channel{}; give {}", channels.count,
                  format.channels, format.channels == 1 ? "" : "s",
                  format.channels == 1 ? "1" : "1 or 3");
}

class Normalize : public Transform {
 public:
  Normalize(const Channels& mean, const Channels& std) : mean_(mean), std_(std) {}

  absl::Status Prepare(RowFormat* format, ValueTable* table) override {
    BATCHD_RETURN_IF_ERROR(CheckNotLast("Normalize", *format));
    if (!format->is_tensor) {
      return Err(absl::StatusCode::kInvalidArgument,
                 "Normalize needs float32 values; put ToTensor before it");
    }
    if (format->is_normalized) {
      return Err(absl::StatusCode::kInvalidArgument, "Normalize comes once; leave this one out");
    }
    BATCHD_RETURN_IF_ERROR(CheckCount("mean", mean_, *format));
    BATCHD_RETURN_IF_ERROR(CheckCount("std", std_, *format));
    table->Normalize(mean_.values, std_.values);
    format->is_normalized = true;
    return absl::OkStatus();
  }

 private:
  const Channels mean_;
  const Channels std_;
};

// torch keeps both as float32.
Channels ChannelsArgument(const Json& list) {
  Channels channels = {.count = list.size()};
  for (size_t c = 0; c < channels.values.size(); ++c) {
    channels.values[c] = static_cast<float>(list[c % list.size()].get<double>());
  }
  return channels;
}

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const Json& list = operation.arguments["std"];
  for (size_t c = 0; c < list.size(); ++c) {
    // Also what becomes 0 as float32.
    if (static_cast<float>(list[c].get<double>()) != 0.0f) continue;
    return FieldErr(fmt::format("std[{}]", c),
                    "{} cannot be divided by; give a number that is not 0", list[c].get<double>());
  }
  return std::make_unique<Normalize>(ChannelsArgument(operation.arguments["mean"]),
                                     ChannelsArgument(list));
}

}  // namespace

const TransformKind kNormalizeKind = {&GetSchema, &Make};

}  // namespace batchd
