// SPDX-License-Identifier: Apache-2.0
#include "server/api/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "proto/shm/slab.h"
#include "proto/shm/wire.h"
#include "server/base/status.h"

namespace batchd {
namespace {

// A sentence that carries a whole file or list helps nobody; an Error always fits one message.
constexpr size_t kSentenceBytesMax = 8 * 1024;

static_assert(static_cast<int>(wire::DType::kUint8) == v1::DATA_TYPE_UINT8);
static_assert(static_cast<int>(wire::DType::kInt64) == v1::DATA_TYPE_INT64);
static_assert(static_cast<int>(wire::DType::kFloat16) == v1::DATA_TYPE_FLOAT16);
static_assert(static_cast<int>(wire::DType::kBfloat16) == v1::DATA_TYPE_BFLOAT16);
static_assert(static_cast<int>(wire::DType::kFloat32) == v1::DATA_TYPE_FLOAT32);

std::string Sentence(std::string_view text) {
  std::string valid = ValidUtf8(text.substr(0, kSentenceBytesMax));
  if (text.size() > kSentenceBytesMax) valid += " [...]";
  return valid;
}

// google.protobuf.Value as JSON. Whole numbers become integers, as a JSON parser would have them.
class ArgumentReader {
 public:
  absl::StatusOr<Json> Read(const google::protobuf::Struct& in, std::string_view field) {
    return ReadStruct(in, field, 1);
  }

