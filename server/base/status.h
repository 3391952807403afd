// SPDX-License-Identifier: Apache-2.0
//
// Errors as values. Every fallible call returns absl::Status or absl::StatusOr; the codes are
// gRPC's. A message is one lower-case phrase with value, limit and way out.
//
// Two kinds of error carry more than text. A *sample error* (DATA_LOSS) says what is wrong with one
// sample by a SampleReason, a word that is the same in messages, metrics, the protocol and Python.
// A *field error* (INVALID_ARGUMENT) names the field of the request by its path.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"

namespace batchd {

// absl::Status of `code` with a formatted message.
template <typename... Args>
absl::Status Err(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// What is wrong with a sample. A closed set: it is a metric label.
enum class SampleReason {
  kEmpty,        // no bytes
  kNotAnImage,   // content of another nature
  kTruncated,    // ends too early
  kCorrupt,      // damaged inside, or not what the index says
  kUnsupported,  // recognised, not handled by this build
  kTooLarge,     // above a limit on pixels or bytes
  kNotFound,     // no such file, or it cannot be opened
  kNotAFile,     // a folder, socket or device
};
inline constexpr int kSampleReasonCount = 8;

// "empty", "not_an_image", ...
std::string_view SampleReasonName(SampleReason reason);

// DATA_LOSS with the reason attached; the message becomes "<reason>: <message>".
template <typename... Args>
absl::Status SampleErr(SampleReason reason, fmt::format_string<Args...> format, Args&&... args);
absl::Status MakeSampleError(SampleReason reason, const std::string& message);

// The reason of a sample error, or nothing if `status` is none.
std::optional<SampleReason> SampleReasonOf(const absl::Status& status);

// INVALID_ARGUMENT with the field's path attached; the message becomes "<field>: <message>".
template <typename... Args>
absl::Status FieldErr(std::string_view field, fmt::format_string<Args...> format, Args&&... args);
absl::Status MakeFieldError(std::string_view field, const std::string& message);

// The path of a field error, or "".
std::string FieldOf(const absl::Status& status);

// The same code and payloads, the message prefixed with "<context>: ".
absl::Status Annotate(const absl::Status& status, std::string_view context);

// "open: No such file or directory" for an errno value.
std::string ErrnoText(std::string_view call, int error_number);

template <typename... Args>
absl::Status SampleErr(SampleReason reason, fmt::format_string<Args...> format, Args&&... args) {
  return MakeSampleError(reason, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
absl::Status FieldErr(std::string_view field, fmt::format_string<Args...> format, Args&&... args) {
  return MakeFieldError(field, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace batchd

#define BATCHD_CONCAT_INNER(a, b) a##b
#define BATCHD_CONCAT(a, b) BATCHD_CONCAT_INNER(a, b)

#define BATCHD_RETURN_IF_ERROR(expression)         \
  do {                                             \
    absl::Status batchd_status = (expression);     \
    if (!batchd_status.ok()) return batchd_status; \
  } while (false)

#define BATCHD_ASSIGN_OR_RETURN(target, expression) \
  BATCHD_ASSIGN_OR_RETURN_INNER(BATCHD_CONCAT(batchd_or_, __LINE__), target, expression)
#define BATCHD_ASSIGN_OR_RETURN_INNER(temporary, target, expression) \
  auto temporary = (expression);                                     \
  if (!temporary.ok()) return temporary.status();                    \
  target = std::move(temporary).value()
