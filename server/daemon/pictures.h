// SPDX-License-Identifier: Apache-2.0
//
// A small set of real JPEGs for the demo and the quickstart: what somebody without a dataset tries
// batchd with.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace batchd {

inline constexpr int64_t kPicturesMax = 1'000'000;

// Writes `count` pictures into `folder`/<class>/<number>.jpg, the same ones on every machine: 4
// classes, sizes from 320×240 to 640×480, as much detail as a photo. Errors: with errno's text.
absl::Status MakePictures(const std::string& folder, int64_t count);

}  // namespace batchd
