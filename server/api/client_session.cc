// SPDX-License-Identifier: Apache-2.0
#include "server/api/client_session.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/shm/wire.h"
#include "server/api/convert.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int kOrdinalsMax = 4096;

SlotRef RefOf(int segment, int slot, int64_t sequence) {
  return SlotRef{segment, slot, static_cast<uint64_t>(sequence)};
}

}  // namespace

absl::Status ClientSession::NeedsOpen(const char* what) const {
  if (state_ == State::kOpen) return absl::OkStatus();
  return Err(absl::StatusCode::kFailedPrecondition, "{} before Open; the first message is Open",
             what);
}

absl::Status ClientSession::Handle(const v1::ClientMessage& message, v1::ServerMessage* reply) {
  switch (message.message_case()) {
    case v1::ClientMessage::kOpen:
      return Open(message.open());
    case v1::ClientMessage::kTake: {
      const v1::Take& take = message.take();
      return Take(RefOf(take.segment(), take.slot(), take.sequence()),
                  Duration(std::max<int64_t>(take.waited_nanoseconds(), 0)), take.was_ready());
    }
    case v1::ClientMessage::kRelease: {
      const v1::Release& release = message.release();
      return Release(RefOf(release.segment(), release.slot(), release.sequence()));
    }
    case v1::ClientMessage::kSeek:
      return Seek(message.seek());
    case v1::ClientMessage::kQuery:
      return Query(message.query(), reply->mutable_answer());
    case v1::ClientMessage::kClose:
      Close();
      return absl::OkStatus();
    case v1::ClientMessage::MESSAGE_NOT_SET:
      break;
  }
  return Err(absl::StatusCode::kUnimplemented,
             "a message of a kind that this daemon ({}) does not know", BATCHD_VERSION);
}

absl::Status ClientSession::Open(const v1::Open& open) {
  if (state_ != State::kNew) {
    return Err(absl::StatusCode::kFailedPrecondition,
               "a second Open; a connection carries one session, so open another connection");
  }
  BATCHD_ASSIGN_OR_RETURN(OpenRequest request, OpenFromProto(open, door_));
  state_ = State::kOpen;
  id_ = manager_->Open(std::move(request), output_);
  return absl::OkStatus();
}

absl::Status ClientSession::Take(const SlotRef& ref, Duration waited, bool was_ready) {
  BATCHD_RETURN_IF_ERROR(NeedsOpen("Take"));
  manager_->Take(id_, ref, waited, was_ready);
  return absl::OkStatus();
}

absl::Status ClientSession::Release(const SlotRef& ref) {
  BATCHD_RETURN_IF_ERROR(NeedsOpen("Release"));
  manager_->Release(id_, ref);
  return absl::OkStatus();
}

absl::Status ClientSession::Seek(const v1::Seek& seek) {
  BATCHD_RETURN_IF_ERROR(NeedsOpen("Seek"));
  if (seek.generation() < 1) {
    return FieldErr("seek.generation", "{} does not grow; Open counts as 0", seek.generation());
  }
  manager_->Seek(id_, static_cast<uint32_t>(seek.generation()),
                 Position{seek.position().epoch(), seek.position().step()});
  return absl::OkStatus();
}

absl::Status ClientSession::Query(const v1::Query& query, v1::Answer* answer) {
  BATCHD_RETURN_IF_ERROR(NeedsOpen("Query"));
  answer->set_query_id(query.query_id());
  absl::StatusOr<std::vector<std::string>> names;
  if (query.has_sample_names()) {
    const auto& ordinals = query.sample_names().ordinals();
    if (ordinals.size() > kOrdinalsMax) {
      return FieldErr("query.sample_names.ordinals", "{} ordinals at once; the most is {}",
                      ordinals.size(), kOrdinalsMax);
    }
    names = manager_->SampleNames(id_, std::vector<int64_t>(ordinals.begin(), ordinals.end()));
  } else if (query.has_class_names()) {
    names = manager_->ClassNames(id_, query.class_names().first(), wire::kMessageBytesMax / 2);
  } else {
    return Err(absl::StatusCode::kUnimplemented,
               "a query of a kind that this daemon ({}) does not know", BATCHD_VERSION);
  }
  BATCHD_RETURN_IF_ERROR(names.status());
  NamesToProto(*names, answer);
  return absl::OkStatus();
}

void ClientSession::Close() {
  if (state_ == State::kOpen) manager_->Close(id_);
  state_ = State::kClosed;
}

}  // namespace batchd
