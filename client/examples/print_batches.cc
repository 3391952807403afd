// SPDX-License-Identifier: Apache-2.0
//
// Reads one epoch of a folder of pictures and prints a line for each batch.
//
//   print_batches FOLDER
//
// BATCHD_ADDRESS says where the daemon is; without it a private one is started.

#include <batchd/loader.h>

#include <cstdio>
#include <numeric>
#include <span>

namespace {

// The mean of a batch's pixels; 0 if it has no rows.
double MeanOf(std::span<const float> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

batchd::Status PrintEpoch(const char* folder) {
  batchd::Result<batchd::Loader> loader = batchd::Loader::Open({
      .dataset = batchd::ImageFolder(folder),
      .columns = {{"image",
                   {{"DecodeImage"}, {"RandomResizedCrop", R"({"size": 64})"}, {"ToTensor"}}},
                  {"label", {{"Label"}}}},
      .batch_size = 32,
      .shuffle = batchd::Shuffle::kFeistel,
      .seed = 1,
  });
  if (!loader.ok()) return loader.status();
  std::printf("%s\n", loader->ToString().c_str());

  for (;;) {
    batchd::Result<batchd::Batch> batch = loader->Next();
    if (!batch.ok()) return batch.status();
    batchd::Result<batchd::Column> image = batch->column("image");
    if (!image.ok()) return image.status();
    batchd::Result<std::span<float>> pixels = image->values<float>();  // no copy
    if (!pixels.ok()) return pixels.status();
    std::printf("epoch %ld step %ld: %ld rows, first sample %ld, mean %.4f\n",
                static_cast<long>(batch->epoch()), static_cast<long>(batch->step()),
                static_cast<long>(batch->rows()), static_cast<long>(batch->sample_ids()[0]),
                MeanOf(*pixels));
    if (batch->last_in_epoch()) return batchd::Status();
  }  // here the batch's memory goes back to the daemon
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: print_batches FOLDER\n");
    return 2;
  }
  const batchd::Status status = PrintEpoch(argv[1]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
