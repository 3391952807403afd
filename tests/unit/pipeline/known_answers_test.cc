// SPDX-License-Identifier: Apache-2.0
//
// The shared cases of cases/transforms/expected.json: every case whose operations this build has,
// from the encoded file to the values, against what Pillow and torch give.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "server/decoder/decoder.h"
#include "server/transform/kinds.h"
#include "tests/support/cases.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_picture.h"
#include "tests/support/transform_helpers.h"

namespace batchd {
namespace {

using nlohmann::json;

struct Values {
  std::string dtype;  // numpy's, but "bfloat16" where the case says so
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

// Operations that the product does at random only.
const std::map<std::string, const char*> kAtRandom = {{"horizontal_flip", "RandomHorizontalFlip"},
                                                      {"vertical_flip", "RandomVerticalFlip"},
                                                      {"sharpness", "RandomAdjustSharpness"},
                                                      {"autocontrast", "RandomAutocontrast"},
                                                      {"equalize", "RandomEqualize"},
                                                      {"posterize", "RandomPosterize"},
                                                      {"solarize", "RandomSolarize"},
                                                      {"invert", "RandomInvert"}};

// One case: its operations folded, then decoded and run.
struct Runner {
  std::vector<uint8_t> bytes;
  DecoderSet decoders;
  Scratch scratch;
  ValueTable table;
  RowFormat format;

  // Operations that the product has under a name go through schema, Make, Prepare and Plan.
  absl::Status ApplyNamed(const char* name, const Json& arguments, PicturePlan* plan) {
    BATCHD_ASSIGN_OR_RETURN(const auto transform, MakeTransform(name, arguments));
    BATCHD_RETURN_IF_ERROR(transform->Prepare(&format, &table));
    Draws draws({});
    return transform->Plan(plan, &draws);
  }

  // RandomAffine with ranges of one value; a move in pixels cannot be given to it.
  absl::Status ApplyAffine(const json& op, PicturePlan* plan) {
    if (op["translate"] != json({0, 0})) {
      const Affine affine = {.degrees = op["degrees"],
                             .translate_x = op["translate"][0],
                             .translate_y = op["translate"][1],
                             .scale = op["scale"],
                             .shear_x_degrees = op["shear"][0],
                             .shear_y_degrees = op["shear"][1]};
      const json fill = op.value("fill", json({0, 0, 0}));
      const Filter filter = FilterArgument(op.value("filter", json("nearest")));
      std::optional<WarpPoint> center;
      if (op.contains("center")) center = {op["center"][0], op["center"][1]};
      plan->Apply(WarpStep(AffineMatrix(plan->output(), affine, center), plan->output(), filter,
                           fill.get<Colour>()));
      return absl::OkStatus();
    }
    json arguments = {{"degrees", {op["degrees"], op["degrees"]}},
                      {"scale", {op["scale"], op["scale"]}},
                      {"shear", {op["shear"][0], op["shear"][0], op["shear"][1], op["shear"][1]}}};
    if (op.contains("filter")) arguments["interpolation"] = op["filter"];
    for (const char* const same : {"fill", "center"}) {
      if (op.contains(same)) arguments[same] = op[same];
    }
    return ApplyNamed("RandomAffine", arguments, plan);
  }