 private:
  absl::Status Count(std::string_view field, int depth) {
    if (depth > kArgumentDepthMax) {
      return FieldErr(field, "arguments nest deeper than {} levels", kArgumentDepthMax);
    }
    if (++count_ > kArgumentValuesMax) {
      return FieldErr(field, "the arguments of one Open have more than {} values",
                      kArgumentValuesMax);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Json> ReadStruct(const google::protobuf::Struct& in, std::string_view field,
                                  int depth) {
    BATCHD_RETURN_IF_ERROR(Count(field, depth));
    Json out = Json::object();
    for (const auto& [key, value] : in.fields()) {
      BATCHD_ASSIGN_OR_RETURN(out[key], ReadValue(value, field, depth + 1));
    }
    return out;
  }

  absl::StatusOr<Json> ReadValue(const google::protobuf::Value& in, std::string_view field,
                                 int depth) {
    BATCHD_RETURN_IF_ERROR(Count(field, depth));
    switch (in.kind_case()) {
      case google::protobuf::Value::kBoolValue:
        return Json(in.bool_value());
      case google::protobuf::Value::kStringValue:
        return Json(in.string_value());
      case google::protobuf::Value::kNumberValue:
        return ReadNumber(in.number_value(), field);
      case google::protobuf::Value::kStructValue:
        return ReadStruct(in.struct_value(), field, depth);
      case google::protobuf::Value::kListValue: {
        Json out = Json::array();
        for (const auto& value : in.list_value().values()) {
          BATCHD_ASSIGN_OR_RETURN(Json item, ReadValue(value, field, depth + 1));
          out.push_back(std::move(item));
        }
        return out;
      }
      case google::protobuf::Value::kNullValue:
      case google::protobuf::Value::KIND_NOT_SET:
        break;
    }
    return Json(nullptr);
  }

  static absl::StatusOr<Json> ReadNumber(double number, std::string_view field) {
    if (!std::isfinite(number)) {
      return FieldErr(field, "an argument is {}, which is no number of JSON", number);
    }
    constexpr double kWholeMax = 9007199254740992.0;  // 2^53
    if (std::fabs(number) <= kWholeMax && number == std::trunc(number)) {
      return Json(static_cast<int64_t>(number));
    }
    return Json(number);
  }

  int count_ = 0;
};

absl::StatusOr<PipelineSpec> PipelineFromProto(const v1::Pipeline& in, ArgumentReader* reader) {
  PipelineSpec out;
  for (int c = 0; c < in.columns_size(); ++c) {
    const v1::Column& column = in.columns(c);
    if (column.name().empty()) {
      return FieldErr(fmt::format("pipeline.columns[{}].name", c), "a column needs a name");
    }
    ColumnSpec spec{column.name(), {}};
    for (int i = 0; i < column.operations_size(); ++i) {
      const v1::Operation& operation = column.operations(i);
      const std::string field = fmt::format("pipeline.{}[{}]", column.name(), i);
      if (operation.name().empty()) return FieldErr(field, "an operation needs a name");
      OperationSpec step{operation.name(), Json::object()};
      BATCHD_ASSIGN_OR_RETURN(step.arguments, reader->Read(operation.arguments(), field));
      spec.operations.push_back(std::move(step));
    }
    out.columns.push_back(std::move(spec));
  }
  return out;
}

absl::Status UnknownEnum(std::string_view field, int value) {
  return FieldErr(field, "this daemon does not know the value {}; it may be older than the client",
                  value);
}

absl::Status PoliciesFromProto(const v1::Sampling& in, OpenRequest* out) {
  switch (in.shuffle()) {
    case v1::SHUFFLE_UNSPECIFIED:
    case v1::SHUFFLE_NONE:
      out->shuffle = Shuffle::kNone;
      break;
    case v1::SHUFFLE_FEISTEL:
      out->shuffle = Shuffle::kFeistel;
      break;
    case v1::SHUFFLE_TORCH:
      out->shuffle = Shuffle::kTorch;
      break;
    default:
      return UnknownEnum("sampling.shuffle", in.shuffle());
  }
  switch (in.last_batch()) {
    case v1::LAST_BATCH_UNSPECIFIED:
      out->last_batch = std::nullopt;
      break;
    case v1::LAST_BATCH_DROP:
      out->last_batch = LastBatch::kDrop;
      break;
    case v1::LAST_BATCH_PAD:
      out->last_batch = LastBatch::kPad;
      break;
    case v1::LAST_BATCH_PARTIAL:
      out->last_batch = LastBatch::kPartial;
      break;
    default:
      return UnknownEnum("sampling.last_batch", in.last_batch());
  }
  switch (in.on_bad_sample()) {
    case v1::ON_BAD_SAMPLE_UNSPECIFIED:
    case v1::ON_BAD_SAMPLE_FAIL:
      out->on_bad_sample = OnBadSample::kFail;
      break;
    case v1::ON_BAD_SAMPLE_SKIP:
      out->on_bad_sample = OnBadSample::kSkip;
      break;
    case v1::ON_BAD_SAMPLE_SUBSTITUTE:
      out->on_bad_sample = OnBadSample::kSubstitute;
      break;
    default:
      return UnknownEnum("sampling.on_bad_sample", in.on_bad_sample());
  }
  return absl::OkStatus();
}

absl::Status SamplingFromProto(const v1::Sampling& in, OpenRequest* out) {
  BATCHD_RETURN_IF_ERROR(PoliciesFromProto(in, out));
  out->seed = in.seed();
  out->global_batch_size = in.global_batch_size();
  // The domain has -1 for "not set": a negative bound must not turn into none.
  if (in.has_max_bad_count()) {
    if (in.max_bad_count() < 0) {
      return FieldErr("sampling.max_bad_count", "{} is below 0", in.max_bad_count());
    }
    out->max_bad_count = in.max_bad_count();
  }
  if (in.has_max_bad_share()) {
    if (!(in.max_bad_share() >= 0 && in.max_bad_share() <= 1)) {
      return FieldErr("sampling.max_bad_share", "{} is not in [0, 1]", in.max_bad_share());
    }
    out->max_bad_share = in.max_bad_share();
  }
  return absl::OkStatus();
}

absl::Status CheckTransport(v1::Transport wanted, TransportKind door) {
  const bool is_shm = door == TransportKind::kShm;
  const v1::Transport own = is_shm ? v1::TRANSPORT_SHM : v1::TRANSPORT_GRPC;
  if (wanted == v1::TRANSPORT_UNSPECIFIED || wanted == own) return absl::OkStatus();
  if (!v1::Transport_IsValid(wanted)) return UnknownEnum("transport", wanted);
  return FieldErr("transport", "{} cannot be had here; this door hands over by {}",
                  v1::Transport_Name(wanted), v1::Transport_Name(own));
}

v1::Shuffle ToProto(Shuffle shuffle) {
  switch (shuffle) {
    case Shuffle::kNone:
      return v1::SHUFFLE_NONE;
    case Shuffle::kFeistel:
      return v1::SHUFFLE_FEISTEL;
    case Shuffle::kTorch:
      return v1::SHUFFLE_TORCH;
  }
  return v1::SHUFFLE_UNSPECIFIED;
}

v1::LastBatch ToProto(LastBatch last_batch) {
  switch (last_batch) {
    case LastBatch::kDrop:
      return v1::LAST_BATCH_DROP;
    case LastBatch::kPad:
      return v1::LAST_BATCH_PAD;
    case LastBatch::kPartial:
      return v1::LAST_BATCH_PARTIAL;
  }
  return v1::LAST_BATCH_UNSPECIFIED;
}

v1::OnBadSample ToProto(OnBadSample policy) {
  switch (policy) {
    case OnBadSample::kFail:
      return v1::ON_BAD_SAMPLE_FAIL;
    case OnBadSample::kSkip:
      return v1::ON_BAD_SAMPLE_SKIP;
    case OnBadSample::kSubstitute:
      return v1::ON_BAD_SAMPLE_SUBSTITUTE;
  }
  return v1::ON_BAD_SAMPLE_UNSPECIFIED;
}

void ToProto(const Address& address, v1::Address* out) {
  out->set_epoch(address.epoch);
  out->set_step(address.step);
  out->set_rank(address.rank);
  out->set_world_size(address.world_size);
}

void ToProto(const Position& position, v1::Position* out) {
  out->set_epoch(position.epoch);
  out->set_step(position.step);
}

void ToProto(const ColumnShape& column, v1::ColumnLayout* out) {
  out->set_name(ValidUtf8(column.name));
  out->set_data_type(static_cast<v1::DataType>(column.dtype));
  for (const int64_t extent : column.shape) out->add_shape(extent);
}

// Length of the UTF-8 sequence that `text` begins with, or 0 if it begins with none (RFC 3629: no
// surrogates, no overlong forms, nothing above U+10FFFF).
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) > 0x9F)) return 0;
  if ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

// The most bytes that `text` takes in JSON, quotes and comma included.
size_t JsonBytesMax(std::string_view text) {
  size_t size = 3;
  for (const char c : text) {
    const bool plain = c >= 0x20 && c < 0x7F && c != '"' && c != '\\' && c != '<' && c != '>';
    size += plain ? 1 : 6;
  }
  return size;
}

}  // namespace

