// SPDX-License-Identifier: Apache-2.0
#include "server/transform/transform.h"

namespace batchd {

absl::Status Transform::Plan(PicturePlan*, Draws*) const { return absl::OkStatus(); }

}  // namespace batchd
