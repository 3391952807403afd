// SPDX-License-Identifier: Apache-2.0
//
// Matchers of absl::Status for GoogleTest; Debian's Abseil has none.

#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/base/status.h"

namespace batchd {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// A status of this code whose message has this part.
MATCHER_P2(FailsWith, code, part, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         std::string(StatusOf(arg).message()).find(part) != std::string::npos;
}

// A sample error of this reason.
MATCHER_P(IsBadSample, reason, "") {
  *result_listener << StatusOf(arg).ToString();
  return SampleReasonOf(StatusOf(arg)) == reason;
}

}  // namespace batchd

#define ASSERT_OK(expression) ASSERT_THAT(expression, ::batchd::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::batchd::IsOk())