  absl::Status Apply(const json& op, PicturePlan* plan) {
    const std::string name = op["op"];
    json arguments = op;
    arguments.erase("op");
    const auto rename = [&](const char* from, const char* to) {
      if (!arguments.contains(from)) return;
      arguments[to] = arguments[from];
      arguments.erase(from);
    };
    if (name == "crop" || name == "resized_crop") {
      const json& b = op["box"];
      plan->Crop({b[0], b[1], b[2], b[3]});
      if (name == "crop") return absl::OkStatus();
      arguments.erase("box");
    }
    if (name == "resize" || name == "resized_crop") {
      rename("short_side", "size");
      rename("filter", "interpolation");
      arguments.erase("antialias");
      return ApplyNamed("Resize", arguments, plan);
    }
    if (name == "center_crop") return ApplyNamed("CenterCrop", arguments, plan);
    if (name == "grayscale") {
      rename("channels", "num_output_channels");
      return ApplyNamed("Grayscale", arguments, plan);
    }
    if (name == "pad") {
      rename("border", "padding");
      rename("mode", "padding_mode");
      return ApplyNamed("Pad", arguments, plan);
    }
    if (name == "rotate") {
      rename("filter", "interpolation");
      arguments["degrees"] = {op["degrees"], op["degrees"]};
      return ApplyNamed("RandomRotation", arguments, plan);
    }
    if (name == "affine") return ApplyAffine(op, plan);
    if (name == "color_jitter") {
      // One after the other, as the order in one ColorJitter is drawn.
      for (const json& kind : op["order"]) {
        const json amount = op[kind.get<std::string>()];
        BATCHD_RETURN_IF_ERROR(ApplyNamed(
            "ColorJitter", {{kind.get<std::string>(), json::array({amount, amount})}}, plan));
      }
      return absl::OkStatus();
    }
    if (const auto found = kAtRandom.find(name); found != kAtRandom.end()) {
      rename("factor", "sharpness_factor");
      arguments["p"] = 1;
      return ApplyNamed(found->second, arguments, plan);
    }
    if (name == "erase") {
      // A box cannot be given to RandomErasing; its value goes the same way.
      const json value = op.value("value", json(0));
      std::array<float, 3> values;
      for (int c = 0; c < 3; ++c) values[c] = value.is_array() ? value[c] : value;
      const json& b = op["box"];
      plan->Erase({b[0], b[1], b[2], b[3]}, table.AddConstant(values));
      return absl::OkStatus();
    }
    if (name == "to_tensor") return ApplyNamed("ToTensor", arguments, plan);
    if (name == "normalize") return ApplyNamed("Normalize", arguments, plan);
    if (name == "layout") return ApplyNamed("Layout", arguments, plan);
    if (name == "cast") return ApplyNamed("Cast", arguments, plan);
    return MakeTransform(name, arguments).status();
  }

  absl::StatusOr<Values> Run(const json& ops) {
    BATCHD_ASSIGN_OR_RETURN(ImageDecoder* const decoder, decoders.For(bytes));
    BATCHD_ASSIGN_OR_RETURN(const ImageSize size, decoder->ReadHeader(bytes, DecodeLimits{}));
    PicturePlan plan(size);
    for (const json& op : ops) BATCHD_RETURN_IF_ERROR(Apply(op, &plan));
    PictureCollector collector(plan.output());
    PictureRun run(plan, &collector, &scratch);
    BATCHD_RETURN_IF_ERROR(decoder->Decode(bytes, run.region(), &scratch, run.sink()));
    run.Finish();
    Values values = Write(collector.picture());
    for (const Erasure& erasure : plan.erasures()) {
      table.Fill(erasure.box, erasure.constant, plan.output(), format.layout, values.bytes.data());
    }
    return values;
  }

