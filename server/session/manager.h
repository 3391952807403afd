// SPDX-License-Identifier: Apache-2.0
//
// The sessions of a daemon: opening them (on the control thread), feeding them client events, and
// ending them. Both doors drive this one interface.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/schema.h"
#include "server/dataset/dataset.h"
#include "server/io/event_loop.h"
#include "server/memory/budget.h"
#include "server/metrics/metrics.h"
#include "server/pipeline/plan.h"
#include "server/sampling/sampler.h"
#include "server/session/output.h"

namespace batchd {

enum class TransportKind { kShm, kGrpc };

inline constexpr int kPrefetchMax = 256;
inline constexpr int kSessionsMax = 1024;

// See the message Open for units and meaning. Values are as the client sent them: Open checks them.
struct OpenRequest {
  std::string dataset_name;
  Json dataset_arguments;
  PipelineSpec pipeline;
  uint64_t seed = 0;
  Shuffle shuffle = Shuffle::kNone;
  int64_t global_batch_size = 0;
  std::optional<LastBatch> last_batch;  // none: drop when shuffled, else partial
  OnBadSample on_bad_sample = OnBadSample::kFail;
  int64_t max_bad_count = -1;   // -1: not set
  double max_bad_share = -1.0;  // -1: not set
  int64_t rank = 0;
  int64_t world_size = 1;
  Position start;
  int64_t prefetch = 4;
  TransportKind transport = TransportKind::kShm;
  std::string job;
  Fingerprints expected;  // empty fields are not compared
  std::string client_version;
  // Makes this one batch and no more (GetBatch).
  bool single = false;
};

struct SessionStatusInfo {
  int64_t session_id = 0;
  std::string job;
  int32_t rank = 0;
  int32_t world_size = 1;
  TransportKind transport = TransportKind::kShm;
  Position next;
  int filling_slots = 0;
  int ready_slots = 0;
  int leased_slots = 0;
  int64_t batches_taken = 0;
  double ready_share = 0;
  std::string source_name;
};

struct ManagerOptions {
  int cpu_threads = 1;
  int reader_threads = 8;
  int64_t slab_budget_bytes = 0;
  int64_t encoded_budget_bytes = 0;
  int64_t scratch_budget_bytes = 0;
  DatasetContext datasets;
  // Datasets that the configuration names: name → kind and arguments.
  std::vector<std::pair<std::string, OperationSpec>> named_datasets;
  // Niceness of the CPU threads; 0 leaves the scheduler alone (tests).
  int nice = 10;
  // If not null, pictures are decoded in processes; outlives the manager.
  DecodeIsolation* isolation = nullptr;
  // Said to every client when it opens.
  std::vector<std::string> warnings;
};

using SessionId = int64_t;

// All calls on the event loop, but for the constructor and destructor. The loop, metrics and
// outputs outlive the manager's use of them; an output is not called after Close(id) has returned
// or after its OnError.
class SessionManager {
 public:
  static std::unique_ptr<SessionManager> Create(const ManagerOptions& options, EventLoop* loop,
                                                Metrics* metrics);
  virtual ~SessionManager() = default;

  // Begins to open a session; ends in output->OnOpened (then OnSegment, then batches) or OnError.
  virtual SessionId Open(OpenRequest request, SessionOutput* output) = 0;

  // What the session would be; `done` is called on the loop. Errors: as those of Open.
  virtual void Describe(OpenRequest request,
                        std::function<void(absl::StatusOr<OpenedInfo>)> done) = 0;

  // Client events. Unknown ids are ignored (the session has just ended). A take or release that
  // does not fit what the slot holds, or a generation that does not grow, ends the session with
  // OnError.
  virtual void Take(SessionId id, const SlotRef& ref, Duration waited, bool was_ready) = 0;
  virtual void Release(SessionId id, const SlotRef& ref) = 0;
  virtual void Seek(SessionId id, uint32_t generation, const Position& position) = 0;

  // Answers; errors: NOT_FOUND (no such session), INVALID_ARGUMENT (an ordinal out of range).
  virtual absl::StatusOr<std::vector<std::string>> SampleNames(
      SessionId id, const std::vector<int64_t>& ordinals) = 0;
  virtual absl::StatusOr<std::vector<std::string>> ClassNames(SessionId id, int64_t first,
                                                              size_t bytes_max) = 0;

  // The client is gone or has said so. Its memory goes when the last row in the making is done.
  virtual void Close(SessionId id) = 0;

  // Takes no new sessions, plans nothing new and tells every client. `drained` is called when no
  // client has batches before it that it has not taken, or after `timeout`. What has been taken
  // stays valid without the daemon.
  virtual void Drain(Duration timeout, std::function<void()> drained) = 0;
  virtual bool draining() const = 0;

  virtual std::vector<SessionStatusInfo> Sessions() const = 0;
  virtual int session_count() const = 0;
  virtual const Budget& slab_budget() const = 0;

  // Called on the loop whenever the number of sessions has changed.
  virtual void SetSessionCountListener(std::function<void(int)> fn) = 0;
};

}  // namespace batchd
