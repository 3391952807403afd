// SPDX-License-Identifier: Apache-2.0
//
// Picture operations on 224 x 224 pixels on one thread: median microseconds as JSON. With file
// names, also the rows of several crops of these pictures, column by column and together.
// picture_kernels.py sets them beside Pillow's and torchvision's.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "server/image/blur.h"
#include "server/image/colour.h"
#include "server/image/warp.h"
#include "server/pipeline/plan.h"
#include "tests/support/memory_dataset.h"

namespace batchd {
namespace {

constexpr int kSide = 224;
const char* separator = "{";

double MicrosecondsOf(const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

void Print(const std::string& name, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  std::printf("%s\"%s\": %.1f", separator, name.c_str(), times[times.size() / 2]);
  separator = ", ";
}

// A picture of smooth colours with noise, made anew before each run.
void Time(const std::string& name, const std::function<void(TestPicture*)>& run) {
  Draws draws({.seed = 1});
  TestPicture original = NoisePicture({kSide, kSide}, &draws);
  for (int i = 0; i < kSide * kSide * 3; ++i) {
    uint8_t& value = original.pixels[size_t(i)];
    value = uint8_t((i / 900 + i % 3 * 40 + value / 16) % 256);
  }
  std::vector<double> times;
  for (int i = 0; i < 300; ++i) {
    TestPicture picture = original;
    times.push_back(MicrosecondsOf([&] { run(&picture); }));
  }
  Print(name, std::move(times));
}

void TimeKernels() {
  Scratch scratch;
  const auto jitter = [](TestPicture* p) {
    AdjustBrightness(p->view(), 1.3);
    AdjustContrast(p->view(), 0.7);
    AdjustSaturation(p->view(), 1.4);
    AdjustHue(p->view(), 0.08);
  };
  Time("jitter", jitter);
  Time("hue", [](TestPicture* p) { AdjustHue(p->view(), 0.08); });
  Time("sharpness", [&](TestPicture* p) {
    AdjustSharpness(p->view(), 1.7, scratch.Get(ScratchArea::kStep, SharpnessScratchBytes(kSide)));
  });
  Time("equalize", [](TestPicture* p) { Equalize(p->view()); });
  TestPicture out({kSide, kSide});
  const Rotation turned = RotationOf(out.size, 23, std::nullopt, false);
  const std::pair<const char*, Filter> filters[] = {{"nearest", Filter::kNearest},
                                                    {"bilinear", Filter::kBilinear},
                                                    {"bicubic", Filter::kBicubic}};
  for (const auto& [name, filter] : filters) {
    Time(std::string("rotate ") + name, [&, f = filter](TestPicture* p) {
      Warp(std::as_const(*p).view(), turned.matrix, f, {}, out.view());
    });
  }
  for (const int size : {3, 9, 23}) {
    const GaussianKernel kernel = {size, size, 1.1, 1.1};
    Time("blur " + std::to_string(size), [&](TestPicture* p) {
      GaussianBlur(p->view(), kernel,
                   scratch.Get(ScratchArea::kStep, BlurScratchBytes(p->size, kernel)));
    });
  }
}

PipelineSpec Crops(int local_count) {
  PipelineSpec spec;
  for (int i = 0; i < 2 + local_count; ++i) {
    const Json arguments = {{"size", i < 2 ? 224 : 96},
                            {"scale", i < 2 ? Json{0.4, 1.0} : Json{0.05, 0.4}},
                            {"interpolation", "bicubic"}};
    spec.columns.push_back({"view" + std::to_string(i),
                            {{"DecodeImage", Json::object()},
                             {"RandomResizedCrop", arguments},
                             {"RandomHorizontalFlip", Json::object()},
                             {"ToTensor", Json::object()},
                             {"Normalize", Json::object()}}});
  }
  return spec;
}

void TimeCrops(const std::vector<MemorySample>& samples, int local_count) {
  const auto dataset = std::make_shared<MemoryDataset>(samples);
  const auto plan = PipelinePlan::Compile(Crops(local_count), dataset).value();
  std::vector<std::vector<uint8_t>> rows;
  std::vector<uint8_t*> places;
  for (const ColumnShape& shape : plan->shapes()) rows.emplace_back(size_t(shape.row_size_bytes));
  for (auto& row : rows) places.push_back(row.data());
  Worker worker;
  std::vector<double> alone, together;
  for (uint32_t epoch = 0; epoch < 12; ++epoch) {
    for (size_t i = 0; i < samples.size(); ++i) {
      const DrawKey key = {.ordinal = i, .epoch = epoch};
      const Bytes bytes = samples[i].bytes;
      alone.push_back(MicrosecondsOf([&] {
        for (int c = 0; c < plan->column_count(); ++c) {
          BATCHD_CHECK(
              plan->column(c).MakeRow(*dataset, bytes, key, &worker, places[size_t(c)]).ok());
        }
      }));
      together.push_back(
          MicrosecondsOf([&] { BATCHD_CHECK(plan->MakeRows(bytes, key, &worker, places).ok()); }));
    }
  }
  const std::string crops = std::to_string(2 + local_count) + " crops ";
  Print(crops + "alone", std::move(alone));
  Print(crops + "together", std::move(together));
}

}  // namespace
}  // namespace batchd

int main(int argc, char** argv) {
  batchd::TimeKernels();
  std::vector<batchd::MemorySample> samples;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    samples.push_back({argv[i], {std::istreambuf_iterator<char>(file), {}}, 0});
  }
  if (!samples.empty()) {
    batchd::TimeCrops(samples, 0);
    batchd::TimeCrops(samples, 8);
  }
  std::puts("}");
  return 0;
}