  Values Write(const TestPicture& picture) const {
    const int64_t height = picture.size.height, width = picture.size.width;
    const int64_t channels = table.channels();
    Values values;
    values.dtype = DTypeName(table.dtype());
    values.shape = format.layout == Layout::kHwc ? std::vector<int64_t>{height, width, channels}
                                                 : std::vector<int64_t>{channels, height, width};
    values.bytes.resize(size_t(height * width * channels * DTypeSizeBytes(table.dtype())));
    table.Write(picture.view(), format.layout, values.bytes.data());
    return values;
  }
};

// A .npy of version 1 in C order.
Values ReadNpy(const std::string& path) {
  const std::vector<uint8_t> file = ReadFileBytes(path);
  EXPECT_GT(file.size(), 10u);
  const size_t header_size = file[8] + 256u * file[9];
  const std::string header(file.begin() + 10, file.begin() + 10 + int64_t(header_size));
  EXPECT_NE(header.find("'fortran_order': False"), std::string::npos) << path;
  Values values;
  const std::pair<const char*, const char*> kTypes[] = {
      {"'<f4'", "float32"}, {"'<f2'", "float16"}, {"'<u2'", "bfloat16"}, {"'|u1'", "uint8"}};
  for (const auto& [descr, dtype] : kTypes) {
    if (header.find(descr) != std::string::npos) values.dtype = dtype;
  }
  const size_t open = header.find('(');
  const char* at = header.c_str() + open + 1;
  while (*at != ')') {
    char* end = nullptr;
    values.shape.push_back(std::strtoll(at, &end, 10));
    for (at = end; *at == ',' || *at == ' ';) ++at;
  }
  values.bytes.assign(file.begin() + 10 + int64_t(header_size), file.end());
  return values;
}

Values ReadExpected(const json& expect) {
  const std::string path = CasesPath("transforms/" + expect["ref"].get<std::string>());
  if (path.ends_with(".npy")) return ReadNpy(path);
  Runner runner;
  runner.bytes = ReadFileBytes(path);
  json ops = json::array();
  if (expect["shape"].back() == 1) ops.push_back({{"op", "grayscale"}, {"channels", 1}});
  const auto values = runner.Run(ops);
  EXPECT_OK(values);
  return values.ok() ? *values : Values{};
}

// The bits of a 16-bit float as integers in the numbers' order.
int Ordered(uint16_t bits) { return bits & 0x8000 ? 0x8000 - bits : bits; }

template <typename T>
T ValueAt(const std::vector<uint8_t>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

void CompareFloats(const Values& got, const Values& want, const json& tol) {
  for (size_t i = 0; i < want.bytes.size() / 4; ++i) {
    const double due = ValueAt<float>(want.bytes, i);
    ASSERT_NEAR(ValueAt<float>(got.bytes, i), due,
                tol["atol"].get<double>() + tol["rtol"].get<double>() * std::abs(due));
  }
}

void CompareHalves(const Values& got, const Values& want, const json& tol) {
  const size_t count = want.bytes.size() / 2;
  size_t different = 0;
  for (size_t i = 0; i < count; ++i) {
    const int apart = std::abs(Ordered(ValueAt<uint16_t>(got.bytes, i)) -
                               Ordered(ValueAt<uint16_t>(want.bytes, i)));
    different += apart > 0;
    ASSERT_LE(apart, tol["max_ulp"].get<int>()) << "value " << i;
  }
  EXPECT_LE(double(different), std::max(1.0, tol["ulp_share"].get<double>() * double(count)));
}

void Compare(const Values& got, const Values& want, const json& tol) {
  ASSERT_EQ(got.dtype, want.dtype);
  ASSERT_EQ(got.shape, want.shape);
  ASSERT_EQ(got.bytes.size(), want.bytes.size());
  if (tol.contains("rtol")) return CompareFloats(got, want, tol);
  if (tol.contains("max_ulp")) return CompareHalves(got, want, tol);
  // Where a case leaves room (turned pictures), it is not used.
  ASSERT_EQ(got.bytes, want.bytes);
}

bool IsCovered(const json& c) {
  // A resize without antialiasing is not there, which a case may accept.
  for (const json& op : c["ops"]) {
    if (!op.value("antialias", true)) return false;
  }
  return true;
}

TEST(KnownAnswers, EveryCaseOfTheseOperationsHolds) {
  BATCHD_NEEDS_CASES();
  const json cases = ReadJson(CasesPath("transforms/expected.json"));
  int checked = 0;
  for (const json& c : cases["cases"]) {
    if (c["expect"]["result"] != "ok" || !IsCovered(c)) continue;
    SCOPED_TRACE(c["id"].get<std::string>());
    Runner runner;
    runner.bytes = ReadFileBytes(CasesPath("transforms/" + c["file"].get<std::string>()));
    const auto got = runner.Run(c["ops"]);
    EXPECT_OK(got);
    if (got.ok()) Compare(*got, ReadExpected(c["expect"]), c["expect"]["tol"]);
    ++checked;
  }
  EXPECT_GE(checked, 150);
  RecordProperty("cases", checked);
}

TEST(KnownAnswers, EveryRefusalIsAnInvalidArgument) {
  BATCHD_NEEDS_CASES();
  const json cases = ReadJson(CasesPath("transforms/expected.json"));
  int checked = 0;
  for (const json& c : cases["cases"]) {
    if (c["expect"]["result"] != "error") continue;
    // An operation that this build has not is refused too, by its name.
    SCOPED_TRACE(c["id"].get<std::string>());
    Runner runner;
    runner.bytes = ReadFileBytes(CasesPath("transforms/" + c["file"].get<std::string>()));
    EXPECT_THAT(runner.Run(c["ops"]), FailsWith(absl::StatusCode::kInvalidArgument, ""));
    ++checked;
  }
  EXPECT_GE(checked, 5);
}

}  // namespace
}  // namespace batchd
