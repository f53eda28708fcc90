// SPDX-License-Identifier: Apache-2.0
// Where single-threaded objects live. A product's state belongs to one TaskRunner; other threads
// reach it only by posting. Tasks posted from one thread run in the order in which they were
// posted. Whoever is called back later and may be gone by then hands in a weak pointer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "src/base/clock.h"

namespace tessera {

class TaskRunner {
 public:
  using Task = std::function<void()>;

  virtual ~TaskRunner() = default;

  // Any thread. What the caller wrote before happens before the task.
  virtual void Post(Task task) = 0;
  virtual void PostDelayed(Duration delay, Task task) = 0;

  // Calls `on_ready` on the runner's thread each time that `fd` has something to read or has hung
  // up. The descriptor stays the caller's, who must Unwatch before closing it. Runner's thread
  // only.
  virtual void WatchReadable(int fd, Task on_ready) = 0;
  virtual void Unwatch(int fd) = 0;

  virtual bool RunsTasksOnCurrentThread() const = 0;
  virtual const Clock& clock() const = 0;
};

// On epoll, an eventfd and the monotonic clock. Sleeps in the kernel when there is nothing to do.
class EpollTaskRunner : public TaskRunner {
 public:
  EpollTaskRunner();
  ~EpollTaskRunner() override;

  // Runs tasks until Quit. The calling thread becomes the runner's thread.
  void Run();
  // Any thread. Run returns after the task that is running; tasks that wait are dropped.
  void Quit();

  void Post(Task task) override;
  void PostDelayed(Duration delay, Task task) override;
  void WatchReadable(int fd, Task on_ready) override;
  void Unwatch(int fd) override;
  bool RunsTasksOnCurrentThread() const override;
  const Clock& clock() const override { return clock_; }

 private:
  struct Impl;

  int WaitMillis() const;
  void RunDueTasks();
  void DispatchWatches(int wait_ms);

  SystemClock clock_;
  std::unique_ptr<Impl> impl_;
};

// For tests: nothing runs until it is told to, and time moves only by AdvanceTimeAndRun.
// Threads: one. Watched descriptors are polled by RunUntilIdle.
class FakeTaskRunner : public TaskRunner {
 public:
  void RunUntilIdle();
  // Moves time in steps from one due task to the next, so that tasks see the time they asked for.
  void AdvanceTimeAndRun(Duration by);

  void Post(Task task) override { PostDelayed(Duration::zero(), std::move(task)); }
  void PostDelayed(Duration delay, Task task) override;
  void WatchReadable(int fd, Task on_ready) override { watches_[fd] = std::move(on_ready); }
  void Unwatch(int fd) override { watches_.erase(fd); }
  bool RunsTasksOnCurrentThread() const override { return true; }
  const Clock& clock() const override { return clock_; }

 private:
  bool RunOneDueTask();
  bool RunOneReadyWatch();

  FakeClock clock_;
  // Time, then order of posting.
  std::map<std::pair<MonotonicTime, uint64_t>, Task> tasks_;
  std::map<int, Task> watches_;
  uint64_t sequence_ = 0;
};

// A thread with a name for blocking work (NVML, exec, DNS): runs posted tasks in order. The
// destructor waits for the task that runs. GiveUp() does not: it leaves the thread to its fate,
// for a call into a driver that never comes back.
class Worker {
 public:
  explicit Worker(std::string name);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Any thread.
  void Post(TaskRunner::Task task);
  // After this nothing that was posted runs any more, and the destructor returns at once.
  void GiveUp();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera
