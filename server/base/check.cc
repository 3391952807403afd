// SPDX-License-Identifier: Apache-2.0
#include "server/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace batchd {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, condition);
  std::abort();
}

}  // namespace batchd
