// SPDX-License-Identifier: Apache-2.0
#include "server/daemon/serve.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>

#include "absl/strings/str_join.h"
#include "server/api/grpc_door.h"
#include "server/api/socket_door.h"
#include "server/base/descriptors.h"
#include "server/base/log.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/host_limits.h"
#include "server/daemon/probes.h"
#include "server/daemon/service_manager.h"

namespace batchd {
namespace {

// What allocates does so in a few threads and seldom; an arena for each core would only hold
// memory.
constexpr int kArenasMax = 4;
constexpr int kNice = 10;
constexpr char kGrpcSuffix[] = ".grpc";
constexpr size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr double kFirstClientSeconds = 10;
// Reserved besides one for each thread that reads and what the probes' connections take: listings,
// pidfds of connections, and those that hear that there is no descriptor for them.
constexpr int kFurtherFiles = 8;
// For a decode worker that is being started, besides its socket.
constexpr int kFilesOfAStart = 2;
// Two sessions, of which one with memory for more batches.
constexpr int kFilesForClients = 8;
constexpr Duration kBeatInterval = std::chrono::seconds(1);
constexpr Duration kStreamsGrace = std::chrono::seconds(2);
// A read of dead storage may never come back; nothing is lost by leaving it.
constexpr Duration kRowsGrace = std::chrono::seconds(10);

// Niceness counts only within a process session, where the kernel groups tasks by session: so the
// session that is the daemon's own goes down as a whole. Where there is no such file, nothing does.
void LowerOwnSession(const ServeConfig& config) {
  if (!config.is_private && getsid(0) != getpid()) return;
  if (FILE* file = fopen("/proc/self/autogroup", "w"); file != nullptr) {
    fprintf(file, "%d", kNice);
    fclose(file);
  }
}

void PrepareProcess() {
  mallopt(M_ARENA_MAX, kArenasMax);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_DFL);  // who started the daemon may have left it ignored
  // Connections, segments and files in flight all take descriptors.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
      return kExitOtherDaemon;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kInternal:
      return kExitInternal;
    default:
      return kExitUnavailable;
  }
}

// A private daemon runs on its clients' cores, which may be few without anybody having meant that.
std::vector<std::string> Warnings(const ServeConfig& config, const HostLimits& host, int threads) {
  if (!config.is_private || threads >= host.machine_cpus) return {};
  return {fmt::format(
      "the private daemon may use {} of this machine's {} cores; for all of them start one daemon "
      "for the machine, `batchd serve --listen unix:/run/batchd/sock --root DIR`, and set "
      "BATCHD_ADDRESS=unix:/run/batchd/sock",
      threads, host.machine_cpus)};
}

class Daemon {
 public:
  explicit Daemon(const ServeConfig& config) : config_(config), probes_(&metrics_, Clock::Real()) {}

  // Sets everything up; nothing runs yet but gRPC's and the HTTP door's threads.
  absl::Status Start();
  // Serves until the drain has ended.
  void Run();
  // After a Start that failed.
  void RemoveSockets() { sockets_.clear(); }

 private:
  absl::Status MakeManager();
  absl::Status OpenDoors();
  absl::Status OpenSocket(const std::string& path);
  void WatchSignals();
  void LogReady();
  void Beat();
  void OnClientsChanged();
  void Drain(const char* why);
  void Finish();
  void StopWithoutSessions();

  const ServeConfig config_;
  const std::optional<Duration> watchdog_ = WatchdogTimeout();
  std::map<std::string, UniqueFd> passed_;  // until a door has taken them
  Metrics metrics_;
  Probes probes_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<DecodeIsolation> isolation_;
  std::unique_ptr<SessionManager> manager_;
  std::unique_ptr<GrpcDoor> grpc_;
  std::unique_ptr<HttpServer> http_;
  int threads_ = 1;
  int reader_threads_ = 0;

  // Loop thread only, once it runs.
  std::vector<std::unique_ptr<SocketDoor>> sockets_;
  std::vector<std::unique_ptr<EventLoop::Watch>> signals_;
  std::unique_ptr<EventLoop::Timer> beat_;
  std::unique_ptr<EventLoop::Timer> linger_;
  std::unique_ptr<EventLoop::Timer> stuck_;
  bool draining_ = false;
  bool had_client_ = false;

  Mutex mu_;
  CondVar changed_;
  bool drained_ ABSL_GUARDED_BY(mu_) = false;
};

