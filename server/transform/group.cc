// SPDX-License-Identifier: Apache-2.0
#include "server/transform/group.h"

#include <algorithm>

#include "server/base/status.h"

namespace batchd {
namespace {

// Whether rows of both formats can stand in one batch, sizes apart.
bool AreAlike(const RowFormat& a, const RowFormat& b) {
  return a.dtype == b.dtype && a.layout == b.layout && a.channels == b.channels &&
         a.is_tensor == b.is_tensor && a.is_normalized == b.is_normalized &&
         a.is_laid_out == b.is_laid_out && a.is_cast == b.is_cast;
}

}  // namespace

absl::Status PrepareChoice(std::span<const Operation> operations, RowFormat* format,
                           ValueTable* table) {
  for (size_t i = 0; i < operations.size(); ++i) {
    const RowFormat before = *format;
    BATCHD_RETURN_IF_ERROR(PrepareOperations(operations.subspan(i, 1), format, table));
    if (AreAlike(before, *format)) continue;
    return FieldErr(operations[i].path,
                    "it is done to some samples only, and rows with and without it cannot stand in "
                    "one batch; move it out of the list");
  }
  return absl::OkStatus();
}

void JoinFormats(const RowFormat& other, RowFormat* format) {
  if (other.size != format->size) format->size.reset();
  format->is_erased = format->is_erased || other.is_erased;
  format->step_bytes = std::max(format->step_bytes, other.step_bytes);
}

}  // namespace batchd
