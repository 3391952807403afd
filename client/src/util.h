// SPDX-License-Identifier: Apache-2.0
//
// What all files of the client use: errors made in one line, and JSON that is read without trust.

#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "batchd/status.h"

namespace batchd::internal {

using Json = nlohmann::json;

// The parts one after the other, as text.
template <typename... Parts>
std::string Cat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

inline Status MakeError(ErrorKind kind, StatusCode code, std::string message,
                        std::string field = "") {
  Error error;
  error.code = code;
  error.kind = kind;
  error.message = std::move(message);
  error.field = std::move(field);
  return Status(std::move(error));
}

template <typename... Parts>
Status ArgumentError(const Parts&... parts) {
  return MakeError(ErrorKind::kArgument, StatusCode::kInvalidArgument, Cat(parts...));
}
template <typename... Parts>
Status ProtocolError(const Parts&... parts) {
  return MakeError(ErrorKind::kProtocol, StatusCode::kInternal, Cat(parts...));
}
template <typename... Parts>
Status Unavailable(const Parts&... parts) {
  return MakeError(ErrorKind::kUnavailable, StatusCode::kUnavailable, Cat(parts...));
}
template <typename... Parts>
Status ConnectionLost(const Parts&... parts) {
  return MakeError(ErrorKind::kConnectionLost, StatusCode::kUnavailable, Cat(parts...));
}

// "No such file or directory" for an errno value.
std::string ErrnoText(int error_number);

// The value of an environment variable, or "".
std::string Environment(const char* name);

// The object of that name in `message`, or an empty one.
const Json& ObjectIn(const Json& message, const char* name);
// proto3 JSON leaves out what is 0 or "" and writes integers of 64 bits as text: numbers of either
// form, else 0.
int64_t IntIn(const Json& message, const char* name);
uint64_t UintIn(const Json& message, const char* name);
std::string TextIn(const Json& message, const char* name);
// An enumeration's word as states have it: "SHUFFLE_TORCH" without "SHUFFLE_" is "torch".
std::string WordIn(const Json& message, const char* name, std::string_view prefix);
// The other way: "torch" to "SHUFFLE_TORCH".
std::string EnumName(std::string_view prefix, std::string_view word);

// Errors: kArgument if it cannot be written, as text in it is no UTF-8.
Result<std::string> Write(const Json& message);

}  // namespace batchd::internal

#define BATCHD_CLIENT_RETURN_IF_ERROR(expression)                               \
  do {                                                                          \
    if (::batchd::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
