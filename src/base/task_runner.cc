// SPDX-License-Identifier: Apache-2.0
#include "src/base/task_runner.h"

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera {

// The mutex guards `tasks` and `sequence`. Other threads use only these, the atomics and `wake`.
struct EpollTaskRunner::Impl {
  Fd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  Fd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::map<int, std::shared_ptr<Task>> watches;
  std::atomic<std::thread::id> thread{};
  std::atomic<bool> quit{false};

  mutable std::mutex mutex;
  std::map<std::pair<MonotonicTime, uint64_t>, Task> tasks;
  uint64_t sequence = 0;
};

EpollTaskRunner::EpollTaskRunner() : impl_(std::make_unique<Impl>()) {
  TESSERA_CHECK(impl_->epoll.valid() && impl_->wake.valid());
  epoll_event event{.events = EPOLLIN, .data = {.fd = impl_->wake.get()}};
  TESSERA_CHECK(::epoll_ctl(impl_->epoll.get(), EPOLL_CTL_ADD, impl_->wake.get(), &event) == 0);
}

EpollTaskRunner::~EpollTaskRunner() = default;

void EpollTaskRunner::Run() {
  impl_->thread = std::this_thread::get_id();
  while (!impl_->quit) {
    DispatchWatches(WaitMillis());
    RunDueTasks();
  }
  impl_->quit = false;
}

void EpollTaskRunner::Quit() {
  impl_->quit = true;
  ::eventfd_write(impl_->wake.get(), 1);
}

void EpollTaskRunner::Post(Task task) { PostDelayed(Duration::zero(), std::move(task)); }

void EpollTaskRunner::PostDelayed(Duration delay, Task task) {
  const MonotonicTime due = clock_.Now() + delay;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->tasks.emplace(std::pair(due, impl_->sequence++), std::move(task));
  }
  if (!RunsTasksOnCurrentThread()) ::eventfd_write(impl_->wake.get(), 1);
}

void EpollTaskRunner::WatchReadable(int fd, Task on_ready) {
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = fd}};
  const bool already_watched = impl_->watches.count(fd) != 0;
  impl_->watches[fd] = std::make_shared<Task>(std::move(on_ready));
  const int operation = already_watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  TESSERA_CHECK(::epoll_ctl(impl_->epoll.get(), operation, fd, &event) == 0);
}

void EpollTaskRunner::Unwatch(int fd) {
  if (impl_->watches.erase(fd) == 0) return;
  ::epoll_ctl(impl_->epoll.get(), EPOLL_CTL_DEL, fd, nullptr);
}

bool EpollTaskRunner::RunsTasksOnCurrentThread() const {
  return impl_->thread.load() == std::this_thread::get_id();
}

int EpollTaskRunner::WaitMillis() const {
  std::lock_guard lock(impl_->mutex);
  if (impl_->tasks.empty()) return -1;
  const Duration wait = impl_->tasks.begin()->first.first - clock_.Now();
  if (wait <= Duration::zero()) return 0;
  // Bounded, because epoll_wait takes an int; Run then waits again. Rounded up, because waking
  // early would only spin.
  constexpr Duration kMaxWait = std::chrono::hours(24);
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(std::min(wait, kMaxWait));
  return static_cast<int>(rounded.count());
}

void EpollTaskRunner::RunDueTasks() {
  // Tasks that these tasks post wait for the next call, so that descriptors are served in between.
  const MonotonicTime now = clock_.Now();
  std::deque<decltype(impl_->tasks)::node_type> due;
  {
    std::lock_guard lock(impl_->mutex);
    while (!impl_->tasks.empty() && impl_->tasks.begin()->first.first <= now) {
      due.push_back(impl_->tasks.extract(impl_->tasks.begin()));
    }
  }
  size_t next = 0;
  while (next < due.size() && !impl_->quit) due[next++].mapped()();
  // After Quit, the next Run executes the remaining tasks.
  std::lock_guard lock(impl_->mutex);
  for (; next < due.size(); ++next) impl_->tasks.insert(std::move(due[next]));
}

void EpollTaskRunner::DispatchWatches(int wait_ms) {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(impl_->epoll.get(), events.data(), events.size(), wait_ms);
  for (int i = 0; i < count && !impl_->quit; ++i) {
    const int fd = events[i].data.fd;
    if (fd == impl_->wake.get()) {
      eventfd_t value;
      ::eventfd_read(fd, &value);
      continue;
    }
    const auto watch = impl_->watches.find(fd);
    if (watch == impl_->watches.end()) continue;
    // A copy, because the callback may unwatch itself.
    const std::shared_ptr<Task> on_ready = watch->second;
    (*on_ready)();
  }
}

void FakeTaskRunner::PostDelayed(Duration delay, Task task) {
  tasks_.emplace(std::pair(clock_.Now() + delay, sequence_++), std::move(task));
}

void FakeTaskRunner::RunUntilIdle() {
  while (RunOneDueTask() || RunOneReadyWatch()) {
  }
}

void FakeTaskRunner::AdvanceTimeAndRun(Duration by) {
  const MonotonicTime end = clock_.Now() + by;
  RunUntilIdle();
  while (!tasks_.empty() && tasks_.begin()->first.first <= end) {
    clock_.Advance(std::max(Duration::zero(), tasks_.begin()->first.first - clock_.Now()));
    RunUntilIdle();
  }
  clock_.Advance(end - clock_.Now());
}

bool FakeTaskRunner::RunOneDueTask() {
  if (tasks_.empty() || tasks_.begin()->first.first > clock_.Now()) return false;
  Task task = std::move(tasks_.extract(tasks_.begin()).mapped());
  task();
  return true;
}

bool FakeTaskRunner::RunOneReadyWatch() {
  for (const auto& [fd, on_ready] : watches_) {
    pollfd poll{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, 0) <= 0) continue;
    const Task task = on_ready;
    task();
    return true;
  }
  return false;
}

// Shared by the Worker and its thread. The mutex guards the tasks.
struct Worker::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<TaskRunner::Task> tasks;
  bool stop = false;
  bool abandoned = false;
  bool ended = false;
};

Worker::Worker(std::string name) : shared_(std::make_shared<Shared>()) {
  std::thread([shared = shared_, name = std::move(name)] {
    ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
    std::unique_lock lock(shared->mutex);
    while (true) {
      shared->changed.wait(lock, [&] { return shared->stop || !shared->tasks.empty(); });
      if (shared->abandoned || shared->tasks.empty()) break;
      const TaskRunner::Task task = std::move(shared->tasks.front());
      shared->tasks.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
    shared->ended = true;
    shared->changed.notify_all();
  }).detach();  // After Abandon the thread may never end. The destructor waits for `ended`.
}

Worker::~Worker() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  shared_->changed.wait(lock, [&] { return shared_->ended || shared_->abandoned; });
}

void Worker::Post(TaskRunner::Task task) {
  std::lock_guard lock(shared_->mutex);
  if (shared_->abandoned) return;
  shared_->tasks.push_back(std::move(task));
  shared_->changed.notify_all();
}

void Worker::Abandon() {
  std::lock_guard lock(shared_->mutex);
  shared_->abandoned = true;
  shared_->stop = true;
  shared_->tasks.clear();
  shared_->changed.notify_all();
}

}  // namespace tessera
