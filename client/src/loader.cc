// SPDX-License-Identifier: Apache-2.0
#include "batchd/loader.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "client/src/batch_parts.h"
#include "client/src/request.h"
#include "client/src/route.h"
#include "client/src/session.h"

namespace batchd {

using internal::ArgumentError;
using internal::Cat;
using internal::Clock;
using internal::Fingerprint;
using internal::Position;
using internal::Session;

namespace {

constexpr std::chrono::duration<double> kBackOffMin(0.1);
constexpr std::chrono::duration<double> kBackOffMax(5.0);
constexpr int64_t kEpochMax = std::numeric_limits<uint32_t>::max();
constexpr int kPeekMax = 256;

void LogToStderr(std::string_view line) {
  std::fprintf(stderr, "batchd: %.*s\n", static_cast<int>(line.size()), line.data());
}

bool IsWorthAnotherTry(const Status& status) {
  return status.code() == StatusCode::kUnavailable ||
         status.code() == StatusCode::kResourceExhausted || status.code() == StatusCode::kAborted;
}

bool IsConnectionGone(const Status& status) {
  return status.kind() == ErrorKind::kUnavailable || status.kind() == ErrorKind::kConnectionLost;
}

bool IsSessionOver(const Status& status) {
  return status.kind() == ErrorKind::kOpen || status.kind() == ErrorKind::kStateMismatch ||
         status.kind() == ErrorKind::kProtocol;
}

// The parts that both name and that differ.
void LogChanges(const internal::RunState& before, const internal::RunState& after,
                const std::function<void(std::string_view)>& log) {
  const auto say = [&log](const char* name, const auto& was, const auto& now) {
    if (was != now) log(Cat("loaded state: ", name, "=", now, " instead of ", was));
  };
  say("seed", before.sampling.seed, after.sampling.seed);
  say("global_batch_size", before.sampling.global_batch_size, after.sampling.global_batch_size);
  say("shuffle", before.sampling.shuffle, after.sampling.shuffle);
  say("last_batch", before.sampling.last_batch, after.sampling.last_batch);
  say("on_bad_sample", before.sampling.on_bad_sample, after.sampling.on_bad_sample);
}

bool Matches(const Fingerprint& expected, const Fingerprint& actual) {
  const auto fits = [](const std::string& wanted, const std::string& is) {
    return wanted.empty() || wanted == is;
  };
  return fits(expected.dataset, actual.dataset) && fits(expected.pipeline, actual.pipeline) &&
         fits(expected.decoder, actual.decoder);
}

}  // namespace

class Loader::Impl {
 public:
  Impl(internal::Request request, internal::Route route, std::function<void(std::string_view)> log)
      : request_(std::move(request)),
        route_(std::move(route)),
        log_(std::move(log)),
        sampling_(request_.sampling) {}

  Status OpenFirst() {
    Result<std::unique_ptr<Session>> session = OpenAsked(sampling_, position_, {});
    if (!session.ok()) return std::move(session).status();
    Use(*std::move(session));
    for (const std::string& warning : opened_.warnings) log_(warning);
    return Status();
  }

  Result<Batch> Next() {
    Result<internal::Taken> taken = WithSession([this](Session* session) { return Take(session); });
    if (!taken.ok()) return std::move(taken).status();
    stays_in_epoch_ = false;
    return internal::BatchParts::Make(taken->record, std::move(taken->slab), run_);
  }

  Status LoadState(std::string_view text, bool is_strict);
  Result<std::vector<Batch>> Peek(int count);

  Status SetEpoch(int64_t epoch) {
    BATCHD_CLIENT_RETURN_IF_ERROR(CheckUsable());
    if (epoch < 0 || epoch > kEpochMax) {
      return ArgumentError("epoch=", epoch, " is out of range; allowed is 0 to ", kEpochMax);
    }
    if (!stays_in_epoch_ || position_.epoch != epoch) position_ = {epoch, 0};
    return Status();
  }

  Result<std::vector<std::string>> Classes() {
    return WithSession([](Session* session) { return session->ClassNames(); });
  }
  Result<std::vector<std::string>> NamesOf(std::span<const int64_t> ordinals) {
    return WithSession([ordinals](Session* session) { return session->SampleNames(ordinals); });
  }

  void Close() {
    is_closed_ = true;
    session_.reset();
  }

  std::string State() const { return WriteState(run_->state, position_); }
  std::string ToString() const;
  const Position& position() const { return position_; }
  const internal::Opened& opened() const { return opened_; }
  Transport transport() const { return route_.transport; }
  int64_t reconnects() const { return reconnects_; }

 private:
  using OpenResult = Result<std::unique_ptr<Session>>;

  Status CheckUsable() const;
  OpenResult Connect(const internal::Sampling& sampling, Position start,
                     const Fingerprint& expected, int prefetch);
  // A session that the user has asked for: what is wrong is said at once. Only a private daemon
  // that was just about to end is given another chance.
  OpenResult OpenAsked(const internal::Sampling& sampling, Position start,
                       const Fingerprint& expected);
  Status Reconnect();
  void Use(std::unique_ptr<Session> session);
  Result<internal::Taken> Take(Session* session);
  // `call` with the session, again with a new one if the connection is lost meanwhile.
  template <typename Call>
  auto WithSession(Call call) -> decltype(call(nullptr));