absl::Status Daemon::MakeManager() {
  const HostLimits host = ReadHostLimits();
  threads_ = config_.cpus > 0 ? config_.cpus : host.allowed_cpus();
  BATCHD_ASSIGN_OR_RETURN(const int64_t memory_bytes, ChooseMemory(host, config_.memory_bytes));
  const MemorySplit split = SplitMemory(memory_bytes);
  log::Info("budget", {{"cpu_threads", threads_},
                       {"machine_cpus", host.machine_cpus},
                       {"memory_bytes", memory_bytes},
                       {"slab_bytes", split.slab_bytes},
                       {"scratch_bytes", split.scratch_bytes},
                       {"encoded_bytes", split.encoded_bytes},
                       {"cgroup", host.cgroup_version},
                       {"cgroup_limit_bytes", host.cgroup_limit_bytes},
                       {"memory_total_bytes", host.memory_total_bytes}});
  ManagerOptions options;
  options.cpu_threads = threads_;
  reader_threads_ = options.reader_threads;
  options.slab_budget_bytes = split.slab_bytes;
  options.encoded_budget_bytes = split.encoded_bytes;
  options.scratch_budget_bytes = split.scratch_bytes;
  if (config_.isolates_decoding) {
    const DecodeIsolationOptions isolation = IsolationOptions(split);
    isolation_ = std::make_unique<DecodeIsolation>(isolation, &metrics_);
    BATCHD_RETURN_IF_ERROR(isolation_->Check());
    options.isolation = isolation_.get();
    options.encoded_budget_bytes = isolation.encoded_bytes_max;
  }
  options.datasets.state_dir = config_.state_dir;
  options.datasets.roots = config_.roots;
  options.datasets.any_root = config_.is_private;
  options.named_datasets = config_.datasets;
  options.nice = kNice;
  options.warnings = Warnings(config_, host, threads_);
  for (const std::string& warning : options.warnings) log::Warn("few cores", {{"text", warning}});
  manager_ = SessionManager::Create(options, loop_.get(), &metrics_);
  Set(metrics_.cpu_threads, threads_);
  return absl::OkStatus();
}

absl::Status Daemon::OpenSocket(const std::string& path) {
  if (path.size() + std::string_view(kGrpcSuffix).size() > kSocketPathBytesMax) {
    return Err(absl::StatusCode::kInvalidArgument,
               "--listen unix:{}: the path has {} bytes, and with {} for gRPC a socket's may have "
               "{}; choose a shorter one",
               path, path.size(), kGrpcSuffix, kSocketPathBytesMax);
  }
  SocketDoorOptions options;
  options.path = path;
  options.same_user_only = config_.is_private;
  auto passed = passed_.extract(path);
  BATCHD_ASSIGN_OR_RETURN(auto door,
                          SocketDoor::Listen(options, loop_.get(), manager_.get(),
                                             passed ? std::move(passed.mapped()) : UniqueFd()));
  door->SetConnectionCountListener([this](int) { OnClientsChanged(); });
  sockets_.push_back(std::move(door));
  return absl::OkStatus();
}

absl::Status Daemon::OpenDoors() {
  GrpcDoorOptions grpc{config_.tcp, threads_};
  // The sockets first: their locks say whether another daemon is there.
  for (const std::string& path : config_.sockets) {
    BATCHD_RETURN_IF_ERROR(OpenSocket(path));
    // gRPC 1.51 makes its sockets itself.
    grpc.addresses.push_back("unix:" + path + kGrpcSuffix);
  }
  if (!passed_.empty()) {
    return Err(absl::StatusCode::kInvalidArgument,
               "the service manager has passed a socket at {0}, where nothing is to listen; add "
               "--listen unix:{0}, or change the .socket unit",
               passed_.begin()->first);
  }
  BATCHD_ASSIGN_OR_RETURN(http_, HttpServer::Start(config_.http, probes_.Routes()));
  // Last, since only a whole start takes its sockets away again.
  BATCHD_ASSIGN_OR_RETURN(grpc_, GrpcDoor::Start(grpc, loop_.get(), manager_.get()));
  for (const std::string& path : config_.sockets) {
    // As the data socket: gRPC makes it by the umask.
    if (chmod((path + kGrpcSuffix).c_str(), config_.is_private ? 0600 : 0660) != 0) {
      return absl::UnavailableError(ErrnoText("chmod " + path + kGrpcSuffix, errno));
    }
  }
  return absl::OkStatus();
}

absl::Status Daemon::Start() {
  // Before anything else has descriptors.
  BATCHD_ASSIGN_OR_RETURN(passed_, TakePassedSockets());
  BATCHD_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
  BATCHD_RETURN_IF_ERROR(MakeManager());
  BATCHD_RETURN_IF_ERROR(OpenDoors());
  const int worker_files = isolation_ == nullptr ? 0 : threads_ + kFilesOfAStart;
  BATCHD_RETURN_IF_ERROR(ReserveDescriptors(
      threads_ + reader_threads_ + worker_files + kHttpConnectionsMax + kFurtherFiles,
      kFilesForClients));
  WatchSignals();
  manager_->SetSessionCountListener([this](int) { OnClientsChanged(); });
  OnClientsChanged();
  Beat();
  return absl::OkStatus();
}

