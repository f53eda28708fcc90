// SPDX-License-Identifier: Apache-2.0
// Calls that may never come back (into a driver), with a deadline, off the runner's thread.
// Not for work that is merely slow: each job has a thread of its own, made for it and gone after
// it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/base/task_runner.h"

namespace tessera::gpu {

// Threads: Start on the runner's thread only. An interface, so that tests can let a call hang in
// virtual time.
class BlockingCaller {
 public:
  struct Job {
    std::string name;  // of the thread, 15 characters at most
    Duration deadline{};
    std::function<void()> work;      // on another thread; owns all that it touches
    std::function<void()> finished;  // on the runner, once work returned, however late
    std::function<void()> overdue;   // on the runner, once, if work is not back at the deadline
  };

  virtual ~BlockingCaller() = default;
  virtual void Start(Job job) = 0;
};

// One Worker a job. A job that is overdue keeps its thread until the call comes back, if ever; no
// other waits for it. The destructor gives up on all that still run and calls nobody back.
class ThreadCaller final : public BlockingCaller {
 public:
  // `runner` outlives the caller.
  explicit ThreadCaller(TaskRunner* runner);
  ~ThreadCaller() override;

  void Start(Job job) override;
  // Jobs that are overdue and have not come back.
  int stuck() const;

 private:
  struct State;
  TaskRunner* const runner_;
  std::shared_ptr<State> state_;
};

}  // namespace tessera::gpu
