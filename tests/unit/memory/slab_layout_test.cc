// SPDX-License-Identifier: Apache-2.0
#include "server/memory/slab_layout.h"

#include <cstring>

#include "tests/support/status_matchers.h"

namespace batchd {
namespace {

std::vector<ColumnShape> ImageAndLabel() {
  return {{"image", wire::DType::kUint8, {3, 5, 7}, 105}, {"label", wire::DType::kInt64, {}, 8}};
}

TEST(SlabLayoutTest, RegionsAreAlignedAndDoNotOverlap) {
  const auto layout = SlabLayout::Make(ImageAndLabel(), /*rows_max=*/9);
  ASSERT_OK(layout);
  std::vector<uint8_t> memory(layout->slab_size_bytes());
  uint8_t* slab = memory.data();

  const int64_t ids = reinterpret_cast<uint8_t*>(layout->sample_ids(slab)) - slab;
  const int64_t status = layout->row_status(slab) - slab;
  const int64_t image = layout->row(slab, 0, 0) - slab;
  const int64_t label = layout->row(slab, 1, 0) - slab;

  for (const int64_t offset : {ids, status, image, label}) EXPECT_EQ(offset % 64, 0);
  EXPECT_GE(ids, 64 + 2 * 64);
  EXPECT_GE(status, ids + 9 * 8);
  EXPECT_GE(image, status + 9);
  EXPECT_GE(label, image + 9 * 105);
  EXPECT_EQ(layout->used_size_bytes(), label + 9 * 8);
  EXPECT_EQ(layout->slab_size_bytes() % 4096, 0);
}

TEST(SlabLayoutTest, EqualBatchesAreEqualSlabsWhateverTheSlabHeldBefore) {
  const auto layout = SlabLayout::Make(ImageAndLabel(), /*rows_max=*/9);
  ASSERT_OK(layout);
  std::vector<uint8_t> clean(layout->slab_size_bytes(), 0);
  std::vector<uint8_t> dirty(layout->slab_size_bytes(), 0xAB);

  for (auto* slab : {clean.data(), dirty.data()}) {
    for (int64_t row = 0; row < 4; ++row) {
      layout->sample_ids(slab)[row] = row;
      layout->row_status(slab)[row] = 0;
      for (int column = 0; column < 2; ++column) {
        std::memset(layout->row(slab, column, row), 7,
                    static_cast<size_t>(layout->columns()[column].row_size_bytes));
      }
    }
    layout->WriteHeader(slab, /*rows=*/4, /*valid_rows=*/4, 1, 2, 0, 1);
  }

  EXPECT_EQ(clean, dirty);
}

TEST(SlabLayoutTest, ABatchBeyondTheLimitIsRefusedWithItsNumbers) {
  EXPECT_THAT(SlabLayout::Make({{"x", wire::DType::kUint8, {1 << 30}, 1 << 30}}, 1 << 20),
              FailsWith(absl::StatusCode::kInvalidArgument, "1048576 rows of 1073741824 bytes"));
}

}  // namespace
}  // namespace batchd
