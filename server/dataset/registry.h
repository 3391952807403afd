// SPDX-License-Identifier: Apache-2.0
//
// The kinds of datasets that there are: one line for each, here and in registry.cc.

#pragma once

#include "server/dataset/dataset.h"

namespace batchd {

extern const DatasetKind kImageFolder;

}  // namespace batchd
