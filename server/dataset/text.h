// SPDX-License-Identifier: Apache-2.0
//
// File names are bytes; what people and JSON see is UTF-8.

#pragma once

#include <string>
#include <string_view>

namespace batchd {

// `name` itself if it is valid UTF-8; else with each byte that is not as \xNN, and \ as \\.
std::string PrintableName(std::string_view name);

}  // namespace batchd
