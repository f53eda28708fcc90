// SPDX-License-Identifier: Apache-2.0
// Runs the tasks of single-threaded objects. A component's state belongs to one TaskRunner; other
// threads reach it only by posting. Tasks posted from one thread run in the order of posting.
// Callbacks to an object that may be destroyed earlier use a weak pointer.
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

  // Any thread. Writes of the caller before the call are visible to the task.
  virtual void Post(Task task) = 0;
  virtual void PostDelayed(Duration delay, Task task) = 0;

  // Calls `on_ready` on the runner's thread each time that `fd` is readable or has hung up. The
  // caller still owns the descriptor and must Unwatch before closing it. Runner's thread only.
  virtual void WatchReadable(int fd, Task on_ready) = 0;
  virtual void Unwatch(int fd) = 0;

  virtual bool RunsTasksOnCurrentThread() const = 0;
  virtual const Clock& clock() const = 0;
};

// Implementation with epoll, an eventfd and the monotonic clock. Sleeps in the kernel when idle.
class EpollTaskRunner : public TaskRunner {
 public:
  EpollTaskRunner();
  ~EpollTaskRunner() override;

  // Runs tasks until Quit. The calling thread becomes the runner's thread.
  void Run();
  // Any thread. Run returns after the current task. The next Run continues with the waiting tasks.
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

// For tests: runs tasks only on request; time moves only by AdvanceTimeAndRun.
// Threads: one. RunUntilIdle polls watched descriptors.
class FakeTaskRunner : public TaskRunner {
 public:
  void RunUntilIdle();
  // Moves time from one due task to the next, so that each task sees the time of its deadline.
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
  // By time, then by order of posting.
  std::map<std::pair<MonotonicTime, uint64_t>, Task> tasks_;
  std::map<int, Task> watches_;
  uint64_t sequence_ = 0;
};

// A named thread for blocking work (NVML, exec, DNS) that runs posted tasks in order. The
// destructor waits for all posted tasks. After Abandon() it does not wait even for the current
// task, because a call into a driver may never return.
class Worker {
 public:
  explicit Worker(std::string name);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Any thread.
  void Post(TaskRunner::Task task);
  // Drops all tasks that have not started; the destructor then returns at once.
  void Abandon();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace tessera
