// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/engine_watch.h"

#include <fmt/format.h>

#include <utility>

#include "src/base/log.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr size_t kMaxErrorText = 400;

// The names of the files in a unified diff. A file has the line "--- /etc/containerd/config.toml";
// a file that is missing has "--- /dev/null" and then "+++ /etc/…".
std::string FilesOf(std::string_view diff) {
  std::string files;
  std::string_view last;
  for (const std::string_view line : Split(diff, '\n')) {
    if (!line.starts_with("--- /") && !line.starts_with("+++ /")) continue;
    const std::string_view name = line.substr(4);
    if (name == "/dev/null" || name == last) continue;
    files.append(files.empty() ? "" : ", ").append(name);
    last = name;
  }
  return files;
}

}  // namespace

EngineWatch::EngineWatch(TaskRunner* runner, EngineWatchOptions options, ProgramRunner run,
                         NodeMetrics* metrics, OnProblem on_problem)
    : runner_(runner),
      options_(std::move(options)),
      run_program_(std::move(run)),
      metrics_(metrics),
      on_problem_(std::move(on_problem)) {
  const auto changed = [this](const std::string&) { ScheduleCheck(); };
  for (const std::string& dir : options_.dirs) {
    watchers_.push_back(std::make_unique<DirWatcher>(runner_, dir,
                                                     DirWatcher::Events{.on_appeared = changed,
                                                                        .on_vanished = changed,
                                                                        .on_rescan = [] {},
                                                                        .on_written = changed}));
  }
}

void EngineWatch::Start() {
  for (const auto& watcher : watchers_) watcher->Start();
  CheckRegularly();
}

void EngineWatch::CheckRegularly() {
  Check();
  runner_->PostDelayed(kInterval, [this, weak = weak_.Get()] {
    if (weak) CheckRegularly();
  });
}

// Waits a moment, because tools write several files one after the other.
void EngineWatch::ScheduleCheck() {
  if (std::exchange(check_scheduled_, true)) return;
  runner_->PostDelayed(kDebounce, [this, weak = weak_.Get()] {
    if (!weak) return;
    check_scheduled_ = false;
    Check();
  });
}

void EngineWatch::Check() {
  must_check_again_ = running_;
  if (running_) return;
  running_ = true;
  std::vector<std::string> argv = options_.command;
  argv.emplace_back("--dry-run");
  run_program_(std::move(argv), [this, weak = weak_.Get()](const Result<SubprocessResult>& result) {
    if (!weak) return;
    running_ = false;
    OnChecked(result);
    if (must_check_again_) Check();
  });
}

void EngineWatch::OnChecked(const Result<SubprocessResult>& result) {
  metrics_->engine_checks.Add(!result.ok() || result->exit_code != 0 ? "failed"
                              : result->out.empty()                  ? "configured"
                                                                     : "changed");
  if (!result.ok() || result->exit_code != 0) {
    std::string last_error =
        TruncateUtf8(result.ok() ? result->err : result.status().message(), kMaxErrorText);
    if (last_error != last_error_) {
      Log(Severity::kWarning, "cannot check the container engine's configuration",
          {{"error", last_error}});
    }
    last_error_ = std::move(last_error);
    return;
  }
  last_error_.clear();
  if (result->out.empty()) return SetProblem("");
  SetProblem(fmt::format(
      "{} lacks the settings of tessera-runtime, because it was changed or was never configured: "
      "new containers start without tessera-runtime, and so without their GPUs. Restart the "
      "agent's pod of this node, whose init container configures the engine, or logs why it does "
      "not; or set --repair-engine",
      FilesOf(result->out)));
  if (options_.repair) Repair();
}

void EngineWatch::Repair() {
  const MonotonicTime now = runner_->clock().Now();
  if (repaired_at_ && now - *repaired_at_ < kRepairInterval) return;
  repaired_at_ = now;
  running_ = true;
  Log(Severity::kWarning, "configuring the container engine again, which restarts it");
  run_program_(
      options_.command, [this, weak = weak_.Get()](const Result<SubprocessResult>& result) {
        if (!weak) return;
        running_ = false;
        const bool repaired = result.ok() && result->exit_code == 0;
        metrics_->engine_repairs.Add(repaired ? "OK" : "failed");
        if (!repaired) {
          Log(Severity::kError, "cannot configure the container engine",
              {{"error", TruncateUtf8(result.ok() ? result->err : result.status().message(),
                                      kMaxErrorText)}});
        }
        Check();
      });
}

void EngineWatch::SetProblem(std::string problem) {
  if (problem == problem_) return;
  if (!problem.empty()) {
    Log(Severity::kError, "the container engine's configuration has changed",
        {{"problem", problem}});
  } else if (problem_) {
    Log(Severity::kInfo, "the container engine is configured for tessera-runtime again");
  }
  problem_ = std::move(problem);
  on_problem_(*problem_);
}

ProgramRunner RunOnWorker(TaskRunner* runner, Duration deadline) {
  // The returned function owns the worker, whose destructor waits for the program.
  const auto worker = std::make_shared<Worker>("engine-check");
  return [runner, worker, deadline](std::vector<std::string> argv, ProgramDone done) {
    worker->Post([runner, deadline, argv = std::move(argv), done = std::move(done)] {
      runner->Post([done, result = RunProgram(argv, deadline)] { done(result); });
    });
  };
}

}  // namespace tessera::agent
