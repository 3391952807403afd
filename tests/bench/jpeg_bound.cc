// SPDX-License-Identifier: Apache-2.0
//
// How many pictures a second libjpeg-turbo allows on some threads, without a loader around it.
//
//   jpeg_bound FOLDER whole|train|eval|check THREADS WARM_IMAGES IMAGES [u8|f32]
//
//   whole  W: whole files that lie in memory, decoded and nothing else
//   train  read, decode of RandomResizedCrop's box alone, resize to 224 with this project's kernel
//          (Pillow's bits), flip: the recipe in the shortest way known here, on plain threads
//   eval   the same for Resize(256) and CenterCrop(224)
//          Both with f32: normalised, channels first, through this project's table of values.
//   check  compares train's boxes, decoded alone, with the same part of the whole pictures
//
// Prints JSON. Pictures that are not JPEG or have four components are left out.

// clang-format off
#include <cstdio>  // jpeglib.h needs FILE and size_t.
#include <jpeglib.h>
// clang-format on

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/base/check.h"
#include "server/decoder/jpeg_entropy.h"
#include "server/image/row_pipeline.h"
#include "server/io/unique_fd.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

constexpr int kSize = 224, kShortSide = 256, kChannels = 3;
constexpr int kBatch = 64;  // places that a thread's results go round in
// What smooth chroma takes from beside a box; above it libjpeg sees to that itself.
constexpr int kMarginColumns = 16;

using Encoded = std::span<const uint8_t>;

// The file's bytes, in `memory`, which only grows.
Encoded ReadFile(const std::string& path, std::vector<uint8_t>* memory) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  BATCHD_CHECK(file.get() >= 0 && fstat(file.get(), &info) == 0);
  const auto size_bytes = static_cast<size_t>(info.st_size);
  if (memory->size() < size_bytes) memory->resize(size_bytes);
  BATCHD_CHECK(read(file.get(), memory->data(), size_bytes) == info.st_size);
  return {memory->data(), size_bytes};
}

[[noreturn]] void Fail(j_common_ptr info) {
  (*info->err->output_message)(info);
  std::exit(1);
}

// One thread's libjpeg and memory, kept from picture to picture.
class Decoder {
 public:
  // With `plain`, libjpeg-turbo does all of it.
  explicit Decoder(bool plain = false) : plain_(plain) {
    info_.err = jpeg_std_error(&error_);
    error_.error_exit = Fail;
    jpeg_create_decompress(&info_);
  }
  ~Decoder() { jpeg_destroy_decompress(&info_); }

  // False: not a JPEG of 1 or 3 components. Leave or a decode follows.
  bool Start(Encoded bytes) {
    if (bytes.size() < 3 || bytes[0] != 0xFF || bytes[1] != 0xD8) return false;
    jpeg_mem_src(&info_, bytes.data(), bytes.size());
    jpeg_read_header(&info_, TRUE);
    if (info_.num_components == 4) {
      Leave();
      return false;
    }
    info_.out_color_space = JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = TRUE;
    return true;
  }
  void Leave() { jpeg_abort_decompress(&info_); }

  ImageSize size() const {
    return {static_cast<int>(info_.image_height), static_cast<int>(info_.image_width)};
  }

  // Rows of the box, a few at a time through one small block of memory; not done with the picture.
  void Decode(const Box& box, RowSink* sink) {
    jpeg_start_decompress(&info_);
    JDIMENSION left = std::max(0, box.left - kMarginColumns);
    JDIMENSION width =
        std::min(size().width, box.left + box.width + kMarginColumns) - static_cast<int>(left);
    if (width < info_.output_width) {
      jpeg_crop_scanline(&info_, &left, &width);  // moves both to whole blocks
    } else {
      left = 0;
      width = info_.output_width;
    }
    if (!plain_) entropy_.TakeOver(&info_, static_cast<int>(left), static_cast<int>(width));
    if (box.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.top));
    const int64_t stride = int64_t{info_.output_width} * kChannels;
    uint8_t* const block = scratch_.Get(ScratchArea::kDecoder, size_t(stride) * kRowsPerPut);
    uint8_t* rows[kRowsPerPut];
    for (int i = 0; i < kRowsPerPut; ++i) rows[i] = block + i * stride;
    for (int y = 0; y < box.height; y += kRowsPerPut) {
      const int count = std::min(kRowsPerPut, box.height - y);
      ReadRows(rows, count);
      sink->PutRows(block + (box.left - static_cast<int>(left)) * kChannels, stride, count);
    }
    Leave();
  }

  Scratch* scratch() { return &scratch_; }

 private:
  void ReadRows(uint8_t** rows, int count) {
    for (int have = 0; have < count;) {
      have += static_cast<int>(jpeg_read_scanlines(&info_, rows + have, count - have));
    }
  }

  jpeg_error_mgr error_ = {};
  const bool plain_;
  jpeg_decompress_struct info_ = {};
  JpegEntropy entropy_;
  Scratch scratch_;
};

