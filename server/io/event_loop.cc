// SPDX-License-Identifier: Apache-2.0
#include "server/io/event_loop.h"

#include <uv.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/check.h"
#include "server/base/status.h"
#include "server/base/sync.h"

namespace batchd {
namespace {

// libuv frees a handle's memory only after its close callback, so the handle lives apart from the
// object that the caller owns. `fn` outlives a callback that destroys its own owner.
template <typename Handle, typename Fn>
struct Owned {
  Handle handle;
  std::shared_ptr<Fn> fn;

  static void Close(Owned* owned) {
    owned->fn.reset();
    uv_close(reinterpret_cast<uv_handle_t*>(&owned->handle),
             [](uv_handle_t* h) { delete static_cast<Owned*>(h->data); });
  }
};

using OwnedTimer = Owned<uv_timer_t, std::function<void()>>;
using OwnedPoll = Owned<uv_poll_t, std::function<void(bool, bool)>>;
using OwnedSignal = Owned<uv_signal_t, std::function<void()>>;

class UvTimer : public EventLoop::Timer {
 public:
  UvTimer(uv_loop_t* loop, Duration delay, std::function<void()> fn)
      : owned_(new OwnedTimer{{}, std::make_shared<std::function<void()>>(std::move(fn))}) {
    BATCHD_CHECK(uv_timer_init(loop, &owned_->handle) == 0);
    owned_->handle.data = owned_;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(delay).count();
    uv_update_time(loop);  // libuv counts from its cached time, which a long callback makes old
    uv_timer_start(
        &owned_->handle,
        [](uv_timer_t* timer) {
          const auto fn = static_cast<OwnedTimer*>(timer->data)->fn;
          if (fn != nullptr) (*fn)();
        },
        ms > 0 ? static_cast<uint64_t>(ms) : 0, 0);
  }
  ~UvTimer() override { OwnedTimer::Close(owned_); }

 private:
  OwnedTimer* owned_;
};

class UvFdWatch : public EventLoop::Watch {
 public:
  UvFdWatch(uv_loop_t* loop, int fd, std::function<void(bool, bool)> fn)
      : owned_(
            new OwnedPoll{{}, std::make_shared<std::function<void(bool, bool)>>(std::move(fn))}) {
    BATCHD_CHECK(uv_poll_init(loop, &owned_->handle, fd) == 0);
    owned_->handle.data = owned_;
  }
  ~UvFdWatch() override { OwnedPoll::Close(owned_); }

  void SetWanted(bool readable, bool writable) override {
    const int events = (readable ? UV_READABLE | UV_DISCONNECT : 0) | (writable ? UV_WRITABLE : 0);
    if (events == 0) {
      uv_poll_stop(&owned_->handle);
      return;
    }
    uv_poll_start(&owned_->handle, events, [](uv_poll_t* poll, int status, int events) {
      const auto fn = static_cast<OwnedPoll*>(poll->data)->fn;
      if (fn == nullptr) return;
      // An error is for the read or write to find.
      const bool failed = status < 0;
      (*fn)(failed || (events & (UV_READABLE | UV_DISCONNECT)) != 0,
            failed || (events & UV_WRITABLE) != 0);
    });
  }

 private:
  OwnedPoll* owned_;
};

class UvSignalWatch : public EventLoop::Watch {
 public:
  UvSignalWatch(uv_loop_t* loop, int signal_number, std::function<void()> fn)
      : owned_(new OwnedSignal{{}, std::make_shared<std::function<void()>>(std::move(fn))}),
        signal_number_(signal_number) {
    BATCHD_CHECK(uv_signal_init(loop, &owned_->handle) == 0);
    owned_->handle.data = owned_;
    SetWanted(true, false);
  }
  ~UvSignalWatch() override { OwnedSignal::Close(owned_); }

  void SetWanted(bool readable, bool /*writable*/) override {
    if (!readable) {
      uv_signal_stop(&owned_->handle);
      return;
    }
    uv_signal_start(
        &owned_->handle,
        [](uv_signal_t* handle, int) {
          const auto fn = static_cast<OwnedSignal*>(handle->data)->fn;
          if (fn != nullptr) (*fn)();
        },
        signal_number_);
  }

 private:
  OwnedSignal* owned_;
  const int signal_number_;
};

class UvEventLoop : public EventLoop {
 public:
  absl::Status Init() {
    if (const int error = uv_loop_init(&loop_); error != 0) return Failed("uv_loop_init", error);
    initialised_ = true;
    const int error = uv_async_init(&loop_, &wake_, [](uv_async_t* wake) {
      static_cast<UvEventLoop*>(wake->data)->RunPosted();
    });
    if (error != 0) return Failed("uv_async_init", error);
    wake_.data = this;
    has_wake_ = true;
    return absl::OkStatus();
  }

  ~UvEventLoop() override {
    if (!initialised_) return;
    {
      std::vector<std::function<void()>> dropped;
      MutexLock lock(&mu_);
      dropped.swap(posted_);
    }
    if (has_wake_) uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
    uv_run(&loop_, UV_RUN_DEFAULT);            // runs the close callbacks
    BATCHD_CHECK(uv_loop_close(&loop_) == 0);  // a Timer or Watch outlives the loop otherwise
  }

  void Post(std::function<void()> fn) override {
    bool first;
    {
      MutexLock lock(&mu_);
      first = posted_.empty();
      posted_.push_back(std::move(fn));
    }
    if (first) uv_async_send(&wake_);  // one wake-up for all that is posted before it runs
  }

  void Run() override {
    thread_.store(std::this_thread::get_id());
    while (!stop_.load()) uv_run(&loop_, UV_RUN_ONCE);
  }

  void Stop() override {
    stop_.store(true);
    uv_async_send(&wake_);
  }

  bool IsLoopThread() const override { return thread_.load() == std::this_thread::get_id(); }

  std::unique_ptr<Timer> After(Duration delay, std::function<void()> fn) override {
    return std::make_unique<UvTimer>(&loop_, delay, std::move(fn));
  }
  std::unique_ptr<Watch> WatchFd(int fd, std::function<void(bool, bool)> fn) override {
    return std::make_unique<UvFdWatch>(&loop_, fd, std::move(fn));
  }
  std::unique_ptr<Watch> WatchSignal(int signal_number, std::function<void()> fn) override {
    return std::make_unique<UvSignalWatch>(&loop_, signal_number, std::move(fn));
  }

 private:
  static absl::Status Failed(const char* call, int error) {
    return Err(absl::StatusCode::kResourceExhausted, "{}: {}", call, uv_strerror(error));
  }

  void RunPosted() {
    {
      MutexLock lock(&mu_);
      running_.swap(posted_);  // both keep their capacity: no allocation in the steady state
    }
    for (auto& fn : running_) {
      if (!stop_.load()) fn();
      fn = nullptr;
    }
    running_.clear();
  }

  uv_loop_t loop_;
  uv_async_t wake_;
  bool initialised_ = false;
  bool has_wake_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<std::thread::id> thread_{std::this_thread::get_id()};
  std::vector<std::function<void()>> running_;  // loop thread only
  Mutex mu_;
  std::vector<std::function<void()>> posted_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  auto loop = std::make_unique<UvEventLoop>();
  BATCHD_RETURN_IF_ERROR(loop->Init());
  return std::unique_ptr<EventLoop>(std::move(loop));
}

}  // namespace batchd