std::string ValidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      out.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return out;
}

absl::StatusOr<OpenRequest> OpenFromProto(const v1::Open& open, TransportKind door) {
  if (!open.has_dataset() || open.dataset().name().empty()) {
    return FieldErr("dataset.name", "an Open needs a dataset; `batchd plugins` lists the kinds");
  }
  if (!open.has_pipeline() || open.pipeline().columns().empty()) {
    return FieldErr("pipeline.columns", "an Open needs a pipeline of at least one column");
  }
  if (!open.has_sampling()) {
    return FieldErr("sampling.global_batch_size", "an Open needs the rows of one step");
  }
  BATCHD_RETURN_IF_ERROR(CheckTransport(open.transport(), door));
  OpenRequest out;
  ArgumentReader reader;
  out.dataset_name = open.dataset().name();
  BATCHD_ASSIGN_OR_RETURN(out.dataset_arguments,
                          reader.Read(open.dataset().arguments(), "dataset.arguments"));
  BATCHD_ASSIGN_OR_RETURN(out.pipeline, PipelineFromProto(open.pipeline(), &reader));
  BATCHD_RETURN_IF_ERROR(SamplingFromProto(open.sampling(), &out));
  out.rank = open.rank();
  out.world_size = open.world_size();
  out.start = Position{open.start().epoch(), open.start().step()};
  out.prefetch = open.prefetch();
  out.transport = door;
  out.job = open.job();
  out.expected = {open.expected().dataset(), open.expected().pipeline(), open.expected().decoder()};
  out.client_version = open.client_version();
  return out;
}

absl::StatusOr<OpenRequest> SingleFromProto(const v1::GetBatchRequest& request) {
  if (!request.has_open()) return FieldErr("open", "GetBatch needs dataset, pipeline and sampling");
  if (!request.has_address()) return FieldErr("address", "GetBatch needs the batch's address");
  BATCHD_ASSIGN_OR_RETURN(OpenRequest out, OpenFromProto(request.open(), TransportKind::kGrpc));
  out.rank = request.address().rank();
  out.world_size = request.address().world_size();
  out.start = Position{request.address().epoch(), request.address().step()};
  out.prefetch = 1;
  out.single = true;
  return out;
}

void ToProto(const OpenedInfo& info, v1::Opened* out) {
  out->set_session_id(info.session_id);
  out->mutable_fingerprint()->set_dataset(info.fingerprints.dataset);
  out->mutable_fingerprint()->set_pipeline(info.fingerprints.pipeline);
  out->mutable_fingerprint()->set_decoder(info.fingerprints.decoder);
  out->set_num_samples(info.num_samples);
  out->set_num_classes(info.num_classes);
  out->set_steps_per_epoch(info.steps_per_epoch);
  out->set_rows_max(info.rows_max);
  for (const ColumnShape& column : info.columns) ToProto(column, out->add_columns());
  v1::Sampling* sampling = out->mutable_sampling();
  sampling->set_seed(info.seed);
  sampling->set_shuffle(ToProto(info.shuffle));
  sampling->set_global_batch_size(info.global_batch_size);
  sampling->set_last_batch(ToProto(info.last_batch));
  sampling->set_on_bad_sample(ToProto(info.on_bad_sample));
  if (info.max_bad_count >= 0) sampling->set_max_bad_count(info.max_bad_count);
  if (info.max_bad_share >= 0) sampling->set_max_bad_share(info.max_bad_share);
  out->set_prefetch(info.prefetch);
  out->set_slab_size_bytes(info.slab_size_bytes);
  out->set_source_name(ValidUtf8(info.source_name));
  out->set_server_version(BATCHD_VERSION);
  for (const std::string& warning : info.warnings) out->add_warnings(Sentence(warning));
}

