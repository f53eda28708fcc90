// SPDX-License-Identifier: Apache-2.0
// The task runner of one simulated process, which can crash and can be suspended, as by SIGSTOP or
// on a stalled machine. Time continues during a suspension; at its end all due tasks run at once,
// and received messages are read. Threads: one.
#pragma once

#include <utility>
#include <vector>

#include "tests/simulation/world.h"

namespace tessera::simulation {

class Process final : public TaskRunner {
 public:
  explicit Process(World& world) : world_(world) {}

  void Suspend(Duration time) {
    suspended_ = true;
    world_.After(time, life_, [this] { Resume(); });
  }
  bool suspended() const { return suspended_; }

  void Post(Task task) override { PostDelayed(Duration::zero(), std::move(task)); }
  void PostDelayed(Duration delay, Task task) override {
    world_.After(std::max(delay, Duration::zero()), life_,
                 [this, task = std::move(task)]() mutable { Run(std::move(task)); });
  }
  void WatchReadable(int, Task) override {}
  void Unwatch(int) override {}
  bool RunsTasksOnCurrentThread() const override { return true; }
  const Clock& clock() const override { return world_.clock(); }

 private:
  void Run(Task task) {
    if (suspended_) return delayed_.push_back(std::move(task));
    task();
  }
  void Resume() {
    suspended_ = false;
    for (Task& task : std::exchange(delayed_, {})) Post(std::move(task));
  }

  World& world_;
  bool suspended_ = false;
  std::vector<Task> delayed_;
  const Life life_ = Born();
};

}  // namespace tessera::simulation
