// SPDX-License-Identifier: Apache-2.0
//
// The picture kernels on the shared cases of cases/transforms/expected.json, with Pillow's results.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "server/decoder/decoder.h"
#include "server/image/colour.h"
#include "server/image/warp.h"
#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_picture.h"

namespace batchd {
namespace {

using nlohmann::json;

TestPicture Decoded(const std::string& file, std::optional<Box> box) {
  const std::vector<uint8_t> bytes = ReadFileBytes(CasesPath("transforms/" + file));
  DecoderSet decoders;
  Scratch scratch;
  const auto decoder = decoders.For(bytes);
  EXPECT_OK(decoder);
  const auto size = (*decoder)->ReadHeader(bytes, DecodeLimits{});
  EXPECT_OK(size);
  const Box region = box.value_or(Box{0, 0, size->height, size->width});
  PictureCollector sink({region.height, region.width});
  EXPECT_OK((*decoder)->Decode(bytes, region, &scratch, &sink));
  return sink.picture();
}

Filter FilterOf(const json& op) {
  const std::string name = op.value("filter", "nearest");
  return name == "nearest"    ? Filter::kNearest
         : name == "bilinear" ? Filter::kBilinear
                              : Filter::kBicubic;
}

std::array<uint8_t, 3> FillOf(const json& op) {
  const json fill = op.value("fill", json(0));
  if (fill.is_number()) return {fill, fill, fill};
  return {fill[0], fill[1], fill[2]};
}

std::optional<WarpPoint> CenterOf(const json& op) {
  if (!op.contains("center")) return std::nullopt;
  return WarpPoint{op["center"][0], op["center"][1]};
}

void Warp(const json& op, const WarpMatrix& matrix, ImageSize size, TestPicture* picture) {
  TestPicture out(size);
  Warp(std::as_const(*picture).view(), matrix, FilterOf(op), FillOf(op), out.view());
  *picture = out;
}

// False if it is no operation of these kernels.
bool Apply(const json& op, TestPicture* picture) {
  const std::string name = op["op"];
  const Picture view = picture->view();
  std::vector<uint8_t> scratch(SharpnessScratchBytes(view.width));
  if (name == "color_jitter") {
    for (const std::string step : op["order"]) {
      const double factor = op[step];
      if (step == "brightness") AdjustBrightness(view, factor);
      if (step == "contrast") AdjustContrast(view, factor);
      if (step == "saturation") AdjustSaturation(view, factor);
      if (step == "hue") AdjustHue(view, factor);
    }
  } else if (name == "sharpness") {
    AdjustSharpness(view, op["factor"], scratch.data());
  } else if (name == "autocontrast") {
    Autocontrast(view);
  } else if (name == "equalize") {
    Equalize(view);
  } else if (name == "posterize") {
    Posterize(view, op["bits"]);
  } else if (name == "solarize") {
    Solarize(view, op["threshold"]);
  } else if (name == "invert") {
    Invert(view);
  } else if (name == "grayscale") {
    Grayscale(view);
  } else if (name == "rotate") {
    const Rotation rotation =
        RotationOf(picture->size, op["degrees"], CenterOf(op), op.value("expand", false));
    Warp(op, rotation.matrix, rotation.size, picture);
  } else if (name == "affine") {
    const Affine affine = {op["degrees"], op["translate"][0], op["translate"][1],
                           op["scale"],   op["shear"][0],     op["shear"][1]};
    Warp(op, AffineMatrix(picture->size, affine, CenterOf(op)), picture->size, picture);
  } else {
    return false;
  }
  return true;
}

bool RunCase(json ops, const std::string& file, TestPicture* picture) {
  std::optional<Box> box;
  if (ops[0]["op"] == "crop") {
    const json b = ops[0]["box"];
    box = Box{b[0], b[1], b[2], b[3]};
    ops.erase(0);
  }
  if (ops.empty()) return false;
  *picture = Decoded(file, box);
  for (const json& op : ops) {
    if (!Apply(op, picture)) return false;
  }
  return true;
}

TEST(PictureKernels, EqualPillowOnTheSharedCases) {
  BATCHD_NEEDS_CASES();
  int checked = 0;
  const json cases = ReadJson(CasesPath("transforms/expected.json"));
  for (const json& c : cases["cases"]) {
    if (c["expect"]["result"] != "ok" || c["expect"]["shape"].back() != 3) continue;
    SCOPED_TRACE(c["id"].get<std::string>());
    TestPicture got;
    if (!RunCase(c["ops"], c["file"], &got)) continue;
    const TestPicture want = Decoded(c["expect"]["ref"], std::nullopt);
    // Not only within the cases' tolerance: the kernels decide every pixel as Pillow does.
    EXPECT_EQ(got, want);
    ++checked;
  }
  EXPECT_GE(checked, 45);
  RecordProperty("cases", checked);
}

}  // namespace
}  // namespace batchd
