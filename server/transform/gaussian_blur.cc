// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"
#include "server/transform/kinds.h"
#include "server/transform/sizes.h"

namespace batchd {
namespace {

const Schema& GetSchema() {
  static const auto* const schema = new Schema{
      .name = "GaussianBlur",
      .sentence = "Blurs the picture by a random amount.",
      .params = {{.name = "kernel_size",
                  .type = ParamType::kIntList,
                  .sentence = "Width and height of the kernel, in pixels, odd; one number is both.",
                  .default_value = std::nullopt,
                  .min = 1,
                  .max = kBlurSizeMax,
                  .count_min = 1,
                  .count_max = 2},
                 {.name = "sigma",
                  .type = ParamType::kFloatList,
                  .sentence = "Least and most of the standard deviation, in pixels; one number is "
                              "both.",
                  .default_value = Json::array({0.1, 2.0}),
                  .min = 1e-3,
                  .max = 1e6,
                  .count_min = 1,
                  .count_max = 2}}};
  return *schema;
}

class Blur : public Transform {
 public:
  Blur(int size_x, int size_y, Range sigma) : size_x_(size_x), size_y_(size_y), sigma_(sigma) {}

  absl::Status Prepare(RowFormat* format, ValueTable*) override {
    const GaussianKernel kernel = {.size_x = size_x_, .size_y = size_y_};
    const auto most = static_cast<int64_t>(BlurScratchBytes({kSideMax, kSideMax}, kernel));
    return CheckPicturePlace("GaussianBlur", format, most);
  }
  absl::Status Plan(PicturePlan* plan, Draws* draws) const override {
    BATCHD_RETURN_IF_ERROR(CheckSides("GaussianBlur", plan->output()));
    plan->Apply(BlurStep(size_x_, size_y_, draws->NextUniform(sigma_.min, sigma_.max)));
    return absl::OkStatus();
  }

 private:
  const int size_x_;
  const int size_y_;
  const Range sigma_;
};

absl::StatusOr<std::unique_ptr<Transform>> Make(const CheckedOperation& operation) {
  const Json& size = operation.arguments["kernel_size"];
  for (size_t i = 0; i < size.size(); ++i) {
    if (size[i].get<int>() % 2 == 1) continue;
    return FieldErr(fmt::format("kernel_size[{}]", i), "{} is even; give an odd number of pixels",
                    size[i].get<int>());
  }
  const Json& list = operation.arguments["sigma"];
  Range sigma = {list[0].get<double>(), list[0].get<double>()};
  if (list.size() == 2) {
    BATCHD_ASSIGN_OR_RETURN(sigma, RangeArgument(operation, "sigma"));
  }
  return std::make_unique<Blur>(size.front().get<int>(), size.back().get<int>(), sigma);
}

}  // namespace

const TransformKind kGaussianBlurKind = {&GetSchema, &Make, /*is_random=*/true};

}  // namespace batchd
