// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "Resize",
      .sentence = "Resizes the picture.",
      .params = {
          {.name = "size",
           .type = ParamType::kSize,
           .sentence = "The short side in pixels, the aspect being kept, or [height, width].",
           .default_value = std::nullopt,
           .min = 1,
           .max = kSideMax},
          {.name = "max_size",
           .type = ParamType::kInt,
           .sentence = "The most that the long side may become, in pixels; only where size is the "
                       "short side.",
           .default_value = Json(nullptr),
           .min = 1,
           .max = kSideMax},
          InterpolationParam()}};
  return *schema;
}

class ResizeTo : public Transform {
 public:
  ResizeTo(ImageSize size, Filter filter) : size_(size), filter_(filter) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    BATCHD_RETURN_IF_ERROR(CheckPixelPlace("Resize", *format));
    format->size = size_;
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws*) const override {
    plan->Resize(size_, filter_);
    return absl::OkStatus();
  }

 private:
  const ImageSize size_;
  const Filter filter_;
};

class ResizeShortSide : public Transform {
 public:
  ResizeShortSide(int short_side, std::optional<int> max_size, Filter filter)
      : short_side_(short_side), max_size_(max_size), filter_(filter) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    BATCHD_RETURN_IF_ERROR(CheckPixelPlace("Resize", *format));
    if (!format->size.has_value()) return absl::OkStatus();
    const auto size = ShortSideSize(*format->size, short_side_, max_size_);
    // Here it is not a sample that is wrong: every row would be that large.
    if (!size.ok()) return absl::InvalidArgumentError(size.status().message());
    format->size = *size;
    return absl::OkStatus();
  }
  absl::Status Plan(PicturePlan* plan, Draws*) const override {
    BATCHD_ASSIGN_OR_RETURN(const ImageSize size,
                            ShortSideSize(plan->output(), short_side_, max_size_));
    plan->Resize(size, filter_);
    return absl::OkStatus();
  }

 private:
  const int short_side_;
  const std::optional<int> max_size_;
  const Filter filter_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const Json& size = operation.arguments["size"];
  const Json& max_size = operation.arguments["max_size"];
  const Filter filter = FilterArgument(operation.arguments["interpolation"]);
  if (size.is_array()) {
    if (!max_size.is_null()) {
      return FieldErr("max_size",
                      "{} has no meaning beside a size of [height, width]; leave it out",
                      max_size.get<int>());
    }
    return std::make_unique<ResizeTo>(SizeArgument(size), filter);
  }
  const int short_side = size.get<int>();
  if (max_size.is_null())
    return std::make_unique<ResizeShortSide>(short_side, std::nullopt, filter);
  if (max_size.get<int>() <= short_side) {
    return FieldErr("max_size", "{} must be more than size, which is {}", max_size.get<int>(),
                    short_side);
  }
  return std::make_unique<ResizeShortSide>(short_side, max_size.get<int>(), filter);
}

}  // namespace

const TransformKind kResizeKind = {&GetSchema, &Make, /*is_random=*/false, Geometry::kOnly};

}  // namespace batchd
