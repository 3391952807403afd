// SPDX-License-Identifier: Apache-2.0
//
// A JPEG decoder is used again from picture to picture: that must cost no memory, and nothing of a
// picture may be left for the next.

#include "server/decoder/jpeg_memory.h"

#include <gtest/gtest.h>

#include "server/base/philox.h"
#include "server/image/row_pipeline.h"
#include "tests/conformance/decoder_pictures.h"
#include "tests/support/status_matchers.h"

#if defined(BATCHD_UNDER_ASAN)
// Of the sanitizers' common interface; GCC's package has no header for it.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
#endif

namespace batchd {
namespace {

std::vector<ByteVector> Pictures() {
  std::vector<ByteVector> pictures;
  for (const bool progressive : {false, true}) {
    for (const int channels : {1, 3, 4}) {
      JpegOptions options;
      options.size = {40 + 10 * channels, 70};
      options.channels = channels;
      options.progressive = progressive;
      pictures.push_back(EncodeJpeg(options));
    }
  }
  JpegOptions arithmetic;
  arithmetic.arithmetic = true;
  pictures.push_back(EncodeJpeg(arithmetic));
  return pictures;
}

struct Outcome {
  std::string status;
  ByteVector rgb;
  bool operator==(const Outcome&) const = default;
};

Outcome Decoded(ImageDecoder* decoder, const ByteVector& bytes, Scratch* scratch) {
  const auto size = decoder->ReadHeader(bytes, {.pixels_max = 1 << 20});
  if (!size.ok()) return {size.status().ToString(), {}};
  CollectingSink sink(size->width);
  const absl::Status status = decoder->Decode(bytes, WholeOf(*size), scratch, &sink);
  return {status.ToString(), sink.rgb()};
}

TEST(JpegReuse, ADamagedPictureGivesTheSameWhateverCameBefore) {
  Draws draws({.seed = 30});
  const auto below = [&](size_t n) { return draws.NextBelow(static_cast<uint32_t>(n)); };
  const std::vector<ByteVector> pictures = Pictures();
  const auto kind = RecogniseImage(pictures[0]);
  ASSERT_OK(kind);
  const auto used = (*kind)->make();
  Scratch scratch;
  int failures = 0;
  for (int i = 0; i < 2000; ++i) {
    ByteVector bytes = pictures[below(pictures.size())];
    const uint32_t changes = below(4);
    for (uint32_t k = 0; k < changes; ++k) {
      // Most of them in the header, where the tables are.
      const size_t end = below(2) == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 700);
      bytes[2 + below(end - 2)] ^= static_cast<uint8_t>(1 + below(255));
    }
    if (below(8) == 0) bytes.resize(3 + below(bytes.size() - 3));
    const auto fresh = (*kind)->make();
    const Outcome want = Decoded(fresh.get(), bytes, &scratch);
    ASSERT_EQ(Decoded(used.get(), bytes, &scratch), want) << "picture " << i;
    if (want.status != "OK") ++failures;
  }
  EXPECT_GT(failures, 500);
  EXPECT_LT(failures, 1900);
}

#if defined(BATCHD_UNDER_ASAN)

thread_local int64_t malloc_count = 0;

// Every allocation of the thread, of libraries, too.
TEST(JpegReuse, ASampleAllocatesNothingOnceTheThreadIsWarm) {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t) { ++malloc_count; }, [](const volatile void*) {});
  ASSERT_NE(installed, 0);
  const std::vector<ByteVector> pictures = Pictures();
  const auto kind = RecogniseImage(pictures[0]);
  ASSERT_OK(kind);
  const auto decoder = (*kind)->make();
  class NullSink final : public RowSink {
    void PutRows(const uint8_t*, ptrdiff_t, int) override {}
  } sink;
  Scratch scratch;
  bool ok = true;
  const auto decode_all = [&] {
    for (const ByteVector& bytes : pictures) {
      const auto size = decoder->ReadHeader(bytes, {});
      GeometryPlan plan(*size);
      ok &= plan.Crop({5, 7, 30, 35}).ok();
      ok &= plan.Resize({24, 24}, Filter::kBilinear).ok();
      RowPipeline pipeline(plan, &sink, &scratch);
      ok &= decoder->Decode(bytes, pipeline.region(), &scratch, &pipeline).ok();
    }
  };
  decode_all();
  decode_all();
  const int64_t before = malloc_count;
  decode_all();
  EXPECT_EQ(malloc_count, before);
  EXPECT_GT(before, 0);
  EXPECT_TRUE(ok);
}

#endif

TEST(JpegMemory, SeveralBlocksBecomeOneThatFitsTheNextPicture) {
  JpegMemory memory;
  jpeg_common_struct info = {};
  const auto take = [&] {
    for (int i = 0; i < 10; ++i) {
      uint8_t* const data = memory.Allocate(&info, 100'000);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
      std::memset(data, i, 100'000);
    }
  };
  take();
  memory.Reset();
  const size_t held = memory.held_bytes();
  EXPECT_GE(held, 1'000'000u);
  take();
  EXPECT_EQ(memory.held_bytes(), held);
}

TEST(JpegMemory, AVeryLargePicturesMemoryIsGivenBack) {
  JpegMemory memory;
  jpeg_common_struct info = {};
  memory.Allocate(&info, kScratchKeepBytes + 1);
  memory.Reset();
  EXPECT_EQ(memory.held_bytes(), 0u);
}

}  // namespace
}  // namespace batchd
