// SPDX-License-Identifier: Apache-2.0
//
// The messages of proto/batchd/v1 as the domain's types and back: the one place where the two meet.
// Pure functions: thread-safe.
//
// What comes in has any content. Ranges are the SessionManager's to check; here is refused what the
// domain's types cannot hold, and what would cost memory or stack before the manager sees it. What
// goes out has texts that may stem from file names: they are made valid UTF-8.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "batchd/v1/service.pb.h"
#include "batchd/v1/session.pb.h"
#include "server/session/manager.h"
#include "server/session/output.h"

namespace batchd {

// Arguments of operations: how deep they may nest, and how many values one Open may have.
inline constexpr int kArgumentDepthMax = 16;
inline constexpr int kArgumentValuesMax = 16'384;

// An Open that came in through the door of `door`. Errors: a field error with the path, for example
// "dataset.name", where something required is missing, an enum has an unknown value, a number does
// not fit, arguments are too deep or too many, or the transport is not that door's.
absl::StatusOr<OpenRequest> OpenFromProto(const v1::Open& open, TransportKind door);

// The session of one batch behind GetBatch. Errors: as above; the path begins with "open." or
// "address".
absl::StatusOr<OpenRequest> SingleFromProto(const v1::GetBatchRequest& request);

void ToProto(const OpenedInfo& info, v1::Opened* out);
void ToProto(int index, const Segment& segment, v1::Segment* out);
void ToProto(const ReadyBatch& batch, v1::Ready* out);
void ToProto(const BatchFailure& failure, v1::Failure* out);
void ToProto(const ExhaustedInfo& info, v1::Exhausted* out);
void ToProto(const absl::Status& status, v1::Error* out);
void ToProto(const SessionStatusInfo& info, v1::SessionStatus* out);

// Names for one Answer: as many, from the first on, as a message of the protocol can hold.
void NamesToProto(const std::vector<std::string>& names, v1::Answer* out);

// `text` with every byte that is not part of valid UTF-8 replaced by U+FFFD.
std::string ValidUtf8(std::string_view text);

// The content of a sealed slab (proto/shm/slab.h) as a GetBatch answer. Copies.
void SlabToProto(const ReadyBatch& batch, const std::vector<ColumnShape>& columns,
                 v1::GetBatchResponse* out);

}  // namespace batchd
