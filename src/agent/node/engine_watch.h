// SPDX-License-Identifier: Apache-2.0
// Checks that the container engine's configuration still starts containers through tessera-runtime.
// The installer writes it once; a configuration tool or a package upgrade may overwrite it, and
// pods would then start without their GPUs.
//
// The check is "tessera-runtime configure --dry-run", which prints what it would change. It runs at
// the start, after a change in the watched directories, and every kInterval. With `repair` the same
// command without --dry-run follows, which restarts the engine. This repair runs at most once in
// kRepairInterval, so that a tool that always restores its own configuration does not make the
// engine restart all the time.
//
// Threads: lives on `runner`; programs run on other threads.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/agent/node/node_metrics.h"
#include "src/base/dir_watcher.h"
#include "src/base/subprocess.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"

namespace tessera::agent {

struct EngineWatchOptions {
  std::vector<std::string> command;  // tessera-runtime configure …
  // Directories of the engine's configuration, as this process sees them.
  std::vector<std::string> dirs;
  bool repair = false;
};

// Runs a program and calls back on the runner.
using ProgramDone = std::function<void(const Result<SubprocessResult>&)>;
using ProgramRunner = std::function<void(std::vector<std::string> argv, ProgramDone done)>;

class EngineWatch {
 public:
  static constexpr Duration kInterval = std::chrono::minutes(5);
  static constexpr Duration kDebounce = std::chrono::seconds(1);
  static constexpr Duration kRepairInterval = std::chrono::minutes(10);
  // "": the configuration is correct. Called after the first check and on changes.
  using OnProblem = std::function<void(const std::string& problem)>;

  // `metrics` must outlive the object.
  EngineWatch(TaskRunner* runner, EngineWatchOptions options, ProgramRunner run,
              NodeMetrics* metrics, OnProblem on_problem);
  EngineWatch(const EngineWatch&) = delete;
  EngineWatch& operator=(const EngineWatch&) = delete;

  void Start();

 private:
  void ScheduleCheck();
  void CheckRegularly();
  void Check();
  void OnChecked(const Result<SubprocessResult>& result);
  void Repair();
  void SetProblem(std::string problem);

  TaskRunner* const runner_;
  const EngineWatchOptions options_;
  const ProgramRunner run_program_;
  NodeMetrics* const metrics_;
  const OnProblem on_problem_;
  std::vector<std::unique_ptr<DirWatcher>> watchers_;
  bool running_ = false;           // a program is running
  bool must_check_again_ = false;  // check again when the program ends
  bool check_scheduled_ = false;
  std::optional<std::string> problem_;  // nullopt: not checked yet
  std::string last_error_;              // why the check failed
  std::optional<MonotonicTime> repaired_at_;
  WeakPtrFactory<EngineWatch> weak_{this};
};

// Runs each program on a thread of its own, one at a time.
ProgramRunner RunOnWorker(TaskRunner* runner, Duration deadline);

}  // namespace tessera::agent
