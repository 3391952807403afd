// SPDX-License-Identifier: Apache-2.0
//
// The transforms of this build, each defined in its own file, and what several of them need to read
// their arguments. Internal to server/transform.

#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/transform/transform.h"

namespace batchd {

extern const TransformKind kRandomResizedCropKind;
extern const TransformKind kResizeKind;
extern const TransformKind kCenterCropKind;
extern const TransformKind kRandomHorizontalFlipKind;
extern const TransformKind kToTensorKind;
extern const TransformKind kNormalizeKind;
extern const TransformKind kLayoutKind;
extern const TransformKind kCastKind;

// A checked kSize argument; one integer is both sides.
ImageSize SizeArgument(const Json& size);

// The parameter "interpolation", and the filter that its checked value names.
Param InterpolationParam();
Filter FilterArgument(const Json& interpolation);

// Whether the operation `name` may stand where the rows are `format`: geometry works on 8-bit
// pixels, and nothing but each other may follow Layout and Cast. INVALID_ARGUMENT with the way out.
absl::Status CheckGeometryPlace(std::string_view name, const RowFormat& format);
absl::Status CheckNotLast(std::string_view name, const RowFormat& format);

}  // namespace batchd
