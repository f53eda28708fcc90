// SPDX-License-Identifier: Apache-2.0
// Makes a running engine reload its configuration, and waits until it serves again.
//
// containerd reads its configuration only at start: it gets SIGTERM, and its supervisor (systemd,
// Restart=always) starts it again; containers keep running under their shims. Docker reloads
// runtimes on SIGHUP. CRI-O lists new runtimes after SIGHUP but starts containers with the old
// runtimes (cri-o/cri-o issue 10202, seen with 1.34), so systemd restarts it: its unit has
// Restart=on-failure, with which it would stay down after SIGTERM.
//
// containerd and CRI-O must have a supervisor: without one, SIGTERM ends the engine for good.
// Threads: one.
#pragma once

#include <string>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/runtime/engine/host_root.h"
#include "src/runtime/engine/plan.h"
#include "src/runtime/engine/probe.h"

namespace tessera::engine {

enum class RestartMode { kNone, kSignal, kSystemd, kAuto };

struct ReloadOptions {
  EngineKind engine = EngineKind::kContainerd;
  RestartMode mode = RestartMode::kAuto;
  std::string socket;  // host path
  Duration timeout = std::chrono::seconds(60);
};

// The engine's state to verify after the reload.
struct Expectation {
  std::string runtime;      // empty: runtimes are not checked
  bool is_default = false;  // checked only for Docker; other engines do not report it
};

class Reloader {
 public:
  Reloader(ReloadOptions options, const HostRoot* host)
      : options_(std::move(options)), host_(*host) {}

  // Selects the way to reload, before anything is changed. FAILED_PRECONDITION names the missing
  // part.
  Status Prepare();
  // From now on the engine counts as serving only if it serves the kubelet's interface (CRI).
  // Prepare calls this if the engine serves CRI before the change.
  void RequireCri() { requires_cri_ = true; }
  // Whether the engine serves now.
  bool Serves() const;
  // Waits for an engine that is starting. False: it did not serve within the timeout.
  bool AwaitEngine() const;
  // REQUIRES: Prepare returned OK. DEADLINE_EXCEEDED, UNAVAILABLE: the engine does not serve as
  // before, or does not know the runtime.
  Status ReloadAndCheck(const Expectation& expectation);

  // Whether the engine will be reloaded, and a description for the administrator.
  bool will_reload() const { return method_ != RestartMode::kNone; }
  const std::string& reload_description() const { return reload_description_; }
  // The engine's answer before the change; nullopt if it did not answer.
  const std::optional<EngineInfo>& info_before() const { return info_before_; }

 private:
  Status PrepareSignal();
  bool UnitIsActive() const;
  // Whether the engine exits to reload. Docker reloads while it runs.
  bool ExitsOnReload() const { return options_.engine != EngineKind::kDocker; }
  Status Signal();
  Status RestartUnit();
  Status WaitUntilServes(const Expectation& expectation, MonotonicTime end) const;
  Status CheckExpectation(const EngineInfo& answer, const Expectation& expectation) const;
  Result<EngineInfo> Query(Duration deadline) const;

  const ReloadOptions options_;
  const HostRoot& host_;
  RestartMode method_ = RestartMode::kNone;
  std::string reload_description_;
  std::optional<EngineInfo> info_before_;
  bool requires_cri_ = false;
};

// "containerd", "docker" or "crio": the systemd unit and the value of --engine.
std::string_view NameOf(EngineKind engine);

}  // namespace tessera::engine
