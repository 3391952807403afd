// SPDX-License-Identifier: Apache-2.0
//
// Lists a folder of class folders as torchvision's ImageFolder does: the classes are the
// first-level folders in byte order of their names; a class's samples are the images in it and
// below, folder by folder in byte order of the folders' paths, then of the names.

#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/dataset/folder_index.h"
#include "server/io/beneath.h"

namespace batchd {

// Whether the name ends as an image's does, in any case.
bool HasImageSuffix(std::string_view name);
// "jpg, jpeg, …", for messages.
std::string ImageSuffixesText();

// `root_fd` is the folder `root`, which is for messages. Hidden entries (a leading dot) are neither
// classes nor samples. Links are followed; one that leads to a folder above itself ends there. What
// is left out is counted in the index's warnings.
// Errors: FAILED_PRECONDITION (no_classes, no_samples) with what was found and what is wanted;
// PERMISSION_DENIED or UNAVAILABLE if the root cannot be listed.
absl::StatusOr<FolderIndex> ScanFolder(int root_fd, const std::string& root,
                                       Confinement confinement);

}  // namespace batchd
