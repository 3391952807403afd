// SPDX-License-Identifier: Apache-2.0
#include "server/decoder/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string_view>

#include "server/base/log.h"
#include "server/base/status.h"

namespace batchd {
namespace {

constexpr int64_t kPageBytes = 4096;

absl::Status Failed(std::string_view call, int error_number) {
  return Err(absl::StatusCode::kUnavailable, "a decode worker cannot be started: {}",
             ErrnoText(call, error_number));
}

// Sealed, so that nobody's mapping ends early; sparse, so that only what is used is there.
absl::StatusOr<UniqueFd> MakeMemory(int64_t size_bytes) {
  UniqueFd memory(memfd_create("batchd-decode", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.is_open()) return Failed("memfd_create", errno);
  if (ftruncate(memory.get(), size_bytes) != 0) return Failed("ftruncate", errno);
  if (fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failed("fcntl(F_ADD_SEALS)", errno);
  }
  return memory;
}

// What a worker may know of the daemon's environment, which can hold secrets: where libraries are,
// and how sanitizers report.
std::vector<char*> WorkerEnvironment() {
  constexpr std::string_view kKept[] = {
      "LD_LIBRARY_PATH=", "ASAN_OPTIONS=", "UBSAN_OPTIONS=", "TSAN_OPTIONS=", "LSAN_OPTIONS="};
  std::vector<char*> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    for (const std::string_view name : kKept) {
      if (std::string_view(*entry).starts_with(name)) kept.push_back(*entry);
    }
  }
  kept.push_back(nullptr);
  return kept;
}

// What posix_spawn is to do in the child: the socket as standard input, the memory as standard
// output, and nothing else of ours but standard error.
class SpawnSettings {
 public:
  SpawnSettings(int socket, int memory) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_adddup2(&files_, socket, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files_, memory, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);

    // What is sent to the daemon's process group or control group to end it is not for the worker,
    // which is needed until the last row: only its own faults end it, and the daemon.
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS, SIGTRAP}) {
      sigdelset(&blocked, fault);
    }
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  const posix_spawn_file_actions_t* files() const { return &files_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Start(
    const std::vector<std::string>& command, int64_t encoded_bytes_max, Duration silence) {
  auto worker = std::unique_ptr<WorkerProcess>(new WorkerProcess);
  // The sockets first: where a daemon has no standard streams, theirs are the lowest numbers, and
  // the memory's is not overwritten on the way.
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return Failed("socketpair", errno);
  }
  worker->socket_ = UniqueFd(pair[0]);
  const UniqueFd theirs(pair[1]);
  worker->silence_ = silence;
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(silence).count();
  const timeval timeout = {microseconds / 1'000'000, microseconds % 1'000'000};
  setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));

  worker->memory_size_bytes_ =
      (encoded_bytes_max + kRowsSizeBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  BATCHD_ASSIGN_OR_RETURN(const UniqueFd memory, MakeMemory(worker->memory_size_bytes_));
  void* const data = mmap(nullptr, static_cast<size_t>(worker->memory_size_bytes_),
                          PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (data == MAP_FAILED) return Failed("mmap", errno);
  worker->memory_ = static_cast<uint8_t*>(data);

  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const SpawnSettings settings(theirs.get(), memory.get());
  const int error =
      posix_spawn(&worker->pid_, command[0].c_str(), settings.files(), settings.attributes(),
                  arguments.data(), WorkerEnvironment().data());
  if (error != 0) {
    worker->pid_ = -1;
    return Failed("posix_spawn " + command[0], error);
  }
  return worker;
}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) End();
  if (memory_ != nullptr) munmap(memory_, static_cast<size_t>(memory_size_bytes_));
}

void WorkerProcess::ReleaseEncoded(int64_t kept_bytes, int64_t used_bytes) {
  if (used_bytes <= kept_bytes) return;
  madvise(memory_ + kept_bytes, static_cast<size_t>(used_bytes - kept_bytes), MADV_REMOVE);
}

bool WorkerProcess::Send(const WorkerRequest& request) {
  // One request is under way at most, so there is always room.
  ssize_t sent;
  do {
    sent = send(socket_.get(), &request, sizeof(request), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == sizeof(request);
}

WorkerProcess::Received WorkerProcess::Receive(WorkerAnswer* answer) {
  for (int silences = 0; silences < kSilencesMax;) {
    const ssize_t received = recv(socket_.get(), answer, sizeof(*answer), MSG_TRUNC);
    if (received == 0 && IsClosed()) return Received::kEnd;
    if (received >= 0) {
      return IsWhole(*answer, static_cast<size_t>(received)) ? Received::kAnswer : Received::kWrong;
    }
    if (errno == EAGAIN) {
      if (++silences > 1) continue;
      log::Warn("decode worker is silent", {{"pid", pid_}, {"seconds", ToSeconds(silence_)}});
    } else if (errno != EINTR) {
      return Received::kEnd;
    }
  }
  return Received::kSilence;
}

// Or whether an empty message came, which reads the same.
bool WorkerProcess::IsClosed() const {
  pollfd state = {socket_.get(), 0, 0};
  return poll(&state, 1, 0) > 0 && (state.revents & POLLHUP) != 0;
}

int WorkerProcess::End() {
  // One that is ending by a fault of its own keeps that as its status.
  kill(pid_, SIGKILL);
  int status = -1;
  pid_t ended;
  do {
    ended = waitpid(pid_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  pid_ = -1;
  return ended < 0 ? -1 : status;
}

}  // namespace batchd
