// SPDX-License-Identifier: Apache-2.0
//
// Reads an epoch in several runs: each goes on where the last one stopped, however that was.
//
//   resume_epoch FOLDER CHECKPOINT BATCHES
//
// Reads at most BATCHES batches and keeps the place in the file CHECKPOINT. The exit code is 0 when
// the epoch is over, 3 when there is more. Bad samples are named and passed over.

#include <batchd/loader.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace {

constexpr int kMore = 3;

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// By a second file and a rename: whoever dies in between leaves the old one whole.
bool WriteAll(const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  if (!(std::ofstream(draft) << text << std::flush)) return false;
  return std::rename(draft.c_str(), path.c_str()) == 0;
}

int Fail(const batchd::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

int ReadSome(const char* folder, const char* checkpoint, int batches) {
  batchd::Result<batchd::Loader> loader = batchd::Loader::Open({
      .dataset = batchd::ImageFolder(folder),
      .columns = {{"image", {{"DecodeImage"}, {"RandomResizedCrop", R"({"size": 64})"}}},
                  {"label", {{"Label"}}}},
      .batch_size = 32,
      .shuffle = batchd::Shuffle::kFeistel,
  });
  if (!loader.ok()) return Fail(loader.status());
  if (const std::string state = ReadAll(checkpoint); !state.empty()) {
    if (const batchd::Status status = loader->LoadState(state); !status.ok()) return Fail(status);
  }

  const int64_t epoch = loader->epoch();
  for (int i = 0; i < batches; ++i) {
    batchd::Result<batchd::Batch> batch = loader->Next();
    if (const batchd::SampleFault* bad = batch.status().sample(); bad != nullptr) {
      std::fprintf(stderr, "%s is %s: its batch is left out\n", bad->name.c_str(),
                   bad->reason.c_str());
      const batchd::Status status = loader->LoadState(bad->next_state);
      if (!status.ok()) return Fail(status);
    } else if (!batch.ok()) {
      return Fail(batch.status());
    } else {
      for (const int64_t id : batch->sample_ids()) std::printf("%ld\n", static_cast<long>(id));
    }
    // Together with what was learnt from the batch, in real life.
    if (!WriteAll(checkpoint, loader->State())) return 1;
    if (loader->epoch() != epoch) return 0;
  }
  return kMore;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: resume_epoch FOLDER CHECKPOINT BATCHES\n");
    return 2;
  }
  return ReadSome(argv[1], argv[2], std::atoi(argv[3]));
}
