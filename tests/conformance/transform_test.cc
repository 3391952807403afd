// SPDX-License-Identifier: Apache-2.0

#include "tests/conformance/transform_suite.h"

namespace batchd {
namespace {

INSTANTIATE_TEST_SUITE_P(All, TransformSuite, ::testing::ValuesIn(TransformKinds()),
                         [](const auto& test) { return test.param->schema().name; });

}  // namespace
}  // namespace batchd
