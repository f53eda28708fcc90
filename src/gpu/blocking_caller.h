// SPDX-License-Identifier: Apache-2.0
// Runs calls into a driver, which may never return, on other threads and with a deadline. Do not
// use it for work that is merely slow: each job starts and ends a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/base/task_runner.h"

namespace tessera::gpu {

// Threads: Start on the runner's thread only. An interface, so that tests can simulate a hanging
// call in virtual time.
class BlockingCaller {
 public:
  struct Job {
    std::string name;  // of the thread, 15 characters at most
    Duration deadline{};
    std::function<void()> work;         // on another thread; owns all data that it accesses
    std::function<void()> on_finished;  // on the runner, when work has returned, even late
    // On the runner, once, if work has not returned by the deadline.
    std::function<void()> on_overdue;
  };

  virtual ~BlockingCaller() = default;
  virtual void Start(Job job) = 0;
};

// Runs each job on a Worker. An overdue job keeps its thread until the call returns, if ever; other
// jobs do not wait for it. The destructor abandons running jobs and drops their callbacks.
class ThreadCaller final : public BlockingCaller {
 public:
  // `runner` must outlive the caller.
  explicit ThreadCaller(TaskRunner* runner);
  ~ThreadCaller() override;

  void Start(Job job) override;
  // Number of overdue jobs that have not returned.
  int stuck() const;

 private:
  struct State;
  TaskRunner* const runner_;
  std::shared_ptr<State> state_;
};

}  // namespace tessera::gpu
