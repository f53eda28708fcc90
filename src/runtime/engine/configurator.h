// SPDX-License-Identifier: Apache-2.0
// Changes an engine's configuration files in one transaction:
//   base   = the files without Tessera's edits (from the record, else the current files)
//   target = base with the plan's edits, or base itself for --undo
//   back up, validate, write, reload, check; on a failure, restore the files and reload again.
// An interrupted run, even a killed one, leaves a pending record. The next run finishes the change
// if the engine serves, and restores the base if not. If the engine is down, the kubelet may be
// unable to start a next run; then another process restores the base by Recover (GuardEngine). A
// run whose target is already in place writes and reloads nothing.
//
// Does not install programs (install.h). Blocks. Threads: one; a lock on the configuration's
// directory serializes runs.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/file.h"
#include "src/base/status.h"
#include "src/runtime/engine/host_root.h"
#include "src/runtime/engine/plan.h"
#include "src/runtime/engine/record.h"
#include "src/runtime/engine/reload.h"

namespace tessera::engine {

struct ConfigureOptions {
  EngineKind engine = EngineKind::kContainerd;
  EngineSettings settings;
  ReloadOptions reload;
  std::string validate_program;  // host path; empty: searched in the usual directories
  bool dry_run = false;
};

// A report for the administrator: the changes that were made, or that a dry run would make.
struct Outcome {
  bool changed = false;
  std::string diff;
  std::vector<std::string> notes;
};

class Configurator {
 public:
  // `host` must outlive the object.
  Configurator(ConfigureOptions options, const HostRoot* host);

  Result<Outcome> Configure();
  Result<Outcome> Undo();
  // Restores the base if an interrupted run left the engine down and the engine does not serve
  // within the timeout; ABORTED reports that it was restored. OK: no run was interrupted, or
  // another run is active, or the engine serves (the next run then finishes the change). Holds the
  // lock only while it reads the record or writes.
  Status Recover();

 private:
  using FileStates = std::map<std::string, std::optional<FileState>>;

  Status Lock();
  std::optional<Version> EngineVersion() const;
  Status Load();
  // Loads the record. True if its run was interrupted. UNAVAILABLE: another run holds the lock.
  Result<bool> FindInterruptedRun();
  Result<std::optional<FileState>> BaseOf(const std::string& path) const;
  Result<std::optional<FileState>> RemoveTesseraEdits(
      const RecordedFile& file, const std::optional<FileState>& current) const;
  ConfigTree BaseTree() const;
  // Fills targets_ and new_record_.
  Status SetTargets(const Plan& plan);
  Status SetTargetsToBase();
  Status ReadCurrent();
  bool AnyChange() const { return current_ != targets_; }
  Status Validate(const Plan& plan);
  std::string DiffText() const;

  Status Commit(Expectation expectation);
  Status WriteAll(const FileStates& states) const;
  // Writes the files that the engine must load to get the configuration in `states`. Docker
  // needs temporary contents to load the change (DockerReload): for Docker this writes them, and
  // sets `expectation` to match.
  Status WriteForReload(const FileStates& states, Expectation* expectation) const;
  // Whether an earlier run ended between its first write and the check of the engine.
  bool WasInterrupted() const { return record_ && record_->pending && !options_.dry_run; }
  Status RollBack(const Status& cause, bool reload);
  // Writes the base, because the engine has not served since an interrupted run. Never OK: ABORTED
  // if the base is in place and the engine serves, INTERNAL otherwise.
  Status RestoreBase();
  void RemoveDirs(const std::vector<std::string>& dirs) const;

  const ConfigureOptions options_;
  const HostRoot& host_;
  Reloader reloader_;
  Fd lock_;
  std::optional<Record> record_;      // of an earlier run
  std::optional<Record> new_record_;  // of this run; nullopt: the target is the base
  FileStates targets_;
  FileStates current_;
  Outcome outcome_;
};

// How often the record is read.
inline constexpr Duration kGuardInterval = std::chrono::seconds(2);

// Watches the runs of Configurator from another container. If the container of a run is killed and
// the engine stays down, the kubelet cannot start a next run, because it starts containers through
// the engine. The guard then restores the files. It does not finish an interrupted run: the next
// run does, once the engine serves. Never returns. Calls `options` before each check, because the
// path of the engine's socket is in its configuration, which may change. `host` must outlive the
// call.
[[noreturn]] void GuardEngine(const std::function<ConfigureOptions()>& options,
                              const HostRoot* host);

}  // namespace tessera::engine
