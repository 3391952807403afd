// SPDX-License-Identifier: Apache-2.0
//
// Makes the rows of one picture, of the train recipe, one for each epoch: for counting
// instructions.
//
//   rows_of FILE COUNT exact|fast

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "server/base/check.h"
#include "server/pipeline/plan.h"
#include "tests/support/memory_dataset.h"

namespace batchd {
namespace {

void MakeRows(const std::string& path, int count, const std::string& decode) {
  std::ifstream file(path, std::ios::binary);
  BATCHD_CHECK(file.good());
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  auto dataset = std::make_shared<MemoryDataset>(std::vector<MemorySample>{{path, bytes, 0}});
  const auto plan = PipelinePlan::Compile({{{"image",
                                             {{"DecodeImage", {{"decode", decode}}},
                                              {"RandomResizedCrop", {{"size", 224}}},
                                              {"RandomHorizontalFlip", Json::object()}}}}},
                                          dataset);
  BATCHD_CHECK(plan.ok());
  std::vector<uint8_t> row(static_cast<size_t>((*plan)->shapes()[0].row_size_bytes));
  Worker worker;
  for (int i = 0; i < count; ++i) {
    const DrawKey key = {.seed = 1, .epoch = static_cast<uint32_t>(i)};
    BATCHD_CHECK((*plan)->column(0).MakeRow(*dataset, bytes, key, &worker, row.data()).ok());
  }
}

}  // namespace
}  // namespace batchd

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("rows_of FILE COUNT exact|fast\n", stderr);
    return 64;
  }
  batchd::MakeRows(argv[1], std::atoi(argv[2]), argv[3]);
  return 0;
}