// Takes rows and keeps them one below the other; with no memory it lets them go.
class Rows final : public RowSink {
 public:
  explicit Rows(uint8_t* data = nullptr, int width = 0) : next_(data), row_bytes_(3 * width) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    if (next_ == nullptr) return;
    for (int i = 0; i < row_count; ++i, next_ += row_bytes_) {
      std::memcpy(next_, rgb + i * stride_bytes, row_bytes_);
    }
  }

 private:
  uint8_t* next_;
  const size_t row_bytes_;
};

// Takes rows and writes their values, normalised, one channel after the other.
class FloatRows final : public RowSink {
 public:
  FloatRows(const ValueTable& table, uint8_t* data) : table_(table), data_(data) {}
  void PutRows(const uint8_t* rgb, ptrdiff_t stride_bytes, int row_count) override {
    table_.WriteRows({rgb, row_count, kSize, stride_bytes}, top_, kSize, Layout::kChw, data_);
    top_ += row_count;
  }

 private:
  const ValueTable& table_;
  uint8_t* const data_;
  int top_ = 0;
};

// A recipe's geometry, by the project's own operations.
class Geometry {
 public:
  explicit Geometry(bool train) {
    if (train) {
      Append("RandomResizedCrop", {{"size", kSize}});
      Append("RandomHorizontalFlip", Json::object());
    } else {
      Append("Resize", {{"size", kShortSide}});
      Append("CenterCrop", {{"size", kSize}});
    }
  }

  GeometryPlan PlanFor(ImageSize size, uint64_t sample) const {
    PicturePlan plan(size);
    for (size_t i = 0; i < operations_.size(); ++i) {
      Draws draws({.seed = 1, .ordinal = sample, .op_id = static_cast<uint16_t>(i)});
      BATCHD_CHECK(operations_[i]->Plan(&plan, &draws).ok());
    }
    return plan.segments()[0].geometry;
  }

 private:
  void Append(const std::string& name, const Json& arguments) {
    operations_.push_back(MakeTransform(name, arguments).value());
  }
  std::vector<std::unique_ptr<Transform>> operations_;
};

struct Files {
  std::vector<std::string> paths;
  std::vector<std::vector<uint8_t>> contents;  // empty, unless they are to lie in memory
};

Files ListJpegs(const std::string& folder, bool in_memory) {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) all.push_back(entry.path());
  }
  std::sort(all.begin(), all.end());
  Files files;
  Decoder decoder;
  std::vector<uint8_t> memory;
  for (const std::string& path : all) {
    const Encoded bytes = ReadFile(path, &memory);
    if (!decoder.Start(bytes)) continue;
    decoder.Leave();
    files.paths.push_back(path);
    if (in_memory) files.contents.emplace_back(bytes.begin(), bytes.end());
  }
  BATCHD_CHECK(!files.paths.empty());
  return files;
}

double CpuSeconds() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return double(spent.tv_sec) + 1e-9 * double(spent.tv_nsec);
}

// What is made of each picture; no geometry: nothing.
struct Recipe {
  const Geometry* geometry = nullptr;
  const ValueTable* floats = nullptr;  // none: 8 bits
};

