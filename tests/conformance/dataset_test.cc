// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/dataset_suite.h"

namespace batchd {
namespace {

Json PutImageFolder(const TempFolder& folder) {
  for (const char* name :
       {"data/cat/1.jpg", "data/cat/2.png", "data/dog/a/1.jpg", "data/emu/x.bmp"}) {
    folder.Write(name, name);
  }
  return {{"root", folder / "data"}};
}

INSTANTIATE_TEST_SUITE_P(ImageFolder, DatasetSuite,
                         testing::Values(DatasetCase{"ImageFolder", PutImageFolder}));

}  // namespace
}  // namespace batchd
