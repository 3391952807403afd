// SPDX-License-Identifier: Apache-2.0
#include "client/src/private_daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "client/src/util.h"
#include "proto/shm/wire.h"

extern char** environ;

namespace batchd::internal {
namespace {

namespace fs = std::filesystem;

constexpr auto kStartLimit = std::chrono::seconds(30);
constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr std::streamoff kLogTailBytes = 2000;

// A file descriptor that is closed with it.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status OtherError(StatusCode code, std::string message) {
  return MakeError(ErrorKind::kOther, code, std::move(message));
}

// In /tmp another user may have been first, so each folder is looked at.
Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return OtherError(StatusCode::kUnknown, Cat("the private daemon's folder ", path,
                                                " cannot be made: ", ErrnoText(errno),
                                                "; set XDG_RUNTIME_DIR to a folder of yours"));
  }
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != getuid() ||
      (info.st_mode & 077) != 0) {
    return OtherError(StatusCode::kPermissionDenied,
                      Cat(path, " is not a folder of user ", getuid(),
                          " alone (mode 0700); remove it, or set XDG_RUNTIME_DIR to a folder of "
                          "yours"));
  }
  return Status();
}

std::string Base() {
  const std::string base = Environment("XDG_RUNTIME_DIR");
  return base.empty() ? Cat("/tmp/batchd-", getuid()) : base;
}

// Makes `folder` and its parents below the base; the base too where it is no system's.
Status MakeFolders(const std::string& folder) {
  fs::path path = Base();
  if (Environment("XDG_RUNTIME_DIR").empty()) {
    BATCHD_CLIENT_RETURN_IF_ERROR(MakeFolder(path.string()));
  }
  for (const fs::path& name : fs::path(folder).lexically_relative(path)) {
    path /= name;
    BATCHD_CLIENT_RETURN_IF_ERROR(MakeFolder(path.string()));
  }
  return Status();
}

bool Listens(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;  // connecting will say so
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

bool IsProgram(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

Result<std::string> FindProgram() {
  const std::string given = Environment("BATCHD_BINARY");
  if (!given.empty()) {
    if (IsProgram(given)) return fs::absolute(given).string();
    return OtherError(StatusCode::kNotFound,
                      Cat("BATCHD_BINARY=", given, " is no program that can be run"));
  }
  std::istringstream folders(Environment("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = Cat(folder.empty() ? "." : folder, "/batchd");
    if (IsProgram(candidate)) return fs::absolute(candidate).string();
  }
  return OtherError(StatusCode::kNotFound,
                    "no program `batchd` to start: put it on PATH, name it in BATCHD_BINARY, or "
                    "give the address of a running daemon (address, BATCHD_ADDRESS)");
}

// Runs `program` behind a shell that goes at once: the daemon is init's child, so nobody here has
// to wait for it. A process session of its own keeps this terminal's Ctrl-C from it. The daemon's
// pid, or 0.
pid_t Spawn(const std::string& program, const std::string& socket_path, const Fd& log) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return 0;
  const Fd read_end(ends[0]);
  pid_t shell = 0;
  int error = 0;
  {
    const Fd write_end(ends[1]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, write_end.get(), 1);
    posix_spawn_file_actions_adddup2(&files, log.get(), 2);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigset_t usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD}) sigaddset(&usual, signal);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::string words[] = {
        "sh",        "-c",       "cd /; \"$@\" >&2 & echo $!", "sh",     program,      "serve",
        "--private", "--listen", "unix:" + socket_path,        "--http", "127.0.0.1:0"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    error = posix_spawn(&shell, "/bin/sh", &files, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  if (error != 0) return 0;
  std::string text;
  char buffer[32];
  for (ssize_t size;
       (size = read(read_end.get(), buffer, sizeof(buffer))) > 0 || (size < 0 && errno == EINTR);) {
    if (size > 0) text.append(buffer, static_cast<size_t>(size));
  }
  while (waitpid(shell, nullptr, 0) < 0 && errno == EINTR) {
  }
  return static_cast<pid_t>(std::atoi(text.c_str()));
}

bool Lives(pid_t pid) {
  const Fd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (fd.get() < 0) return errno != ESRCH;  // a kernel without pidfds: the time limit has to do
  pollfd ended = {fd.get(), POLLIN, 0};
  return poll(&ended, 1, 0) <= 0;
}

std::string TailOf(const std::string& log_path) {
  std::ifstream log(log_path, std::ios::binary | std::ios::ate);
  if (!log) return "(it cannot be read)";
  const std::streamoff size = log.tellg();
  log.seekg(std::max<std::streamoff>(0, size - kLogTailBytes));
  std::string text((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "(it is empty)" : text;
}

Status Start(const std::string& socket_path, const std::string& log_path) {
  const Result<std::string> program = FindProgram();
  if (!program.ok()) return program.status();
  const Fd log(open(log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const pid_t pid = Spawn(*program, socket_path, log);
  const auto deadline = std::chrono::steady_clock::now() + kStartLimit;
  while (!Listens(socket_path)) {
    const bool has_ended = pid <= 0 || !Lives(pid);
    if (has_ended && Listens(socket_path)) break;
    if (has_ended || std::chrono::steady_clock::now() > deadline) {
      return Unavailable("the private daemon `", *program,
                         " serve --private --listen unix:", socket_path, "` ",
                         has_ended ? "has ended" : "does not listen after 30 s", "; its log ",
                         log_path, " ends with:\n", TailOf(log_path));
    }
    std::this_thread::sleep_for(kPollInterval);
  }
  return Status();
}

}  // namespace

std::string PrivateSocketPath() {
  std::string job = Environment("SLURM_JOB_ID");
  if (job.empty()) job = "local";
  for (char& c : job) {
    const bool is_plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
    if (!is_plain) c = '_';
  }
  return Cat(Base(), "/batchd/", wire::kProtocolVersion, "/", job, "/sock");
}

Status EnsurePrivateDaemon(const std::string& socket_path) {
  if (Listens(socket_path)) return Status();
  const std::string folder = fs::path(socket_path).parent_path().string();
  BATCHD_CLIENT_RETURN_IF_ERROR(MakeFolders(folder));
  const Fd lock(open((folder + "/start.lock").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  // Others wait here, and find the daemon running.
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  if (Listens(socket_path)) return Status();
  return Start(socket_path, folder + "/log");
}

}  // namespace batchd::internal