  const internal::Request request_;
  const internal::Route route_;
  const std::function<void(std::string_view)> log_;
  const pid_t pid_ = getpid();
  internal::Sampling sampling_;  // as asked, or as a loaded state has it
  std::unique_ptr<Session> session_;
  internal::Opened opened_;
  std::shared_ptr<const internal::Run> run_;
  Position position_;            // of the next batch
  bool stays_in_epoch_ = false;  // the position was loaded: SetEpoch() of its epoch keeps it
  bool is_closed_ = false;
  int64_t reconnects_ = 0;
  std::minstd_rand jitter_{std::random_device()()};
};

Status Loader::Impl::CheckUsable() const {
  if (pid_ != getpid()) {
    return internal::MakeError(ErrorKind::kFork, StatusCode::kFailedPrecondition,
                               "this Loader was opened before a fork and cannot be used in the "
                               "child; open another one there");
  }
  if (is_closed_) {
    return internal::MakeError(ErrorKind::kOther, StatusCode::kFailedPrecondition,
                               "this Loader is closed; open another one");
  }
  return Status();
}

Loader::Impl::OpenResult Loader::Impl::Connect(const internal::Sampling& sampling, Position start,
                                               const Fingerprint& expected, int prefetch) {
  internal::Json message = request_.open;
  message["transport"] = route_.transport == Transport::kShm ? "TRANSPORT_SHM" : "TRANSPORT_GRPC";
  message["sampling"] = SamplingToJson(sampling, request_.bad_samples);
  message["start"] = start.ToJson();
  message["prefetch"] = prefetch;
  message["expected"] = expected.ToJson();
  Result<std::unique_ptr<internal::Carrier>> carrier = route_.Connect();
  if (!carrier.ok()) return std::move(carrier).status();
  return Session::Open(*std::move(carrier), message);
}

Loader::Impl::OpenResult Loader::Impl::OpenAsked(const internal::Sampling& sampling, Position start,
                                                 const Fingerprint& expected) {
  OpenResult session = Connect(sampling, start, expected, request_.prefetch);
  if (session.ok() || route_.private_socket.empty() || !IsConnectionGone(session.status()))
    return session;
  return Connect(sampling, start, expected, request_.prefetch);
}

void Loader::Impl::Use(std::unique_ptr<Session> session) {
  session_ = std::move(session);
  opened_ = session_->opened();
  run_ = std::make_shared<const internal::Run>(internal::Run{opened_.columns, opened_.run});
}

Result<internal::Taken> Loader::Impl::Take(Session* session) {
  if (session->next() != position_) BATCHD_CLIENT_RETURN_IF_ERROR(session->Seek(position_));
  Result<internal::Taken> taken = session->TakeNext();
  if (taken.ok()) position_ = *session->next();
  return taken;
}

template <typename Call>
auto Loader::Impl::WithSession(Call call) -> decltype(call(nullptr)) {
  BATCHD_CLIENT_RETURN_IF_ERROR(CheckUsable());
  for (;;) {
    if (session_ == nullptr) BATCHD_CLIENT_RETURN_IF_ERROR(Reconnect());
    const int64_t failures = session_->failures();
    auto result = call(session_.get());
    // A batch that cannot be made is the caller's matter: the session stays, halted until a seek.
    if (result.ok() || session_->failures() != failures) return result;
    if (IsSessionOver(result.status())) {
      session_.reset();  // it goes no further; the next call opens another
      return result;
    }
    if (!IsConnectionGone(result.status())) return result;
    session_.reset();
    log_(Cat("connection lost, looking for the daemon: ", result.status().message()));
    BATCHD_CLIENT_RETURN_IF_ERROR(Reconnect());
    ++reconnects_;
  }
}

Status Loader::Impl::Reconnect() {
  const std::chrono::duration<double> limit(request_.reconnect_timeout_seconds);
  const Clock::time_point started = Clock::now();
  std::chrono::duration<double> delay = kBackOffMin;
  for (;;) {
    OpenResult session = Connect(sampling_, position_, opened_.run.fingerprint, request_.prefetch);
    if (session.ok()) {
      Use(*std::move(session));
      log_(Cat("session opened again at ", position_.ToString()));
      return Status();
    }
    if (!IsWorthAnotherTry(session.status())) return std::move(session).status();
    if (Clock::now() - started + delay > limit) {
      return internal::ConnectionLost(
          "no daemon within reconnect_timeout_seconds=", limit.count(), "; the Loader stays at ",
          position_.ToString(), " and goes on when one is there: ", session.status().message());
    }
    // Not all trainers of a cluster at the same moment.
    std::this_thread::sleep_for(delay * std::uniform_real_distribution<>(0.5, 1.0)(jitter_));
    delay = std::min(2 * delay, kBackOffMax);
  }
}

Status Loader::Impl::LoadState(std::string_view text, bool is_strict) {
  BATCHD_CLIENT_RETURN_IF_ERROR(CheckUsable());
  const Result<internal::LoadedState> state = internal::ReadState(text);
  if (!state.ok()) return state.status();
  const internal::Sampling& sampling = state->run.sampling;
  if (request_.explicit_global_batch_size.value_or(sampling.global_batch_size) !=
      sampling.global_batch_size) {
    return internal::MakeError(
        ErrorKind::kStateMismatch, StatusCode::kFailedPrecondition,
        Cat("global_batch_size=", *request_.explicit_global_batch_size, " contradicts the state's ",
            sampling.global_batch_size, "; leave it out, or start a new run"),
        "global_batch_size");
  }
  Fingerprint expected = state->run.fingerprint;
  if (!is_strict) expected.pipeline = expected.decoder = "";
  if (sampling == opened_.run.sampling && Matches(expected, opened_.run.fingerprint)) {
    const Result<Position> position =
        internal::Normalized(state->position, opened_.steps_per_epoch);
    if (!position.ok()) return position.status();
    position_ = *position;
  } else {
    OpenResult session = OpenAsked(sampling, state->position, expected);
    if (!session.ok()) return std::move(session).status();
    const internal::RunState before = opened_.run;
    sampling_ = sampling;
    position_ = *(*session)->next();
    Use(*std::move(session));
    LogChanges(before, opened_.run, log_);
    log_(Cat("loaded state: rank ", request_.rank, " of ", request_.world_size, " has at most ",
             opened_.rows_max, " rows a batch"));
  }
  stays_in_epoch_ = true;
  return Status();
}

Result<std::vector<Batch>> Loader::Impl::Peek(int count) {
  BATCHD_CLIENT_RETURN_IF_ERROR(CheckUsable());
  if (count < 1 || count > kPeekMax) {
    return ArgumentError("count=", count, " is out of range; allowed is 1 to ", kPeekMax);
  }
  OpenResult session =
      Connect(sampling_, position_, opened_.run.fingerprint, std::min(count, request_.prefetch));
  if (!session.ok()) return std::move(session).status();
  std::vector<Batch> copies;
  for (int i = 0; i < count; ++i) {
    Result<internal::Taken> taken = (*session)->TakeNext();
    if (!taken.ok()) return std::move(taken).status();
    const Batch batch = internal::BatchParts::Make(taken->record, std::move(taken->slab), run_);
    Result<Batch> copy = batch.Copy();
    if (!copy.ok()) return std::move(copy).status();
    copies.push_back(*std::move(copy));
  }
  return copies;
}

std::string Loader::Impl::ToString() const {
  return Cat(
      "Loader(source=", opened_.source_name, ", samples=", opened_.num_samples,
      ", global_batch_size=", opened_.run.sampling.global_batch_size, ", rank=", request_.rank,
      ", world_size=", request_.world_size, ", at ", position_.ToString(),
      ", transport=", route_.transport == Transport::kShm ? "shm" : "grpc", " (", route_.why, "))");
}

Result<Loader> Loader::Open(LoaderOptions options) {
  Result<internal::Request> request = internal::MakeRequest(options);
  if (!request.ok()) return std::move(request).status();
  Result<internal::Route> route =
      internal::ChooseRoute(std::move(options.address), options.transport);
  if (!route.ok()) return std::move(route).status();
  auto impl = std::make_unique<Impl>(*std::move(request), *std::move(route),
                                     options.log != nullptr
                                         ? std::move(options.log)
                                         : std::function<void(std::string_view)>(LogToStderr));
  BATCHD_CLIENT_RETURN_IF_ERROR(impl->OpenFirst());
  return Loader(std::move(impl));
}

Loader::Loader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Loader::Loader(Loader&& other) noexcept = default;
Loader& Loader::operator=(Loader&& other) noexcept = default;
Loader::~Loader() = default;

Result<Batch> Loader::Next() { return impl_->Next(); }
std::string Loader::State() const { return impl_->State(); }
Status Loader::LoadState(std::string_view state, bool strict) {
  return impl_->LoadState(state, strict);
}
int64_t Loader::epoch() const { return impl_->position().epoch; }
Status Loader::SetEpoch(int64_t epoch) { return impl_->SetEpoch(epoch); }
Result<std::vector<Batch>> Loader::Peek(int count) { return impl_->Peek(count); }
Result<std::vector<std::string>> Loader::Classes() { return impl_->Classes(); }
Result<std::vector<std::string>> Loader::NamesOf(std::span<const int64_t> ordinals) {
  return impl_->NamesOf(ordinals);
}
int64_t Loader::num_samples() const { return impl_->opened().num_samples; }
int64_t Loader::steps_per_epoch() const { return impl_->opened().steps_per_epoch; }
const std::vector<ColumnSpec>& Loader::columns() const { return impl_->opened().columns; }
Transport Loader::transport() const { return impl_->transport(); }
int64_t Loader::reconnects() const { return impl_->reconnects(); }
std::string Loader::ToString() const { return impl_->ToString(); }
void Loader::Close() { impl_->Close(); }

}  // namespace batchd
