// SPDX-License-Identifier: Apache-2.0
//
// A picture behind the whole front end: recognised, measured, a random region of it decoded,
// resized and written into a row. The first 8 bytes choose the region; the rest is the picture.
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/decoder/jpeg_decoder.h"
#include "server/pipeline/plan.h"
#include "tests/support/memory_dataset.h"

namespace batchd {
namespace {

constexpr size_t kChoiceBytes = 8;
constexpr int64_t kPixelsMax = 1 << 16;
constexpr int kSide = 16;  // of the row

class Rows final : public RowSink {
 public:
  explicit Rows(int width) : row_bytes_(size_t{3} * width) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    for (int y = 0; y < row_count; ++y, rgb += stride_bytes) {
      bytes.insert(bytes.end(), rgb, rgb + row_bytes_);
    }
  }
  std::vector<uint8_t> bytes;

 private:
  const size_t row_bytes_;
};

struct World {
  std::shared_ptr<const Dataset> dataset = std::make_shared<MemoryDataset>(
      std::vector<MemorySample>{{.name = "a", .bytes = {}, .label = 0}});
  std::shared_ptr<const PipelinePlan> plans[4];
  Worker worker;

  World() {
    const Json options[3] = {
        {{"max_pixels", kPixelsMax}},
        {{"max_pixels", kPixelsMax}, {"orientation", "upright"}, {"damaged", "accept"}},
        {{"max_pixels", kPixelsMax}, {"decode", "fast"}}};
    for (int i = 0; i < 3; ++i) {
      const PipelineSpec spec = {{{"image",
                                   {{"DecodeImage", options[i]},
                                    {"RandomResizedCrop", {{"size", kSide}}},
                                    {"RandomHorizontalFlip", Json::object()},
                                    {"ToTensor", Json::object()}}}}};
      plans[i] = PipelinePlan::Compile(spec, dataset).value();
    }
    const PipelineSpec masks = {{{"mask",
                                  {{"DecodeMask", {{"max_pixels", kPixelsMax}}},
                                   {"RandomResizedCrop", {{"size", kSide}}}}}}};
    plans[3] = PipelinePlan::Compile(masks, dataset).value();
  }
};

// The checksums of a PNG's chunks made right: otherwise no change gets behind them.
void FixChecksums(std::vector<uint8_t>* picture) {
  for (size_t at = 8; at + 12 <= picture->size();) {
    uint8_t* chunk = picture->data() + at;
    const size_t length = size_t{chunk[0]} << 24 | chunk[1] << 16 | chunk[2] << 8 | chunk[3];
    if (length > picture->size() - at - 12) return;
    const uint32_t sum = static_cast<uint32_t>(crc32(0, chunk + 4, static_cast<uInt>(4 + length)));
    for (int i = 0; i < 4; ++i) chunk[8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += 12 + length;
  }
}

// Only a sample error, or none: anything else would end a training run as a fault of the daemon.
void CheckError(const absl::Status& status) {
  BATCHD_CHECK(status.ok() || SampleReasonOf(status).has_value());
}

Box BoxOf(const ImageSize& size, const uint8_t* choice) {
  Box box;
  box.top = choice[0] * size.height / 256;
  box.left = choice[1] * size.width / 256;
  box.height = 1 + choice[2] * (size.height - box.top - 1) / 255;
  box.width = 1 + choice[3] * (size.width - box.left - 1) / 255;
  return box;
}

// A region is the cut of the whole picture, wherever the whole can be decoded.
void CheckRegion(World* world, Bytes bytes, const uint8_t* choice) {
  const absl::StatusOr<ImageDecoder*> decoder = world->worker.decoders.For(bytes);
  CheckError(decoder.status());
  if (!decoder.ok()) return;
  const absl::StatusOr<ImageSize> size = (*decoder)->ReadHeader(bytes, {.pixels_max = kPixelsMax});
  CheckError(size.status());
  if (!size.ok()) return;
  Rows whole(size->width);
  const absl::Status status =
      (*decoder)->Decode(bytes, {0, 0, size->height, size->width}, &world->worker.scratch, &whole);
  CheckError(status);
  const Box box = BoxOf(*size, choice);
  Rows part(box.width);
  BATCHD_CHECK((*decoder)->ReadHeader(bytes, {.pixels_max = kPixelsMax}).ok());
  const absl::Status part_status = (*decoder)->Decode(bytes, box, &world->worker.scratch, &part);
  CheckError(part_status);
  if (!status.ok()) return;
  BATCHD_CHECK(part_status.ok());
  BATCHD_CHECK(whole.bytes.size() == size_t{3} * size->width * size->height);
  const size_t part_row = size_t{3} * box.width;
  BATCHD_CHECK(part.bytes.size() == part_row * box.height);
  for (int y = 0; y < box.height; ++y) {
    const size_t at = size_t{3} * (size_t(box.top + y) * size->width + box.left);
    BATCHD_CHECK(std::memcmp(&whole.bytes[at], &part.bytes[y * part_row], part_row) == 0);
  }
}

// The project's own Huffman decoder and libjpeg's give the same rows and the same error.
void CompareHuffmanDecoders(World* world, Bytes bytes, const uint8_t* choice) {
  static ImageDecoder* const decoders[2] = {MakeJpegDecoder(HuffmanBy::kOwn).release(),
                                            MakeJpegDecoder(HuffmanBy::kLibjpeg).release()};
  const DecodeLimits limits = {.pixels_max = kPixelsMax, .goes_on_over_damage = choice[6] % 2 == 0};
  std::vector<uint8_t> rows[2];
  absl::Status status[2];
  for (int i = 0; i < 2; ++i) {
    const absl::StatusOr<ImageSize> size = decoders[i]->ReadHeader(bytes, limits);
    if (!size.ok()) return;
    const Box box = BoxOf(*size, choice);
    Rows sink(box.width);
    status[i] = decoders[i]->Decode(bytes, box, &world->worker.scratch, &sink);
    rows[i] = std::move(sink.bytes);
  }
  BATCHD_CHECK(status[0] == status[1]);
  BATCHD_CHECK(rows[0] == rows[1]);
}

void MakeRow(World* world, Bytes bytes, const uint8_t* choice) {
  DrawKey key;
  std::memcpy(&key.ordinal, choice, 4);
  const PipelinePlan& plan = *world->plans[choice[5] % 4];
  std::vector<uint8_t> row(static_cast<size_t>(plan.shapes()[0].row_size_bytes));
  CheckError(plan.column(0).MakeRow(*world->dataset, bytes, key, &world->worker, row.data()));
}

}  // namespace
}  // namespace batchd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const world = new batchd::World;
  if (size < batchd::kChoiceBytes) return 0;
  // A buffer of its own size, so that a read behind its end is seen.
  std::vector<uint8_t> picture(data + batchd::kChoiceBytes, data + size);
  const auto kind = batchd::RecogniseImage(picture);
  if (kind.ok() && (*kind)->name != BATCHD_FUZZ_KIND) return 0;  // another target's
  if (kind.ok() && (*kind)->name == "png" && data[4] % 2 == 0) batchd::FixChecksums(&picture);
  batchd::CheckRegion(world, picture, data);
  if (kind.ok() && (*kind)->name == "jpeg") batchd::CompareHuffmanDecoders(world, picture, data);
  batchd::MakeRow(world, picture, data);
  return 0;
}
