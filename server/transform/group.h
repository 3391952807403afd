// SPDX-License-Identifier: Apache-2.0
//
// What operations that choose among others have in common. Internal to server/transform.

#pragma once

#include <span>

#include "absl/status/status.h"
#include "server/transform/operation.h"

namespace batchd {

// Prepares operations that are done to some samples and not to others: they may change the size of
// a picture, and nothing else that all rows of a column have in common. `format` becomes that after
// them. Errors: field errors with the whole path.
absl::Status PrepareChoice(std::span<const Operation> operations, RowFormat* format,
                           ValueTable* table);

// Into `format` what holds after one of two ways: its size only if both have it.
void JoinFormats(const RowFormat& other, RowFormat* format);

}  // namespace batchd
