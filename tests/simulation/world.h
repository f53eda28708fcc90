// SPDX-License-Identifier: Apache-2.0
// Virtual time, random numbers and the log of one simulated history. Everything runs on one task
// runner and draws from one seed, so a history is reproducible to the last step.
//
// Threads: one.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/task_runner.h"

namespace tessera::simulation {

// The lifetime of a process that can crash: its tasks do not run after its death.
using Life = std::shared_ptr<const bool>;
inline Life Born() { return std::make_shared<const bool>(true); }

class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  FakeTaskRunner& runner() { return runner_; }
  const Clock& clock() const { return runner_.clock(); }
  Random& random() { return random_; }
  // True with a probability of `percent`.
  bool Chance(uint64_t percent) { return random_.Below(100) < percent; }
  Duration Between(Duration low, Duration high) {
    return low + Duration(random_.Below(static_cast<uint64_t>((high - low).count()) + 1));
  }

  void After(Duration delay, const Life& life, std::function<void()> task) {
    runner_.PostDelayed(delay, [weak = std::weak_ptr(life), task = std::move(task)] {
      // The life is not locked while the task runs, because the task may end the process.
      if (!weak.expired()) task();
    });
  }
  // Runs the task periodically, with intervals of 75 to 125 % of `period`.
  void Every(Duration period, const Life& life, std::function<void()> task) {
    Every(period, life, std::make_shared<const std::function<void()>>(std::move(task)));
  }

  // Adds a line to the log of the history.
  void Note(std::string line);
  const std::deque<std::string>& notes() const { return notes_; }
  // Hash of all notes: the same in each run of one seed.
  uint64_t fingerprint() const { return fingerprint_; }
  size_t events() const { return events_; }

  // Records the violation of an invariant.
  void Fail(std::string why);
  const std::string& failure() const { return failure_; }

 private:
  static constexpr size_t kNotesKept = 400;

  void Every(Duration period, const Life& life,
             const std::shared_ptr<const std::function<void()>>& task) {
    After(Between(period * 3 / 4, period * 5 / 4), life,
          [this, period, weak = std::weak_ptr(life), task] {
            (*task)();
            if (const Life alive = weak.lock()) Every(period, alive, task);
          });
  }

  FakeTaskRunner runner_;
  Random random_;
  std::deque<std::string> notes_;
  uint64_t fingerprint_ = 14695981039346656037u;  // FNV-1a
  size_t events_ = 0;
  std::string failure_;
};

}  // namespace tessera::simulation