void ToProto(int index, const Segment& segment, v1::Segment* out) {
  out->set_index(index);
  out->set_slot_count(segment.slot_count());
  out->set_slab_size_bytes(segment.slab_size_bytes());
}

void ToProto(const ReadyBatch& batch, v1::Ready* out) {
  out->set_segment(batch.ref.segment);
  out->set_slot(batch.ref.slot);
  out->set_sequence(static_cast<int64_t>(batch.ref.sequence));
  out->set_generation(static_cast<int32_t>(batch.generation));
  ToProto(batch.address, out->mutable_address());
  out->set_rows(batch.rows);
  out->set_valid_rows(batch.valid_rows);
  out->set_last_in_epoch(batch.last_in_epoch);
  out->set_size_bytes(batch.size_bytes);
}

void ToProto(const BatchFailure& failure, v1::Failure* out) {
  out->set_generation(static_cast<int32_t>(failure.generation));
  ToProto(failure.address, out->mutable_address());
  out->set_code(static_cast<int>(failure.status.code()));
  out->set_message(Sentence({failure.status.message().data(), failure.status.message().size()}));
  const std::optional<SampleReason> reason = SampleReasonOf(failure.status);
  if (reason.has_value()) out->set_reason(std::string(SampleReasonName(*reason)));
  out->set_ordinal(failure.ordinal);
  out->set_sample_name(ValidUtf8(failure.sample_name));
  ToProto(failure.next, out->mutable_next());
}

void ToProto(const ExhaustedInfo& info, v1::Exhausted* out) {
  out->set_held_slots(info.held_slots);
  out->set_slab_size_bytes(info.slab_size_bytes);
  out->set_budget_bytes(info.budget_bytes);
  out->set_used_bytes(info.used_bytes);
  out->set_message(Sentence(info.message));
}

void ToProto(const absl::Status& status, v1::Error* out) {
  out->set_code(static_cast<int>(status.code()));
  out->set_message(Sentence({status.message().data(), status.message().size()}));
  out->set_field(Sentence(FieldOf(status)));
}

void ToProto(const SessionStatusInfo& info, v1::SessionStatus* out) {
  out->set_session_id(info.session_id);
  out->set_job(ValidUtf8(info.job));
  out->set_rank(info.rank);
  out->set_world_size(info.world_size);
  out->set_transport(info.transport == TransportKind::kShm ? v1::TRANSPORT_SHM
                                                           : v1::TRANSPORT_GRPC);
  ToProto(info.next, out->mutable_next());
  out->set_filling_slots(info.filling_slots);
  out->set_ready_slots(info.ready_slots);
  out->set_leased_slots(info.leased_slots);
  out->set_batches_taken(info.batches_taken);
  out->set_ready_share(info.ready_share);
  out->set_source_name(ValidUtf8(info.source_name));
}

void NamesToProto(const std::vector<std::string>& names, v1::Answer* out) {
  constexpr size_t kRoomForTheRest = 1024;
  size_t left_bytes = wire::kMessageBytesMax - kRoomForTheRest;
  for (const std::string& name : names) {
    std::string valid = ValidUtf8(name);
    const size_t size_bytes = JsonBytesMax(valid);
    if (size_bytes > left_bytes) break;
    left_bytes -= size_bytes;
    out->add_names(std::move(valid));
  }
}

void SlabToProto(const ReadyBatch& batch, const std::vector<ColumnShape>& columns,
                 v1::GetBatchResponse* out) {
  wire::SlabHeader header;
  std::memcpy(&header, batch.slab, sizeof(header));
  ToProto(batch, out->mutable_ready());
  const auto rows = static_cast<size_t>(batch.rows);
  out->mutable_sample_ids()->Resize(static_cast<int>(rows), 0);
  if (rows > 0) {
    std::memcpy(out->mutable_sample_ids()->mutable_data(), batch.slab + header.sample_ids_offset,
                rows * sizeof(int64_t));
  }
  out->set_row_status(batch.slab + header.row_status_offset, rows);
  for (size_t c = 0; c < columns.size(); ++c) {
    wire::SlabColumn column;
    std::memcpy(&column, batch.slab + sizeof(header) + c * sizeof(column), sizeof(column));
    v1::ColumnValues* values = out->add_columns();
    ToProto(columns[c], values->mutable_layout());
    values->set_values(batch.slab + column.values_offset, column.values_size_bytes);
  }
}

}  // namespace batchd
