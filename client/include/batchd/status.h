// SPDX-License-Identifier: Apache-2.0
//
// Errors as values. A call that can fail returns Status, or Result<T> if it has something to give.
// No call throws, apart from std::bad_alloc.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#define BATCHD_EXPORT [[gnu::visibility("default")]]

namespace batchd {

// The numbers are google.rpc.Code's.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// "OK", "INVALID_ARGUMENT", ...
BATCHD_EXPORT std::string_view StatusCodeName(StatusCode code);

// What has gone wrong, as the caller can act on it.
enum class ErrorKind {
  kNone,            // OK
  kOther,           // none of the others
  kArgument,        // an option or argument of this call; nothing was sent
  kOpen,            // the daemon refuses the session; Status::field() may name the option
  kStateMismatch,   // a state is of other data, or of another pipeline or sampling
  kSample,          // a sample is bad and on_bad_sample is kFail; see Status::sample()
  kSlotsExhausted,  // every batch that memory allows is held; see Status::slots()
  kUnavailable,     // daemon or storage do not answer now; they may later
  kConnectionLost,  // the daemon has gone, and none came back in time
  kProtocol,        // daemon and client do not understand each other
  kFork,            // a Loader that was made before a fork is used in the child
};

// The sample that a batch failed for.
struct SampleFault {
  std::string reason;      // "empty", "not_an_image", "truncated", "corrupt", "unsupported", ...
  int64_t ordinal = -1;    // in the dataset
  std::string name;        // of its file
  std::string next_state;  // for Loader::LoadState(), to go on past the batch
};

// What a trainer holds that can have no more batches.
struct SlotsFault {
  int64_t held_slots = 0;
  int64_t slab_size_bytes = 0;  // of one batch
  int64_t budget_bytes = 0;     // of all sessions of the daemon
  int64_t used_bytes = 0;       // of the budget
};

// Everything about an error.
struct Error {
  StatusCode code = StatusCode::kUnknown;
  ErrorKind kind = ErrorKind::kOther;
  std::string message;  // value, limit and way out
  std::string field;    // path of the option that is wrong, such as "pipeline.image[1].size"; or ""
  std::optional<SampleFault> sample;
  std::optional<SlotsFault> slots;
};

// OK or an Error. Cheap to copy; a const Status may be read by any thread.
class [[nodiscard]] BATCHD_EXPORT Status {
 public:
  Status() = default;  // OK
  explicit Status(Error error);

  bool ok() const { return error_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : error_->code; }
  ErrorKind kind() const { return ok() ? ErrorKind::kNone : error_->kind; }
  const std::string& message() const;  // "" if OK
  const std::string& field() const;    // "" if there is none
  // Null unless kind() is kSample; belongs to this Status.
  const SampleFault* sample() const;
  // Null unless kind() is kSlotsExhausted; belongs to this Status.
  const SlotsFault* slots() const;

  // "OK", or "<CODE>: <message>".
  std::string ToString() const;

 private:
  std::shared_ptr<const Error> error_;
};

namespace internal {
[[noreturn]] BATCHD_EXPORT void DieForMissingValue(const Status& status);
}  // namespace internal

// A T, or the Status that says why there is none. Looking at the value of a Result that has none
// ends the program with the status's message: check ok() first.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Both conversions are meant: `return value;`, `return status;`.
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status status() && { return std::move(status_); }

  T& operator*() & { return Checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->Checked(); }
  T&& operator*() && { return std::move(Checked()); }
  T* operator->() { return &Checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->Checked(); }

 private:
  T& Checked() {
    if (!value_.has_value()) internal::DieForMissingValue(status_);
    return *value_;
  }

  Status status_;
  std::optional<T> value_;
};

}  // namespace batchd
