// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/reload.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/file.h"
#include "src/runtime/engine/host_root.h"

namespace tessera::engine {
namespace {

constexpr Duration kQueryDeadline = std::chrono::seconds(5);
// The last query of a wait gets this long even if the deadline is near.
constexpr Duration kMinQueryDeadline = std::chrono::seconds(1);
constexpr int kQueryIntervalMs = 50;

Duration TimeLeft(MonotonicTime end) {
  return std::max<Duration>(end - SystemClock().Now(), Duration::zero());
}

// Returns false at the deadline.
bool WaitForExit(int pidfd, MonotonicTime end) {
  for (;;) {
    const auto remaining_ms = std::chrono::ceil<std::chrono::milliseconds>(TimeLeft(end)).count();
    // Readable when the process has ended (pidfd_open(2)).
    pollfd wait{pidfd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(remaining_ms));
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) return false;
  }
}

}  // namespace

std::string_view NameOf(EngineKind engine) {
  switch (engine) {
    case EngineKind::kContainerd:
      return "containerd";
    case EngineKind::kDocker:
      return "docker";
    case EngineKind::kCrio:
      return "crio";
  }
  return "";
}

Result<EngineInfo> Reloader::Query(Duration deadline) const {
  ASSIGN_OR_RETURN(const std::string socket, host_.Resolve(options_.socket));
  return QueryEngine(options_.engine, socket, deadline);
}

Status Reloader::Prepare() {
  const auto answer = Query(std::min(kQueryDeadline, options_.timeout));
  if (answer.ok()) info_before_ = *answer;
  if (answer.ok() && answer->serves_cri) RequireCri();
  if (options_.mode == RestartMode::kNone) {
    reload_description_ = "not reloaded because of --restart-mode=none";
    return Status::Ok();
  }
  if (options_.mode == RestartMode::kSystemd ||
      (options_.mode == RestartMode::kAuto && UnitIsActive())) {
    method_ = RestartMode::kSystemd;
    reload_description_ = fmt::format("systemctl restart {}", NameOf(options_.engine));
    return Status::Ok();
  }
  if (!answer.ok() && options_.mode == RestartMode::kAuto &&
      answer.status().code() == Code::kUnavailable) {
    reload_description_ =
        fmt::format("{} is not running ({}): it reads the configuration when it starts",
                    NameOf(options_.engine), answer.status().message());
    return Status::Ok();
  }
  if (!answer.ok()) {
    return Error(Code::kFailedPrecondition,
                 "{} does not answer on {}: {}: check that the socket's directory is mounted and "
                 "--socket is right",
                 NameOf(options_.engine), options_.socket, answer.status().message());
  }
  if (options_.engine == EngineKind::kCrio && options_.mode == RestartMode::kAuto) {
    return Error(
        Code::kFailedPrecondition,
        "crio uses a new runtime only after a restart, and it has no active systemd unit below "
        "{}/: run with the host's root mounted, or with --restart-mode=signal if its supervisor "
        "starts it again after SIGTERM, or with --restart-mode=none and restart it yourself",
        host_.root());
  }
  return PrepareSignal();
}

bool Reloader::Serves() const {
  const auto answer = Query(std::min(kQueryDeadline, options_.timeout));
  return answer.ok() && CheckExpectation(*answer, {}).ok();
}

bool Reloader::AwaitEngine() const {
  return WaitUntilServes({}, SystemClock().Now() + options_.timeout).ok();
}

Status Reloader::PrepareSignal() {
  if (info_before_->pid <= 1) {
    return Error(
        Code::kFailedPrecondition,
        "cannot signal {}: the engine's process is {}: run with hostPID: true, or with the "
        "host's root mounted and --restart-mode=systemd, or --restart-mode=none and restart "
        "it yourself",
        NameOf(options_.engine),
        info_before_->pid == 0 ? "not in this pid namespace" : "the init process");
  }
  method_ = RestartMode::kSignal;
  reload_description_ = fmt::format("{} to {} (pid {})", ExitsOnReload() ? "SIGTERM" : "SIGHUP",
                                    NameOf(options_.engine), info_before_->pid);
  return Status::Ok();
}

