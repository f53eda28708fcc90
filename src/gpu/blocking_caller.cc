// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/blocking_caller.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace tessera::gpu {

struct ThreadCaller::State {
  struct RunningJob {
    std::unique_ptr<Worker> worker;
    bool overdue_reported = false;
    std::function<void()> on_finished;
    std::function<void()> on_overdue;
  };
  std::map<uint64_t, RunningJob> jobs;  // runner's thread only
  uint64_t next_id = 0;
  int stuck = 0;

  // A late thread may return after the runner is destroyed. The mutex orders its post and the
  // destructor.
  std::mutex mutex;
  TaskRunner* runner = nullptr;
};

ThreadCaller::ThreadCaller(TaskRunner* runner)
    : runner_(runner), state_(std::make_shared<State>()) {
  state_->runner = runner;
}

ThreadCaller::~ThreadCaller() {
  {
    std::lock_guard lock(state_->mutex);
    state_->runner = nullptr;
  }
  for (auto& [id, job] : state_->jobs) job.worker->Abandon();
  state_->jobs.clear();
}

int ThreadCaller::stuck() const { return state_->stuck; }

void ThreadCaller::Start(Job job) {
  const uint64_t id = state_->next_id++;
  const std::weak_ptr<State> weak = state_;
  const auto finish = [weak, id] {
    const std::shared_ptr<State> state = weak.lock();
    if (state == nullptr) return;
    // Empty if the caller was destroyed while a thread of another job kept the state alive.
    auto node = state->jobs.extract(id);
    if (node.empty()) return;
    if (node.mapped().overdue_reported) --state->stuck;
    node.mapped().on_finished();
  };
  const auto expire = [weak, id] {
    const std::shared_ptr<State> state = weak.lock();
    if (state == nullptr) return;
    const auto job = state->jobs.find(id);
    if (job == state->jobs.end()) return;
    // Keeps waiting for the worker: on a suspended or busy machine it may not have started yet.
    job->second.overdue_reported = true;
    ++state->stuck;
    // A copy, because the callback may start jobs.
    const std::function<void()> on_overdue = job->second.on_overdue;
    on_overdue();
  };

  State::RunningJob& running = state_->jobs[id];
  running.on_finished = std::move(job.on_finished);
  running.on_overdue = std::move(job.on_overdue);
  running.worker = std::make_unique<Worker>(job.name);
  runner_->PostDelayed(job.deadline, expire);
  running.worker->Post([state = state_, work = std::move(job.work), finish] {
    work();
    std::lock_guard lock(state->mutex);
    if (state->runner != nullptr) state->runner->Post(finish);
  });
}

}  // namespace tessera::gpu
