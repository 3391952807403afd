// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/worker_protocol.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "server/base/status.h"

namespace batchd {

void SetStatus(const absl::Status& status, WorkerAnswer* answer) {
  answer->code = static_cast<int32_t>(status.code());
  answer->reason = -1;
  std::string_view text(status.message().data(), status.message().size());
  if (const auto reason = SampleReasonOf(status); reason.has_value()) {
    answer->reason = static_cast<int32_t>(*reason);
    // The other end says the reason again: "<reason>: ".
    text.remove_prefix(SampleReasonName(*reason).size() + 2);
  }
  text = text.substr(0, WorkerAnswer::kTextMax);
  answer->text_size = static_cast<uint32_t>(text.size());
  std::copy(text.begin(), text.end(), answer->text);
}

bool IsWhole(const WorkerAnswer& answer, size_t size_bytes) {
  if (size_bytes < offsetof(WorkerAnswer, text)) return false;
  return answer.kind <= WorkerAnswer::Kind::kEnd && answer.text_size <= WorkerAnswer::kTextMax &&
         answer.size_bytes() == size_bytes;
}

std::optional<absl::Status> StatusIn(const WorkerAnswer& answer) {
  const auto code = static_cast<absl::StatusCode>(answer.code);
  if (code == absl::StatusCode::kOk) return absl::OkStatus();
  // Decoders' own texts are printable ASCII; this one is shown in logs and on terminals.
  std::string text(answer.text, answer.text_size);
  for (char& c : text) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  if (code == absl::StatusCode::kDataLoss) {
    if (answer.reason < 0 || answer.reason >= kSampleReasonCount) return std::nullopt;
    return MakeSampleError(static_cast<SampleReason>(answer.reason), text);
  }
  // Without memory; or, before the first picture, without what confines a worker.
  if (code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kUnavailable) {
    return absl::Status(code, text);
  }
  return std::nullopt;
}

}  // namespace batchd
