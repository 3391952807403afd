// SPDX-License-Identifier: Apache-2.0
//
// Running a test body with every instruction set that Highway has made code for.

#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "server/image/row_kernels.h"

namespace batchd {

// Those that this machine has, one after the other.
template <typename Body>
void ForEachTarget(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(hwy::TargetName(target));
    ASSERT_STREQ(KernelTargetName(), hwy::TargetName(target));
    body();
    if (testing::Test::HasFatalFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace batchd
