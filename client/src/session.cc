// SPDX-License-Identifier: Apache-2.0
#include "client/src/session.h"

#include <algorithm>
#include <utility>

namespace batchd::internal {
namespace {

constexpr Duration kExhaustedWait = std::chrono::seconds(5);
constexpr size_t kOrdinalsPerQueryMax = 4096;

std::vector<std::string> Texts(const Json& message, const char* name) {
  std::vector<std::string> texts;
  const auto found = message.find(name);
  if (found == message.end() || !found->is_array()) return texts;
  for (const Json& item : *found) {
    texts.push_back(item.is_string() ? item.get<std::string>() : "");
  }
  return texts;
}

Result<ColumnSpec> ColumnFromJson(const Json& message) {
  if (!message.is_object()) return ProtocolError("a column is no JSON object");
  ColumnSpec column;
  column.name = TextIn(message, "name");
  const std::string word = WordIn(message, "dataType", "DATA_TYPE_");
  for (const DType dtype :
       {DType::kUint8, DType::kInt64, DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
    if (DTypeName(dtype) == word) column.dtype = dtype;
  }
  if (DTypeName(column.dtype) != word) {
    return ProtocolError("column ", column.name, " has type ", word,
                         ", which this client does not know");
  }
  const auto shape = message.find("shape");
  if (shape == message.end() || !shape->is_array()) return column;
  for (const Json& size : *shape) column.shape.push_back(IntIn({{"size", size}}, "size"));
  return column;
}

Result<Opened> OpenedFromJson(const Json& message) {
  Opened opened;
  const Json& sampling = ObjectIn(message, "sampling");
  opened.run.sampling = {.seed = UintIn(sampling, "seed"),
                         .global_batch_size = IntIn(sampling, "globalBatchSize"),
                         .shuffle = WordIn(sampling, "shuffle", "SHUFFLE_"),
                         .last_batch = WordIn(sampling, "lastBatch", "LAST_BATCH_"),
                         .on_bad_sample = WordIn(sampling, "onBadSample", "ON_BAD_SAMPLE_")};
  const Json& fingerprint = ObjectIn(message, "fingerprint");
  opened.run.fingerprint = {.dataset = TextIn(fingerprint, "dataset"),
                            .pipeline = TextIn(fingerprint, "pipeline"),
                            .decoder = TextIn(fingerprint, "decoder")};
  opened.num_samples = IntIn(message, "numSamples");
  opened.num_classes = IntIn(message, "numClasses");
  opened.steps_per_epoch = IntIn(message, "stepsPerEpoch");
  opened.rows_max = IntIn(message, "rowsMax");
  opened.source_name = TextIn(message, "sourceName");
  opened.warnings = Texts(message, "warnings");
  const auto columns = message.find("columns");
  if (columns == message.end() || !columns->is_array()) return opened;
  for (const Json& item : *columns) {
    Result<ColumnSpec> column = ColumnFromJson(item);
    if (!column.ok()) return column.status();
    opened.columns.push_back(*std::move(column));
  }
  return opened;
}

StatusCode CodeIn(const Json& message) {
  const int64_t number = message.contains("code") ? IntIn(message, "code") : 2;
  return number > 0 && number <= 16 ? static_cast<StatusCode>(number) : StatusCode::kUnknown;
}

}  // namespace

Session::Session(std::unique_ptr<Carrier> carrier, const Json& open_message)
    : carrier_(std::move(carrier)),
      rank_(static_cast<uint32_t>(IntIn(open_message, "rank"))),
      world_size_(static_cast<uint32_t>(IntIn(open_message, "worldSize"))),
      expects_fingerprint_(!ObjectIn(open_message, "expected").empty()) {}

Result<std::unique_ptr<Session>> Session::Open(std::unique_ptr<Carrier> carrier,
                                               const Json& open_message) {
  std::unique_ptr<Session> session(new Session(std::move(carrier), open_message));
  BATCHD_CLIENT_RETURN_IF_ERROR(session->carrier_->Send({{"open", open_message}}));
  while (!session->is_open_) BATCHD_CLIENT_RETURN_IF_ERROR(session->Receive(kWaitMax));
  const Json& start = ObjectIn(open_message, "start");
  const Result<Position> first =
      Normalized({IntIn(start, "epoch"), IntIn(start, "step")}, session->opened_.steps_per_epoch);
  if (!first.ok()) return first.status();
  session->next_ = *first;
  return session;
}

Status Session::Seek(Position position) {
  if (next_ == position) return Status();
  ++generation_;
  BATCHD_CLIENT_RETURN_IF_ERROR(
      carrier_->Send({{"seek", {{"generation", generation_}, {"position", position.ToJson()}}}}));
  next_ = position;
  exhausted_.reset();
  while (!carrier_->ready.empty()) carrier_->Drop(carrier_->ready.Pop());
  return Status();
}

Result<Taken> Session::TakeNext() {
  Result<std::optional<wire::Record>> popped = PopReady();
  if (!popped.ok()) return std::move(popped).status();
  const bool was_ready = popped->has_value();
  Duration waited(0);
  Taken taken{};
  if (was_ready) {
    taken.record = **popped;
  } else {
    const Clock::time_point started = Clock::now();
    Result<wire::Record> record = WaitForReady();
    if (!record.ok()) return std::move(record).status();
    taken.record = *record;
    waited = Clock::now() - started;
  }
  const wire::Record& record = taken.record;
  const Position position{static_cast<int64_t>(record.epoch), static_cast<int64_t>(record.step)};
  if (next_ != position || record.rank != rank_ || record.world_size != world_size_) {
    carrier_->Drop(record);
    return ProtocolError("the daemon has announced ", position.ToString(), " rank ", record.rank,
                         "/", record.world_size, " where ",
                         next_.has_value() ? next_->ToString() : "nothing", " rank ", rank_, "/",
                         world_size_, " is next");
  }
  Result<Slab> slab = carrier_->Take(record, waited, was_ready);
  if (!slab.ok()) return std::move(slab).status();
  taken.slab = *std::move(slab);
  next_ = After(position.epoch, position.step, (record.flags & wire::kLastInEpoch) != 0);
  return taken;
}

Result<std::vector<std::string>> Session::SampleNames(std::span<const int64_t> ordinals) {
  std::vector<std::string> names;
  while (!ordinals.empty()) {
    const size_t count = std::min(ordinals.size(), kOrdinalsPerQueryMax);
    Json part = Json::array();
    for (const int64_t ordinal : ordinals.first(count)) part.push_back(std::to_string(ordinal));
    Result<std::vector<std::string>> some = Ask("sampleNames", {{"ordinals", std::move(part)}});
    if (!some.ok()) return some;
    if (some->empty() || some->size() > count) {
      return ProtocolError("the daemon names ", some->size(), " of ", count, " samples");
    }
    ordinals = ordinals.subspan(some->size());
    std::move(some->begin(), some->end(), std::back_inserter(names));
  }
  return names;
}

Result<std::vector<std::string>> Session::ClassNames() {
  std::vector<std::string> names;
  while (static_cast<int64_t>(names.size()) < opened_.num_classes) {
    Result<std::vector<std::string>> some =
        Ask("classNames", {{"first", std::to_string(names.size())}});
    if (!some.ok()) return some;
    if (some->empty()) {
      return ProtocolError("the daemon names only ", names.size(), " of its classes");
    }
    std::move(some->begin(), some->end(), std::back_inserter(names));
  }
  return names;
}

Result<std::vector<std::string>> Session::Ask(const char* kind, Json query) {
  ++query_id_;
  Json message = {{"queryId", std::to_string(query_id_)}};
  message[kind] = std::move(query);
  BATCHD_CLIENT_RETURN_IF_ERROR(carrier_->Send({{"query", std::move(message)}}));
  while (!answers_.contains(query_id_)) BATCHD_CLIENT_RETURN_IF_ERROR(Receive(kWaitMax));
  std::vector<std::string> names = std::move(answers_[query_id_]);
  answers_.erase(query_id_);
  return names;
}

Result<std::optional<wire::Record>> Session::PopReady() {
  for (;;) {
    while (!carrier_->ready.empty()) {
      const wire::Record record = carrier_->ready.Pop();
      if (record.generation == generation_) return std::optional<wire::Record>(record);
      carrier_->Drop(record);
    }
    if (failure_.has_value()) {
      const Json failure = *std::exchange(failure_, std::nullopt);
      if (IntIn(failure, "generation") == generation_) {
        next_.reset();
        ++failures_;
        return FailureToStatus(failure);
      }
    }
    const Result<bool> came = carrier_->ReceiveNow();
    if (!came.ok()) return came.status();
    BATCHD_CLIENT_RETURN_IF_ERROR(HandleMessages());
    if (!*came) return std::optional<wire::Record>();
  }
}

Result<wire::Record> Session::WaitForReady() {
  Clock::time_point since = Clock::now();
  while (!is_draining_) {
    if (exhausted_.has_value() && carrier_->leases_out() < held_then_) {
      exhausted_.reset();  // one has gone back; if that is no help the daemon says so again
    }
    Duration wait = kWaitMax;
    if (exhausted_.has_value()) {
      wait = since + kExhaustedWait - Clock::now();
      if (wait <= Duration(0)) return SlotsExhausted();
    } else {
      since = Clock::now();
    }
    BATCHD_CLIENT_RETURN_IF_ERROR(Receive(wait));
    Result<std::optional<wire::Record>> popped = PopReady();
    if (!popped.ok()) return std::move(popped).status();
    if (popped->has_value()) {
      exhausted_.reset();
      return **popped;
    }
  }
  return ConnectionLost("the daemon ends");
}

Status Session::SlotsExhausted() const {
  SlotsFault slots;
  slots.held_slots = IntIn(*exhausted_, "heldSlots");
  slots.slab_size_bytes = IntIn(*exhausted_, "slabSizeBytes");
  slots.budget_bytes = IntIn(*exhausted_, "budgetBytes");
  slots.used_bytes = IntIn(*exhausted_, "usedBytes");
  std::string text = TextIn(*exhausted_, "message");
  if (text.empty()) {
    text = Cat("the trainer holds ", slots.held_slots, " batches of ", slots.slab_size_bytes,
               " bytes and ", slots.used_bytes, " of ", slots.budget_bytes, " bytes are in use");
  }
  Error error;
  error.code = StatusCode::kResourceExhausted;
  error.kind = ErrorKind::kSlotsExhausted;
  error.message = text +
                  "; none was given back within 5 s: destroy or Release() batches, keep Copy() "
                  "instead, or raise the daemon's --memory";
  error.slots = slots;
  return Status(std::move(error));
}

Status Session::FailureToStatus(const Json& failure) const {
  Error error;
  error.code = CodeIn(failure);
  error.message = TextIn(failure, "message");
  const std::string reason = TextIn(failure, "reason");
  if (error.code == StatusCode::kDataLoss || !reason.empty()) {
    const Json& next = ObjectIn(failure, "next");
    error.code = StatusCode::kDataLoss;
    error.kind = ErrorKind::kSample;
    error.sample = {
        .reason = reason,
        .ordinal = IntIn(failure, "ordinal"),
        .name = TextIn(failure, "sampleName"),
        .next_state = WriteState(opened_.run, {IntIn(next, "epoch"), IntIn(next, "step")})};
  } else if (error.code == StatusCode::kUnavailable) {
    error.kind = ErrorKind::kUnavailable;
  }
  return Status(std::move(error));
}

Status Session::Receive(Duration timeout) {
  const Result<bool> came = carrier_->Receive(timeout);
  if (!came.ok()) return came.status();
  return HandleMessages();
}

Status Session::HandleMessages() {
  while (!carrier_->messages.empty()) {
    const Json message = std::move(carrier_->messages.front());
    carrier_->messages.pop_front();
    BATCHD_CLIENT_RETURN_IF_ERROR(OnMessage(message));
  }
  return Status();
}

Status Session::OnMessage(const Json& message) {
  if (message.contains("failure")) {
    failure_ = ObjectIn(message, "failure");
  } else if (message.contains("opened")) {
    Result<Opened> opened = OpenedFromJson(ObjectIn(message, "opened"));
    if (!opened.ok()) return std::move(opened).status();
    opened_ = *std::move(opened);
    is_open_ = true;
  } else if (message.contains("answer")) {
    const Json& answer = ObjectIn(message, "answer");
    answers_[IntIn(answer, "queryId")] = Texts(answer, "names");
  } else if (message.contains("exhausted")) {
    exhausted_ = ObjectIn(message, "exhausted");
    // A RELEASE or a TAKE may have been on its way to the daemon when it counted.
    held_then_ = std::max(IntIn(*exhausted_, "heldSlots"), carrier_->leases_out());
  } else if (message.contains("draining")) {
    is_draining_ = true;
  } else if (message.contains("error")) {
    const Json& error = ObjectIn(message, "error");
    const StatusCode code = CodeIn(error);
    if (code == StatusCode::kUnavailable) return Unavailable(TextIn(error, "message"));
    // Nothing else can fail like this that did not fail when the state was made.
    const bool is_mismatch =
        !is_open_ && code == StatusCode::kFailedPrecondition && expects_fingerprint_;
    return MakeError(is_mismatch ? ErrorKind::kStateMismatch : ErrorKind::kOpen, code,
                     TextIn(error, "message"), TextIn(error, "field"));
  }
  // Anything else is of a later minor version, made to be ignored.
  return Status();
}

}  // namespace batchd::internal
