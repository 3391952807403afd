// SPDX-License-Identifier: Apache-2.0
//
// BATCHD_CHECK aborts when an invariant is broken: a fault in this program, never in its input. A
// restart is cheap, since a batch is a pure function of its address; going on with a broken
// invariant is not.

#pragma once

namespace batchd {

// Prints the condition with its place and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);

}  // namespace batchd

#define BATCHD_CHECK(condition)                                              \
  do {                                                                       \
    if (!(condition)) ::batchd::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)
