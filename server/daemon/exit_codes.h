// SPDX-License-Identifier: Apache-2.0
//
// What the program's exit codes mean; the numbers are those of <sysexits.h>, which supervisors
// know.

#pragma once

#include "absl/status/status.h"

namespace batchd {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;        // the answer is no: not healthy, a check that fails
inline constexpr int kExitUsage = 64;        // a flag or variable is wrong
inline constexpr int kExitData = 65;         // a dataset cannot be used
inline constexpr int kExitUnavailable = 69;  // an address cannot be had, or nobody answers there
inline constexpr int kExitInternal = 70;     // a fault of this program
inline constexpr int kExitOtherDaemon = 75;  // another daemon holds the socket
inline constexpr int kExitConfig = 78;       // the configuration file is wrong

inline constexpr char kExitCodesHelp[] =
    "Exit codes: 0 ok; 1 the answer is no (not healthy, a check fails); 64 wrong flag or "
    "variable;\n"
    "65 unusable dataset; 69 an address cannot be had or nobody answers; 70 internal fault;\n"
    "75 another daemon holds the socket; 78 wrong configuration file.";

}  // namespace batchd
