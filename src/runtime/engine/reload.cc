// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/reload.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "src/base/file.h"
#include "src/runtime/engine/host_program.h"

namespace tessera::engine {
namespace {

constexpr Duration kAskDeadline = std::chrono::seconds(5);
// The last question of a wait is worth an answer, too.
constexpr Duration kLeastAskDeadline = std::chrono::seconds(1);
constexpr int kAskEveryMs = 50;

Duration Left(MonotonicTime end) {
  return std::max<Duration>(end - SystemClock().Now(), Duration::zero());
}

// Returns false at the deadline.
bool WaitForExit(int pidfd, MonotonicTime end) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(Left(end)).count();
    pollfd wait{pidfd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left));
    if (ready >= 0) return ready > 0;
    if (errno != EINTR) return false;
  }
}

}  // namespace

std::string_view NameOf(Engine engine) {
  switch (engine) {
    case Engine::kContainerd:
      return "containerd";
    case Engine::kDocker:
      return "docker";
    case Engine::kCrio:
      return "crio";
  }
  return "";
}

Result<EngineAnswer> Reloader::Ask(Duration deadline) const {
  ASSIGN_OR_RETURN(const std::string socket, host_.Resolve(options_.socket));
  return AskEngine(options_.engine, socket, deadline);
}

Status Reloader::Prepare() {
  const auto answer = Ask(std::min(kAskDeadline, options_.timeout));
  if (answer.ok()) before_ = *answer;
  if (answer.ok() && answer->serves_cri) RequireCri();
  if (options_.mode == RestartMode::kNone) {
    words_ = "not reloaded, as --restart-mode=none asks";
    return Status::Ok();
  }
  if (options_.mode == RestartMode::kSystemd ||
      (options_.mode == RestartMode::kAuto && UnitIsActive())) {
    how_ = RestartMode::kSystemd;
    words_ = fmt::format("systemctl restart {}", NameOf(options_.engine));
    return Status::Ok();
  }
  if (!answer.ok() && options_.mode == RestartMode::kAuto &&
      answer.status().code() == Code::kUnavailable) {
    words_ = fmt::format("{} does not run ({}): it reads the configuration when it starts",
                         NameOf(options_.engine), answer.status().message());
    return Status::Ok();
  }
  if (!answer.ok()) {
    return Error(
        Code::kFailedPrecondition,
        "{} does not answer on {}: {}. Is the socket's folder mounted, and --socket right?",
        NameOf(options_.engine), options_.socket, answer.status().message());
  }
  if (options_.engine == Engine::kCrio && options_.mode == RestartMode::kAuto) {
    return Error(
        Code::kFailedPrecondition,
        "crio uses a new runtime only after a restart, and there is no active systemd unit of it "
        "below {}/. Run with the host's root mounted, or with --restart-mode=signal if its "
        "supervisor starts it again after SIGTERM, or with --restart-mode=none and restart it "
        "yourself",
        host_.root());
  }
  return PrepareSignal();
}

bool Reloader::Serves() const {
  const auto answer = Ask(std::min(kAskDeadline, options_.timeout));
  return answer.ok() && Judge(*answer, {}).ok();
}

bool Reloader::AwaitEngine() const {
  return WaitUntilServes({}, SystemClock().Now() + options_.timeout).ok();
}

Status Reloader::PrepareSignal() {
  if (before_->pid <= 1) {
    return Error(
        Code::kFailedPrecondition,
        "{} cannot be told to reload: its process is {}. Run with hostPID: true, or with the "
        "host's root mounted and --restart-mode=systemd, or --restart-mode=none and restart "
        "it yourself",
        NameOf(options_.engine),
        before_->pid == 0 ? "not in this pid namespace" : "the init process");
  }
  how_ = RestartMode::kSignal;
  words_ = fmt::format("{} to {} (pid {})", EndsOnReload() ? "SIGTERM" : "SIGHUP",
                       NameOf(options_.engine), before_->pid);
  return Status::Ok();
}

bool Reloader::UnitIsActive() const {
  if (!host_.Exists("/run/systemd/system")) return false;
  const std::string systemctl = FindHostProgram(host_, "systemctl");
  if (systemctl.empty()) return false;
  const auto result =
      RunOnHost(host_, {systemctl, "is-active", "--quiet", std::string(NameOf(options_.engine))},
                kAskDeadline);
  return result.ok() && result->exit_code == 0;
}

Status Reloader::ReloadAndCheck(const Expectation& expectation) {
  if (!will_reload()) return Status::Ok();
  const MonotonicTime end = SystemClock().Now() + options_.timeout;
  RETURN_IF_ERROR(how_ == RestartMode::kSystemd ? RestartUnit() : Signal());
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
  return Error(Code::kUnavailable, "{}: exit code {}: {}", words_, result.exit_code, result.err);
}

Status Reloader::Signal() {
  // The pid of now: a rollback meets another process than the one that Prepare saw.
  const auto answer = Ask(std::min(kAskDeadline, options_.timeout));
  if (!answer.ok() && answer.status().code() == Code::kUnavailable)
    return Status::Ok();  // starting
  RETURN_IF_ERROR(answer.status());
  if (answer->pid <= 1)
    return Error(Code::kFailedPrecondition, "the engine's process is not visible");
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, answer->pid, 0)));
  if (!pidfd.valid()) return Status::FromErrno("pidfd_open", errno);
  const bool ends = EndsOnReload();
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), ends ? SIGTERM : SIGHUP, nullptr, 0) != 0) {
    return Status::FromErrno(words_, errno);
  }
  if (ends && !WaitForExit(pidfd.get(), SystemClock().Now() + options_.timeout)) {
    return Error(Code::kDeadlineExceeded, "{} did not end on SIGTERM", NameOf(options_.engine));
  }
  return Status::Ok();
}

Status Reloader::WaitUntilServes(const Expectation& expectation, MonotonicTime end) const {
  for (;;) {
    const auto answer = Ask(std::clamp(Left(end), kLeastAskDeadline, kAskDeadline));
    const Status status = answer.ok() ? Judge(*answer, expectation) : answer.status();
    if (status.ok()) return status;
    if (Left(end) <= Duration::zero()) {
      return Error(Code::kDeadlineExceeded, "{} did not come back within {} s: {}",
                   NameOf(options_.engine), std::chrono::duration<double>(options_.timeout).count(),
                   status.message());
    }
    ::poll(nullptr, 0, kAskEveryMs);
  }
}

Status Reloader::Judge(const EngineAnswer& answer, const Expectation& expectation) const {
  if (requires_cri_ && !answer.serves_cri) {
    return Error(Code::kUnavailable, "the kubelet's interface is not served any more");
  }
  if (expectation.runtime.empty() || answer.runtimes.empty()) return Status::Ok();
  if (std::count(answer.runtimes.begin(), answer.runtimes.end(), expectation.runtime) == 0) {
    return Error(Code::kUnavailable, "it does not know the runtime {}", expectation.runtime);
  }
  if (expectation.is_default && !answer.default_runtime.empty() &&
      answer.default_runtime != expectation.runtime) {
    return Error(Code::kUnavailable, "its default runtime is {}", answer.default_runtime);
  }
  return Status::Ok();
}

}  // namespace tessera::engine
