// SPDX-License-Identifier: Apache-2.0
// Runs NVML queries as jobs of a BlockingCaller. Tracks errors, hanging calls, running queries, and
// whether an answer still belongs to the current session. Included only in src/gpu.
//
// Threads: one runner. Drops the callbacks when the owner is destroyed.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "src/base/log.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/inventory.h"
#include "src/gpu/probe.h"

namespace tessera::gpu {

// The wait before a retry: `min` after the first failure, then twice the `last` wait, at most
// `max`.
inline Duration NextWait(Duration last, Duration min, Duration max) {
  return std::clamp(last * 2, min, max);
}

class JobRunner {
 public:
  struct AnswerState {
    bool late;     // `on_overdue` was called before
    bool current;  // no NextSession since the query
  };

  // `after_each` runs after each callback.
  JobRunner(BlockingCaller* caller, InventoryStats* stats, std::function<void()> after_each)
      : caller_(caller), stats_(stats), after_each_(std::move(after_each)) {}

  // `work` runs on another thread and must own its data.
  template <typename Report>
  void Start(std::string name, Duration deadline, std::function<void(NvmlCalls*, Report*)> work,
             std::function<void(Report&, AnswerState)> on_done,
             std::function<void(NvmlCall, AnswerState)> on_overdue);

  // Marks answers to earlier queries as no longer current.
  void NextSession() { ++session_; }
  uint64_t session() const { return session_; }
  int in_flight() const { return in_flight_; }

 private:
  void Count(const NvmlErrors& errors) {
    for (const auto& error : errors) ++stats_->nvml_errors[error];
  }
  void CountHang(const std::string& name, NvmlCall call) {
    --in_flight_;
    ++stats_->calls_stuck;
    ++stats_->hung_calls[call];
    Log(Severity::kError, "NVML call did not return",
        {{"call", NvmlCallName(call)}, {"thread", name}});
  }

  BlockingCaller* const caller_;
  InventoryStats* const stats_;
  const std::function<void()> after_each_;
  uint64_t session_ = 0;
  int in_flight_ = 0;
  WeakPtrFactory<JobRunner> weak_{this};
};

template <typename Report>
void JobRunner::Start(std::string name, Duration deadline,
                      std::function<void(NvmlCalls*, Report*)> work,
                      std::function<void(Report&, AnswerState)> on_done,
                      std::function<void(NvmlCall, AnswerState)> on_overdue) {
  struct JobState {
    NvmlCalls calls;
    Report report;
    bool late = false;
  };
  const auto shared = std::make_shared<JobState>();
  const WeakPtr<JobRunner> weak = weak_.Get();
  const uint64_t session = session_;
  ++in_flight_;
  BlockingCaller::Job job;
  job.name = name;
  job.deadline = deadline;
  job.work = [shared, work = std::move(work)] { work(&shared->calls, &shared->report); };
  job.on_finished = [weak, shared, session, on_done = std::move(on_done)] {
    JobRunner* const self = weak.get();
    if (self == nullptr) return;
    --(shared->late ? self->stats_->calls_stuck : self->in_flight_);
    self->Count(shared->calls.errors());
    on_done(shared->report, {shared->late, session == self->session_});
    if (weak) self->after_each_();
  };
  job.on_overdue = [weak, shared, session, name, on_overdue = std::move(on_overdue)] {
    JobRunner* const self = weak.get();
    if (self == nullptr) return;
    shared->late = true;
    self->CountHang(name, shared->calls.current());
    on_overdue(shared->calls.current(), {true, session == self->session_});
    if (weak) self->after_each_();
  };
  caller_->Start(std::move(job));
}

}  // namespace tessera::gpu
