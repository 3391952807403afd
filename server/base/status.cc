// SPDX-License-Identifier: Apache-2.0
#include "server/base/status.h"

#include <system_error>

#include "absl/strings/cord.h"

namespace batchd {
namespace {

constexpr char kReasonUrl[] = "batchd.sample_reason";
constexpr char kFieldUrl[] = "batchd.field";

constexpr std::string_view kReasonNames[kSampleReasonCount] = {
    "empty",       "not_an_image", "truncated", "corrupt",
    "unsupported", "too_large",    "not_found", "not_a_file"};

}  // namespace

std::string_view SampleReasonName(SampleReason reason) {
  return kReasonNames[static_cast<int>(reason)];
}

absl::Status MakeSampleError(SampleReason reason, const std::string& message) {
  absl::Status status(absl::StatusCode::kDataLoss,
                      fmt::format("{}: {}", SampleReasonName(reason), message));
  status.SetPayload(kReasonUrl, absl::Cord(std::string(1, static_cast<char>(reason))));
  return status;
}

std::optional<SampleReason> SampleReasonOf(const absl::Status& status) {
  auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return std::nullopt;
  return static_cast<SampleReason>(std::string(*payload)[0]);
}

absl::Status MakeFieldError(std::string_view field, const std::string& message) {
  absl::Status status(absl::StatusCode::kInvalidArgument, fmt::format("{}: {}", field, message));
  status.SetPayload(kFieldUrl, absl::Cord(std::string(field)));
  return status;
}

std::string FieldOf(const absl::Status& status) {
  auto payload = status.GetPayload(kFieldUrl);
  return payload.has_value() ? std::string(*payload) : std::string();
}

absl::Status Annotate(const absl::Status& status, std::string_view context) {
  absl::Status annotated(status.code(),
                         fmt::format("{}: {}", context, std::string(status.message())));
  status.ForEachPayload(
      [&](auto url, const absl::Cord& payload) { annotated.SetPayload(url, payload); });
  return annotated;
}

std::string ErrnoText(std::string_view call, int error_number) {
  return fmt::format("{}: {}", call, std::generic_category().message(error_number));
}

}  // namespace batchd
