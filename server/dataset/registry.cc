// SPDX-License-Identifier: Apache-2.0
#include "server/dataset/registry.h"

#include "server/dataset/dataset.h"

namespace batchd {

std::span<const DatasetKind* const> DatasetKinds() {
  static constexpr const DatasetKind* kKinds[] = {
      &kImageFolder,
  };
  return kKinds;
}

const DatasetKind* FindDataset(std::string_view name) {
  for (const DatasetKind* kind : DatasetKinds()) {
    if (kind->schema().name == name) return kind;
  }
  return nullptr;
}

}  // namespace batchd
