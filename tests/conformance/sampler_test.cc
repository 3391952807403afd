// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/sampler_suite.h"

namespace batchd {
namespace {

SamplerCase CaseOf(Shuffle shuffle) {
  return {std::string(ShuffleName(shuffle)), [shuffle](SamplerOptions options) {
            options.shuffle = shuffle;
            return MakeSampler(options);
          }};
}

INSTANTIATE_TEST_SUITE_P(Fixed, SamplerSuite,
                         testing::Values(CaseOf(Shuffle::kNone), CaseOf(Shuffle::kFeistel),
                                         CaseOf(Shuffle::kTorch)),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace batchd
