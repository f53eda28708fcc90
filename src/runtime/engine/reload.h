// SPDX-License-Identifier: Apache-2.0
// Makes a running engine read its configuration, and waits until it serves again.
//
// containerd reads its configuration only when it starts: it gets SIGTERM and whoever supervises it
// (systemd, Restart=always) starts it again; containers go on under their shims. Docker reloads
// runtimes on SIGHUP. CRI-O lists new runtimes after SIGHUP but starts containers with the old ones
// (cri-o/cri-o issue 10202, seen with 1.34), so it is restarted: by systemd, because its unit has
// Restart=on-failure, and so stays down after SIGTERM.
//
// Not for: engines that nobody supervises. They are told to end only if --restart-mode=signal
// asks for it. Threads: one.
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
  Engine engine = Engine::kContainerd;
  RestartMode mode = RestartMode::kAuto;
  std::string socket;  // host path
  Duration timeout = std::chrono::seconds(60);
};

// What has to be true of the engine after the reload.
struct Expectation {
  std::string runtime;      // empty: nothing about runtimes
  bool is_default = false;  // Docker tells; the others do not
};

class Reloader {
 public:
  Reloader(ReloadOptions options, const HostRoot* host)
      : options_(std::move(options)), host_(*host) {}

  // Finds out how, before anything is changed. FAILED_PRECONDITION says what is missing.
  Status Prepare();
  // The engine serves only if it serves the kubelet's interface. Prepare requires it where it finds
  // it.
  void RequireCri() { requires_cri_ = true; }
  // Whether the engine serves now.
  bool Serves() const;
  // Waits for an engine that is starting. False: it did not serve within the timeout.
  bool AwaitEngine() const;
  // REQUIRES: Prepare gave OK. DEADLINE_EXCEEDED, UNAVAILABLE: it does not serve as it did before,
  // or does not know the runtime.
  Status ReloadAndCheck(const Expectation& expectation);

  // Whether the engine will be reloaded at all, and what to tell the person.
  bool will_reload() const { return how_ != RestartMode::kNone; }
  const std::string& how() const { return words_; }
  // What it answered before the change; nothing if it did not.
  const std::optional<EngineAnswer>& before() const { return before_; }

 private:
  Status PrepareSignal();
  bool UnitIsActive() const;
  // Else it reads its configuration while it runs.
  bool EndsOnReload() const { return options_.engine != Engine::kDocker; }
  Status Signal();
  Status RestartUnit();
  Status WaitUntilServes(const Expectation& expectation, MonotonicTime end) const;
  Status Judge(const EngineAnswer& answer, const Expectation& expectation) const;
  Result<EngineAnswer> Ask(Duration deadline) const;

  const ReloadOptions options_;
  const HostRoot& host_;
  RestartMode how_ = RestartMode::kNone;
  std::string words_;
  std::optional<EngineAnswer> before_;
  bool requires_cri_ = false;
};

// "containerd", "docker", "crio": names of the systemd units, and of the flag's values.
std::string_view NameOf(Engine engine);

}  // namespace tessera::engine
