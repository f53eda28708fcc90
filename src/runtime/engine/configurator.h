// SPDX-License-Identifier: Apache-2.0
// Brings an engine's configuration from what it is to what it shall be, as one transaction:
//   base   = the files as they were without us (from the record, else as they are)
//   target = base with the plan's edits, or base itself for --undo
//   back up, validate, write, reload, check; on failure everything is as before, reloaded again.
// A run that was cut off, even killed, leaves a record that says so: the next run finishes it where
// the engine serves, and else takes everything back to the base. Where there can be no next run,
// because the engine that would start it does not serve, Recover does the same from another process
// (guard.h). The same target again changes nothing and reloads nothing.
//
// Not for installing programs (install.h). Blocks. Threads: one; runs exclude each other by a lock
// on the configuration's folder.
#pragma once

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
  Engine engine = Engine::kContainerd;
  Wanted wanted;
  ReloadOptions reload;
  std::string validate_program;  // host path; empty: the usual one
  bool dry_run = false;
};

// For the person: what was done, or would be.
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
  // Takes back a run that was cut off, where the engine does not serve within the timeout: ABORTED
  // says that all is as it was before Tessera. OK: another run is at work, or none was cut off, or
  // the engine serves, and the next run finishes it. Holds the lock only while it writes.
  Status Recover();

 private:
  using States = std::map<std::string, std::optional<FileState>>;

  Status Lock();
  std::optional<Version> EngineVersion() const;
  Status Load();
  // Whether the record describes an interrupted run. UNAVAILABLE: another run holds the lock.
  Result<bool> MeetsCutOffRun();
  Result<std::optional<FileState>> BaseOf(const std::string& path) const;
  Result<std::optional<FileState>> WithoutUs(const RecordedFile& file,
                                             const std::optional<FileState>& current) const;
  ConfigTree BaseTree() const;
  // Fills targets_ and next_.
  Status AimAt(const Plan& plan);
  Status AimAtBase();
  Status ReadCurrent();
  bool AnyChange() const { return current_ != targets_; }
  Status Validate(const Plan& plan);
  std::string DiffText() const;

  Status Commit(Expectation expectation);
  Status WriteAll(const States& states) const;
  // Writes what the engine has to read again so that it is as if only `states` had ever been there.
  Status WriteForReload(const States& states, Expectation* expectation) const;
  // A run before this one was cut off between its first write and the engine's proof.
  bool WasCutOff() const { return record_ && record_->pending && !options_.dry_run; }
  Status RollBack(const Status& cause, bool reload);
  // To the files as they were without us, because the engine has not served since.
  Status TakeBack();
  void RemoveFolders(const std::vector<std::string>& folders) const;

  const ConfigureOptions options_;
  const HostRoot& host_;
  Reloader reloader_;
  Fd lock_;
  std::optional<Record> record_;  // of an earlier run
  std::optional<Record> next_;    // nothing: after this run we were never here
  States targets_;
  States current_;
  Outcome outcome_;
};

}  // namespace tessera::engine