void Daemon::WatchSignals() {
  for (const int number : {SIGTERM, SIGINT}) {
    signals_.push_back(loop_->WatchSignal(number, [this, number] {
      if (draining_) {
        log::Warn("second signal, ending at once", {{"signal", number}});
        for (const auto& door : sockets_) {
          door->RemoveSocket();
          unlink((door->path() + kGrpcSuffix).c_str());
        }
        _exit(128 + number);
      }
      Drain(number == SIGTERM ? "SIGTERM" : "SIGINT");
    }));
  }
}

void Daemon::Beat() {
  probes_.Beat();
  probes_.SetSessions(manager_->Sessions());
  if (watchdog_.has_value()) NotifyServiceManager("WATCHDOG=1");
  // Twice in the watchdog's time, as sd_watchdog_enabled(3) asks for.
  const Duration interval =
      watchdog_.has_value() ? std::min(kBeatInterval, *watchdog_ / 2) : kBeatInterval;
  beat_ = loop_->After(interval, [this] { Beat(); });
}

void Daemon::OnClientsChanged() {
  if (!config_.is_private || draining_) return;
  int client_count = manager_->session_count();
  for (const auto& door : sockets_) client_count += door->connection_count();
  if (client_count > 0) {
    had_client_ = true;
    linger_.reset();
  } else if (linger_ == nullptr) {
    // Before the first client there is one that has started this daemon and is on its way.
    const auto wait = std::chrono::duration<double>(
        had_client_ ? config_.private_linger_seconds
                    : std::max(config_.private_linger_seconds, kFirstClientSeconds));
    linger_ = loop_->After(std::chrono::duration_cast<Duration>(wait),
                           [this] { Drain("the last client is gone"); });
  }
}

void Daemon::LogReady() {
  log::Info("ready", {{"pid", getpid()},
                      {"version", BATCHD_VERSION},
                      {"sockets", absl::StrJoin(config_.sockets, ",")},
                      {"grpc", absl::StrJoin(grpc_->addresses(), ",")},
                      {"http", http_->address()}});
}

void Daemon::Drain(const char* why) {
  draining_ = true;
  log::Info("draining", {{"why", why}, {"timeout_seconds", config_.drain_timeout_seconds}});
  probes_.SetReady(false);
  Set(metrics_.ready, 0);
  grpc_->SetServing(false);
  NotifyServiceManager("STOPPING=1");
  const auto timeout = std::chrono::duration<double>(config_.drain_timeout_seconds);
  manager_->Drain(std::chrono::duration_cast<Duration>(timeout), [this] {
    MutexLock lock(&mu_);
    drained_ = true;
    changed_.NotifyOne();
  });
}

void Daemon::Run() {
  // Before the loop runs: a signal that waits there takes all of this back.
  grpc_->SetServing(true);
  probes_.SetReady(true);
  Set(metrics_.ready, 1);
  LogReady();
  NotifyServiceManager("READY=1");
  std::thread loop_thread([this] { loop_->Run(); });
  {
    MutexLock lock(&mu_);
    while (!drained_) changed_.Wait(&mu_);
  }
  Finish();
  loop_thread.join();
  grpc_.reset();
  manager_.reset();
  loop_.reset();
  log::Info("ended");
}

void Daemon::Finish() {
  grpc_->Shutdown(kStreamsGrace);
  loop_->Post([this] {
    sockets_.clear();
    linger_.reset();
    // The rows in the making end on the loop, and the sessions with them.
    manager_->SetSessionCountListener([this](int) { StopWithoutSessions(); });
    stuck_ = loop_->After(kRowsGrace, [] {
      log::Warn("rows in the making do not end, leaving them");
      _exit(kExitOk);
    });
    StopWithoutSessions();
  });
}

void Daemon::StopWithoutSessions() {
  if (manager_->session_count() > 0) return;
  signals_.clear();
  beat_.reset();
  stuck_.reset();
  loop_->Stop();
}

}  // namespace

int Serve(const ServeConfig& config) {
  log::SetFormat(config.json_log ? log::Format::kJson : log::Format::kText);
  PrepareProcess();
  LowerOwnSession(config);
  // Never deleted: the HTTP door answers with it to the very end of the process, and its library
  // needs up to two seconds to stop and closes its listening descriptor twice.
  static Daemon* daemon = nullptr;
  daemon = new Daemon(config);
  const absl::Status status = daemon->Start();
  if (!status.ok()) {
    log::Error("cannot start", {{"error", std::string(status.message())}});
    daemon->RemoveSockets();
    // Not through the destructors: gRPC's threads may run already, and the loop they need does not.
    _exit(ExitCodeOf(status));
  }
  daemon->Run();
  return kExitOk;
}

}  // namespace batchd
