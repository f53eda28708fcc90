// SPDX-License-Identifier: Apache-2.0
// Repeats a round of requests to the API server: the next round starts a `period` after a
// successful one, and sooner after a failed one, with growing waits.
//
// Threads: the runner's, which also calls `start_round`, but not after the object is destroyed. The
// runner must outlive the object.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/kube/backoff.h"

namespace tessera::certificates {

class PeriodicRounds {
 public:
  // Posts the first call of `start_round` at once. Each round must call Succeed or Fail once.
  PeriodicRounds(TaskRunner& runner, Duration period, std::function<void()> start_round)
      : runner_(runner), period_(period), start_round_(std::move(start_round)) {
    StartAfter(Duration::zero());
  }

  void Succeed() {
    backoff_.Reset();
    StartAfter(period_);
  }
  void Fail() { StartAfter(std::min(backoff_.Next(), period_)); }

 private:
  void StartAfter(Duration wait) {
    runner_.PostDelayed(wait, [this, weak = weak_.Get()] {
      if (weak) start_round_();
    });
  }

  TaskRunner& runner_;
  const Duration period_;
  const std::function<void()> start_round_;
  kube::Backoff backoff_;
  WeakPtrFactory<PeriodicRounds> weak_{this};
};

}  // namespace tessera::certificates
