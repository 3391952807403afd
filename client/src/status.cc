// SPDX-License-Identifier: Apache-2.0
#include "batchd/status.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace batchd {
namespace {

constexpr std::string_view kCodeNames[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

const std::string& Nothing() {
  static const std::string* const nothing = new std::string;  // outlives every static object
  return *nothing;
}

}  // namespace

std::string_view StatusCodeName(StatusCode code) {
  const auto number = static_cast<size_t>(code);
  return number < std::size(kCodeNames) ? kCodeNames[number] : "UNKNOWN";
}

Status::Status(Error error) : error_(std::make_shared<const Error>(std::move(error))) {}

const std::string& Status::message() const { return ok() ? Nothing() : error_->message; }
const std::string& Status::field() const { return ok() ? Nothing() : error_->field; }

const SampleFault* Status::sample() const {
  return !ok() && error_->sample.has_value() ? &*error_->sample : nullptr;
}

const SlotsFault* Status::slots() const {
  return !ok() && error_->slots.has_value() ? &*error_->slots : nullptr;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(StatusCodeName(code())) + ": " + message();
}

void internal::DieForMissingValue(const Status& status) {
  std::fprintf(stderr, "batchd: the value of a Result that has none: %s\n",
               status.ToString().c_str());
  std::abort();
}

}  // namespace batchd
