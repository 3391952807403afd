// SPDX-License-Identifier: Apache-2.0
//
// What a Loader's options say, checked as far as the client can alone, as the message Open.

#pragma once

#include <optional>

#include "batchd/options.h"
#include "client/src/state.h"
#include "client/src/util.h"

namespace batchd::internal {

struct Request {
  Json open;  // all but sampling, start, prefetch and expected, which differ between sessions
  Sampling sampling;
  std::optional<int64_t> explicit_global_batch_size;
  Json bad_samples;  // the members of Sampling that bound bad samples
  int rank = 0;
  int world_size = 1;
  int prefetch = 0;
  double reconnect_timeout_seconds = 0;
};

// Errors: kArgument, naming option, value and what is allowed.
Result<Request> MakeRequest(const LoaderOptions& options);

// The message Sampling.
Json SamplingToJson(const Sampling& sampling, const Json& bad_samples);

}  // namespace batchd::internal
