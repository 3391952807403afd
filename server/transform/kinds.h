// SPDX-License-Identifier: Apache-2.0
//
// The transforms of this build, each defined in its own file, and what several of them need to read
// their arguments. Internal to server/transform.

#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/transform/operation.h"
#include "server/transform/transform.h"

namespace batchd {

extern const TransformKind kRandomResizedCropKind;
extern const TransformKind kResizeKind;
extern const TransformKind kCenterCropKind;
extern const TransformKind kRandomHorizontalFlipKind;
extern const TransformKind kGrayscaleKind;
extern const TransformKind kToTensorKind;
extern const TransformKind kNormalizeKind;
extern const TransformKind kLayoutKind;
extern const TransformKind kCastKind;

// A checked kSize argument; one integer is both sides.
ImageSize SizeArgument(const Json& size);

struct Range {
  double min;
  double max;
};
// A checked kFloatList of two numbers. Errors: a field error if the first is above the second.
absl::StatusOr<Range> RangeArgument(const CheckedOperation& operation, const char* name);

// The parameter "interpolation", and the filter that its checked value names.
Param InterpolationParam();
Filter FilterArgument(const Json& interpolation);

// Whether the operation `name` may stand where the rows are `format`: nothing but each other may
// follow Layout and Cast, and what moves or changes pixels works on 8 bits, before anything is
// erased. INVALID_ARGUMENT with the way out.
absl::Status CheckNotLast(std::string_view name, const RowFormat& format);
absl::Status CheckPixelPlace(std::string_view name, const RowFormat& format);
// The same for an operation that adds steps to the plan, which is noted in the format.
absl::Status CheckPicturePlace(std::string_view name, RowFormat* format);

}  // namespace batchd