bool Reloader::UnitIsActive() const {
  // The directory exists only if systemd is the init system (sd_booted(3)).
  if (!host_.Exists("/run/systemd/system")) return false;
  const std::string systemctl = FindHostProgram(host_, "systemctl");
  if (systemctl.empty()) return false;
  const auto result =
      RunOnHost(host_, {systemctl, "is-active", "--quiet", std::string(NameOf(options_.engine))},
                kQueryDeadline);
  return result.ok() && result->exit_code == 0;
}

Status Reloader::ReloadAndCheck(const Expectation& expectation) {
  if (!will_reload()) return Status::Ok();
  const MonotonicTime end = SystemClock().Now() + options_.timeout;
  RETURN_IF_ERROR(method_ == RestartMode::kSystemd ? RestartUnit() : Signal());
  return WaitUntilServes(expectation, end);
}

Status Reloader::RestartUnit() {
  const std::string systemctl = FindHostProgram(host_, "systemctl");
  if (systemctl.empty()) {
    return Error(Code::kFailedPrecondition, "there is no systemctl below {}/", host_.root());
  }
  ASSIGN_OR_RETURN(const SubprocessResult result,
                   RunOnHost(host_, {systemctl, "restart", std::string(NameOf(options_.engine))},
                             options_.timeout));
  if (result.exit_code == 0) return Status::Ok();
  return Error(Code::kUnavailable, "{}: exit code {}: {}", reload_description_, result.exit_code,
               result.err);
}

Status Reloader::Signal() {
  // Queries the pid again: at a rollback it is another process than at Prepare.
  const auto answer = Query(std::min(kQueryDeadline, options_.timeout));
  // The engine is not running. Its supervisor starts it, and it then reads the new files.
  if (!answer.ok() && answer.status().code() == Code::kUnavailable) return Status::Ok();
  RETURN_IF_ERROR(answer.status());
  if (answer->pid <= 1)
    return Error(Code::kFailedPrecondition, "the engine's process is not visible");
  // A pidfd refers to this process even if its pid is reused after its end.
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, answer->pid, 0)));
  if (!pidfd.valid()) return Status::FromErrno("pidfd_open", errno);
  const bool ends = ExitsOnReload();
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), ends ? SIGTERM : SIGHUP, nullptr, 0) != 0) {
    return Status::FromErrno(reload_description_, errno);
  }
  if (ends && !WaitForExit(pidfd.get(), SystemClock().Now() + options_.timeout)) {
    return Error(Code::kDeadlineExceeded, "{} did not exit on SIGTERM", NameOf(options_.engine));
  }
  return Status::Ok();
}

Status Reloader::WaitUntilServes(const Expectation& expectation, MonotonicTime end) const {
  for (;;) {
    const auto answer = Query(std::clamp(TimeLeft(end), kMinQueryDeadline, kQueryDeadline));
    const Status status = answer.ok() ? CheckExpectation(*answer, expectation) : answer.status();
    if (status.ok()) return status;
    if (TimeLeft(end) <= Duration::zero()) {
      return Error(Code::kDeadlineExceeded, "{} did not serve again within {} s: {}",
                   NameOf(options_.engine), std::chrono::duration<double>(options_.timeout).count(),
                   status.message());
    }
    ::poll(nullptr, 0, kQueryIntervalMs);
  }
}

Status Reloader::CheckExpectation(const EngineInfo& answer, const Expectation& expectation) const {
  if (requires_cri_ && !answer.serves_cri) {
    return Error(Code::kUnavailable, "the engine no longer serves the kubelet's interface (CRI)");
  }
  if (expectation.runtime.empty() || answer.runtimes.empty()) return Status::Ok();
  if (std::count(answer.runtimes.begin(), answer.runtimes.end(), expectation.runtime) == 0) {
    return Error(Code::kUnavailable, "the engine does not know the runtime {}",
                 expectation.runtime);
  }
  if (expectation.is_default && !answer.default_runtime.empty() &&
      answer.default_runtime != expectation.runtime) {
    return Error(Code::kUnavailable, "the engine's default runtime is {}", answer.default_runtime);
  }
  return Status::Ok();
}

}  // namespace tessera::engine
