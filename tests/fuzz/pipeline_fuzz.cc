// SPDX-License-Identifier: Apache-2.0
//
// A pipeline as a client writes it: the JSON of a ClientMessage with an Open, parsed, converted,
// compiled; where it is one, a row is made with it.
#include <memory>
#include <string_view>
#include <vector>

#include "server/api/convert.h"
#include "server/api/message_json.h"
#include "server/base/check.h"
#include "server/base/log.h"
#include "server/base/status.h"
#include "tests/support/memory_dataset.h"

namespace batchd {
namespace {

// Larger pictures cost time, a blur of 255 pixels in 64 places above all, and show nothing else.
constexpr int64_t kPixelsMax = 1 << 13;
constexpr int64_t kRowBytesMax = 1 << 20;

void LimitPixels(PipelineSpec* pipeline) {
  for (ColumnSpec& column : pipeline->columns) {
    for (OperationSpec& operation : column.operations) {
      const bool decodes = operation.name == "DecodeImage" || operation.name == "DecodeMask";
      if (!decodes || !operation.arguments.is_object()) continue;
      Json& pixels = operation.arguments["max_pixels"];
      const bool is_small = pixels.is_number_integer() && pixels.get<int64_t>() <= kPixelsMax;
      // What is wrong stays wrong; a decimal string may be a large number.
      if (!is_small && (pixels.is_number() || pixels.is_string() || pixels.is_null())) {
        pixels = kPixelsMax;
      }
    }
  }
}

bool IsRowsError(const absl::Status& status) {
  return SampleReasonOf(status).has_value() ||
         status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kFailedPrecondition;
}

// All columns of a sample together must give the bytes that each gives alone.
void MakeTogether(const PipelinePlan& plan, Worker* worker) {
  const auto& samples = static_cast<const MemoryDataset&>(plan.dataset());
  std::vector<std::vector<uint8_t>> rows;
  std::vector<uint8_t*> places;
  for (const ColumnShape& shape : plan.shapes()) {
    if (shape.row_size_bytes > kRowBytesMax) return;
    rows.emplace_back(static_cast<size_t>(shape.row_size_bytes));
  }
  for (auto& row : rows) places.push_back(row.data());
  for (int64_t ordinal = 0; ordinal < samples.num_samples(); ++ordinal) {
    const DrawKey key = {.seed = 3, .ordinal = static_cast<uint64_t>(ordinal)};
    const Bytes bytes = samples.at(ordinal).bytes;
    const absl::Status status = plan.MakeRows(bytes, key, worker, places);
    BATCHD_CHECK(status.ok() || IsRowsError(status));
    for (int i = 0; status.ok() && i < plan.column_count(); ++i) {
      std::vector<uint8_t> row(rows[static_cast<size_t>(i)].size());
      BATCHD_CHECK(plan.column(i).MakeRow(samples, bytes, key, worker, row.data()).ok());
      BATCHD_CHECK(row == rows[static_cast<size_t>(i)]);
    }
  }
}

void MakeRows(const PipelinePlan& plan) {
  static auto* const worker = new Worker;
  MakeTogether(plan, worker);
  for (int i = 0; i < plan.column_count(); ++i) {
    const ColumnPlan& column = plan.column(i);
    if (column.shape().row_size_bytes > kRowBytesMax) continue;
    std::vector<uint8_t> row(static_cast<size_t>(column.shape().row_size_bytes));
    const auto& samples = static_cast<const MemoryDataset&>(plan.dataset());
    for (int64_t ordinal = 0; ordinal < samples.num_samples(); ++ordinal) {
      const absl::Status status = column.MakeRow(
          samples, samples.at(ordinal).bytes,
          {.seed = 3, .ordinal = static_cast<uint64_t>(ordinal)}, worker, row.data());
      BATCHD_CHECK(status.ok() || IsRowsError(status));
    }
    column.MakeSkippedRow(row.data());
  }
}

std::shared_ptr<const Dataset> MakeDataset() {
  std::vector<MemorySample> samples;
  for (const ImageSize size : {ImageSize{12, 10}, ImageSize{12, 10}, ImageSize{3, 33}}) {
    Draws draws({.seed = 7, .ordinal = samples.size()});
    samples.push_back(
        {fmt::format("{}", samples.size()), EncodePpm(NoisePicture(size, &draws)), 1});
  }
  return std::make_shared<MemoryDataset>(std::move(samples));
}

}  // namespace
}  // namespace batchd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace batchd;  // NOLINT: the only function outside
  static const auto* const dataset = new std::shared_ptr<const Dataset>(MakeDataset());
  const auto message = ClientMessageFromJson({reinterpret_cast<const char*>(data), size});
  if (!message.ok()) return 0;
  absl::StatusOr<OpenRequest> request = OpenFromProto(message->open(), TransportKind::kShm);
  if (!request.ok()) return 0;
  LimitPixels(&request->pipeline);
  const auto plan = PipelinePlan::Compile(request->pipeline, *dataset);
  if (!plan.ok()) {
    // A fault that is said to the client, with the field.
    BATCHD_CHECK(!plan.status().message().empty());
    return 0;
  }
  BATCHD_CHECK((*plan)->fingerprint().size() == 32);
  MakeRows(**plan);
  return 0;
}
