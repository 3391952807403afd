// SPDX-License-Identifier: Apache-2.0
//
// What a row costs in memory once its thread is warm: no `operator new` at all. This file replaces
// the operators of the whole test program by ones that count; inlined, the compiler would take
// their malloc and free for a mismatch.

#include <gtest/gtest.h>
#include <stdio.h>
// jpeglib.h needs stdio.h before it.
#include <jpeglib.h>

#include <cstdlib>
#include <new>

#include "server/pipeline/cpu_pool.h"
#include "tests/support/picture_folder.h"
#include "tests/support/status_matchers.h"

namespace {

thread_local int64_t allocation_count = 0;

void* Allocate(size_t size_bytes, size_t alignment) {
  ++allocation_count;
  const size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  void* const data = alignment <= alignof(std::max_align_t)
                         ? std::malloc(size_bytes)
                         : std::aligned_alloc(alignment, rounded);
  if (data == nullptr) std::abort();
  return data;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size, 1); }
void* operator new[](size_t size) { return Allocate(size, 1); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete[](void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete[](void* data, size_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete[](void* data, std::align_val_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t, std::align_val_t) noexcept {
  std::free(data);
}
[[gnu::noinline]] void operator delete[](void* data, size_t, std::align_val_t) noexcept {
  std::free(data);
}

namespace batchd {
namespace {

std::vector<uint8_t> EncodeJpeg(const TestPicture& picture) {
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* data = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&jpeg, &data, &size);
  jpeg.image_width = static_cast<JDIMENSION>(picture.size.width);
  jpeg.image_height = static_cast<JDIMENSION>(picture.size.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  for (int y = 0; y < picture.size.height; ++y) {
    auto* row = const_cast<uint8_t*>(picture.at(y, 0));
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::vector<uint8_t> bytes(data, data + size);
  jpeg_destroy_compress(&jpeg);
  std::free(data);
  return bytes;
}

// Makes 96 rows of an ImageFolder with one RowMaker; returns what the last 32 have allocated.
// `operations` stand in the place of the column "image", if they are given; `more` are columns
// beside it.
int64_t AllocationsOfWarmRows(const PictureFolder& folder,
                              const std::vector<OperationSpec>& operations = {},
                              const std::vector<ColumnSpec>& more = {}, bool isolated = false) {
  constexpr int64_t kRows = 96, kWarmRows = 64;
  OpenRequest request = folder.Request(kRows);
  if (!operations.empty()) request.pipeline.columns[0].operations = operations;
  for (const ColumnSpec& column : more) request.pipeline.columns.push_back(column);
  const DatasetKind* kind = FindDataset(request.dataset_name);
  auto dataset =
      kind->open(CheckArguments(kind->schema(), request.dataset_arguments, "dataset").value(), {});
  Metrics metrics;
  BatchPlan plan;
  plan.pipeline = PipelinePlan::Compile(request.pipeline, *dataset).value();
  plan.sampler = MakeSampler({.num_samples = (*dataset)->num_samples(),
                              .shuffle = Shuffle::kFeistel,
                              .global_batch_size = kRows,
                              .last_batch = LastBatch::kPad})
                     .value();
  plan.layout = SlabLayout::Make(plan.pipeline->shapes(), kRows).value();
  plan.job = metrics.ForJob("rows");
  Budget slabs("slabs", int64_t{1} << 26);
  const auto segment = Segment::Create(1, plan.layout.slab_size_bytes(), &slabs).value();
  Lane lane;
  WorkQueue queue;
  queue.AddLane(&lane);
  Readers readers(0, &slabs, &queue, &metrics);  // a row that went there would never end
  DecodeIsolation isolation(
      {.program = BATCHD_TEST_WORKER, .encoded_bytes_max = 1 << 20, .memory_bytes_max = 1 << 28},
      &metrics);
  RowMaker maker(nullptr, &readers, &metrics, isolated ? &isolation : nullptr);
  bool done = false;
  Batch batch(&plan, &lane, segment->slab(0), [&](Batch*) { done = true; });
  batch.Begin({0, 0, 0, 1});
  queue.AddBatch(&batch);

  int64_t before = 0;
  for (int64_t row = 0; row < kRows; ++row) {
    if (row == kWarmRows) before = allocation_count;
    RowTask task;
    EXPECT_TRUE(queue.Pop(&task));
    maker.Make(std::move(task));
  }
  const int64_t count = allocation_count - before;
  EXPECT_TRUE(done);
  EXPECT_FALSE(batch.failure().has_value());
  return count;
}

TEST(Allocations, TheCounterCounts) {
  const int64_t before = allocation_count;
  void* volatile data = ::operator new(8);  // volatile: a pair that nobody uses may go
  ::operator delete(data);
  EXPECT_EQ(allocation_count, before + 1);
}

TEST(Allocations, AWarmRowOfUncompressedPixelsAllocatesNothing) {
  const PictureFolder folder(20);
  EXPECT_EQ(AllocationsOfWarmRows(folder), 0);
}

TEST(Allocations, AWarmRowOfJpegAllocatesNothing) {
  PictureFolder folder(20);
  for (int i = 0; i < 20; ++i) {
    Draws draws({.seed = 8, .ordinal = static_cast<uint64_t>(i)});
    folder.Write(i, EncodeJpeg(NoisePicture({40 + i, 50 - i}, &draws)));  // the bytes decide
  }
  EXPECT_EQ(AllocationsOfWarmRows(folder), 0);
  EXPECT_EQ(AllocationsOfWarmRows(folder, {}, {}, /*isolated=*/true), 0);
}

Json Inside() {
  return {{{"name", "ColorJitter"}, {"arguments", {{"brightness", 0.4}, {"hue", 0.1}}}},
          {{"name", "GaussianBlur"}, {"arguments", {{"kernel_size", 5}}}},
          {{"name", "RandomAdjustSharpness"}, {"arguments", {{"sharpness_factor", 2}}}}};
}

TEST(Allocations, AWarmRowOfPictureOperationsAllocatesNothing) {
  const PictureFolder folder(20);
  EXPECT_EQ(
      AllocationsOfWarmRows(folder, {{"DecodeImage", {}},
                                     {"RandomResizedCrop", {{"size", 33}}},
                                     {"Grayscale", {{"num_output_channels", 3}}},
                                     {"Resize", {{"size", {20, 21}}}},
                                     {"RandomVerticalFlip", {}},
                                     {"RandomCrop", {{"size", 20}, {"padding", 3}, {"fill", 9}}},
                                     {"RandomApply", {{"transforms", Inside()}}},
                                     {"RandomChoice", {{"transforms", Inside()}}},
                                     {"RandAugment", {}},
                                     {"TrivialAugmentWide", {}},
                                     {"AutoAugment", {}},
                                     {"RandomAffine", {{"degrees", 9}}},
                                     {"ToTensor", {}},
                                     {"Normalize", {}},
                                     {"RandomErasing", {}}}),
      0);
}

TEST(Allocations, WarmRowsOfOneDecodeAllocateNothing) {
  const PictureFolder folder(20);
  const std::vector<OperationSpec> crop = {{"DecodeImage", {}},
                                           {"RandomResizedCrop", {{"size", 33}}}};
  EXPECT_EQ(AllocationsOfWarmRows(folder, crop, {{"b", crop}, {"c", crop}}), 0);
}

}  // namespace
}  // namespace batchd
