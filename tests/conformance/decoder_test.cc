// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/conformance/decoder_suite.h"
#include "tests/conformance/format_pictures.h"

namespace {
std::atomic<int64_t> new_call_count{0};
}  // namespace

// Under TSan nothing is counted: clang links operators of its own into every program then. The
// other builds count.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BATCHD_UNDER_TSAN
#endif
#endif
#if defined(__SANITIZE_THREAD__) && !defined(BATCHD_UNDER_TSAN)
#define BATCHD_UNDER_TSAN
#endif

#ifndef BATCHD_UNDER_TSAN
// Never inlined: the compiler would take the pair for a mismatch of new and free.
[[gnu::noinline]] void* operator new(size_t size) {
  new_call_count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace batchd {

int64_t NewCallCount() { return new_call_count.load(std::memory_order_relaxed); }

namespace {

std::vector<DecoderCase> AllCases() {
  std::vector<DecoderCase> cases;
  for (const DecoderKind* kind : DecoderKinds()) {
    DecoderCase c = {kind, nullptr};
    if (kind->name == "jpeg") c.pictures = JpegPictures;
    if (kind->name == "png") c.pictures = PngPictures;
    if (kind->name == "pnm") c.pictures = PnmPictures;
    if (kind->name == "bmp") c.pictures = BmpPictures;
#ifdef BATCHD_HAS_GIF
    if (kind->name == "gif") c.pictures = GifPictures;
#endif
#ifdef BATCHD_HAS_WEBP
    if (kind->name == "webp") c.pictures = WebpPictures;
#endif
#ifdef BATCHD_HAS_TIFF
    if (kind->name == "tiff") c.pictures = TiffPictures;
#endif
#ifdef BATCHD_HAS_AVIF
    if (kind->name == "avif") c.pictures = AvifPictures;
#endif
#ifdef BATCHD_HAS_JP2
    if (kind->name == "jp2") c.pictures = Jp2Pictures;
#endif
    cases.push_back(c);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, DecoderSuite, testing::ValuesIn(AllCases()),
                         [](const auto& info) { return std::string(info.param.kind->name); });

}  // namespace
}  // namespace batchd