// Makes pictures [begin, end) of the endless repetition of the files.
void Work(const Files& files, const Recipe& recipe, std::atomic<int64_t>* next, int64_t end) {
  Decoder decoder(/*plain=*/recipe.geometry == nullptr);
  std::vector<uint8_t> memory;
  const int64_t row_bytes =
      int64_t{kSize} * kSize * kChannels * (recipe.floats != nullptr ? sizeof(float) : 1);
  std::vector<uint8_t> batch(kBatch * static_cast<size_t>(row_bytes));
  for (int64_t i = next->fetch_add(1); i < end; i = next->fetch_add(1)) {
    const size_t file = static_cast<size_t>(i) % files.paths.size();
    if (recipe.geometry == nullptr) {
      Rows nowhere;
      decoder.Start(files.contents[file]);
      decoder.Decode({0, 0, decoder.size().height, decoder.size().width}, &nowhere);
      continue;
    }
    decoder.Start(ReadFile(files.paths[file], &memory));
    const GeometryPlan plan = recipe.geometry->PlanFor(decoder.size(), static_cast<uint64_t>(i));
    uint8_t* const place = &batch[static_cast<size_t>(i % kBatch * row_bytes)];
    Rows bytes(place, kSize);
    std::optional<FloatRows> floats;
    if (recipe.floats != nullptr) floats.emplace(*recipe.floats, place);
    RowSink* const last = floats.has_value() ? static_cast<RowSink*>(&*floats) : &bytes;
    RowPipeline pipeline(plan, last, decoder.scratch());
    decoder.Decode(pipeline.region(), &pipeline);
  }
}

void Run(const Files& files, const Recipe& recipe, int threads, int64_t begin, int64_t end) {
  std::atomic<int64_t> next = begin;
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back(Work, std::cref(files), std::cref(recipe), &next, end);
  }
  for (std::thread& thread : pool) thread.join();
}

std::vector<uint8_t> PixelsOf(Decoder* decoder, Encoded bytes, const Box& box) {
  std::vector<uint8_t> pixels(size_t(box.height) * size_t(box.width) * kChannels);
  Rows rows(pixels.data(), box.width);
  decoder->Start(bytes);
  decoder->Decode(box, &rows);
  return pixels;
}

// How many boxes do not come out as the same part of the whole picture.
int64_t CountDifferent(const Files& files, const Geometry& geometry) {
  Decoder decoder;
  Decoder plain(/*plain=*/true);
  int64_t different = 0;
  for (size_t i = 0; i < files.paths.size(); ++i) {
    decoder.Start(files.contents[i]);
    const ImageSize size = decoder.size();
    decoder.Leave();
    Rows nowhere;
    const Box box = RowPipeline(geometry.PlanFor(size, i), &nowhere, decoder.scratch()).region();
    const auto whole = PixelsOf(&plain, files.contents[i], {0, 0, size.height, size.width});
    const auto part = PixelsOf(&decoder, files.contents[i], box);
    bool equal = true;
    for (int y = 0; y < box.height; ++y) {
      const auto row = part.begin() + int64_t{y} * box.width * kChannels;
      equal &=
          std::equal(row, row + box.width * kChannels,
                     whole.begin() + (int64_t{box.top + y} * size.width + box.left) * kChannels);
    }
    different += !equal;
  }
  return different;
}

int Main(const std::string& folder, const std::string& mode, int threads, int64_t warm,
         int64_t images, bool to_float) {
  const Files files = ListJpegs(folder, mode == "whole" || mode == "check");
  const Geometry geometry(mode != "eval");
  if (mode == "check") {
    std::puts(Json({{"images", files.paths.size()}, {"different", CountDifferent(files, geometry)}})
                  .dump()
                  .c_str());
    return 0;
  }
  ValueTable floats;
  floats.DivideBy255();
  floats.Normalize({0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f});
  Recipe recipe;
  if (mode != "whole") recipe = {&geometry, to_float ? &floats : nullptr};
  Run(files, recipe, threads, 0, warm);
  const auto started = std::chrono::steady_clock::now();
  const double cpu = CpuSeconds();
  Run(files, recipe, threads, warm, warm + images);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - started;
  std::puts(Json({{"images", images}, {"wall_s", wall.count()}, {"cpu_s", CpuSeconds() - cpu}})
                .dump()
                .c_str());
  return 0;
}

}  // namespace
}  // namespace batchd

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) {
    std::fputs("jpeg_bound FOLDER whole|train|eval|check THREADS WARM_IMAGES IMAGES [u8|f32]\n",
               stderr);
    return 64;
  }
  return batchd::Main(argv[1], argv[2], std::atoi(argv[3]), std::atoll(argv[4]),
                      std::atoll(argv[5]), argc == 7 && std::strcmp(argv[6], "f32") == 0);
}
