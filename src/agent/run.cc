// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "src/agent/agent.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/run_service.h"
#include "src/base/version.h"

namespace tessera::agent {
namespace {

// glibc would give each of gRPC's threads an arena of its own, which keeps its freed memory.
constexpr int kMaxArenas = 1;

// Two agents must not write the same journal, and an earlier agent may still be stopping.
Result<Fd> LockState(const std::string& dir) {
  RETURN_IF_ERROR(MakeDirs(dir, 0700).Annotate("--state-dir"));
  const std::string path = JoinPath(dir, "agent.lock");
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return Status::FromErrno(path, errno).Annotate("--state-dir");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  Log(Severity::kWarning, "waiting for another tessera-agent to stop", {{"lock", path}});
  while (::flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return Status::FromErrno(path, errno);
  }
  return fd;
}

}  // namespace

int RunAgent(AgentOptions options) {
  ::mallopt(M_ARENA_MAX, kMaxArenas);
  // The agent keeps no channel, so gRPC needs no check of channels every five seconds.
  ::setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "0", 0);
  Status status = CompleteOptions(&options);
  if (!status.ok()) return LogFailure(status);
  Result<Fd> lock = LockState(options.state_dir);
  if (!lock.ok()) return LogFailure(lock.status());
  const Fd signals = BlockSignals({SIGTERM, SIGINT, SIGQUIT, SIGHUP});
  EpollTaskRunner runner;
  net::IoThread io;
  Agent agent(&runner, &io, std::move(options));
  runner.WatchReadable(signals.get(), [&] {
    signalfd_siginfo info;
    if (::read(signals.get(), &info, sizeof(info)) != sizeof(info)) return;
    if (info.ssi_signo == SIGHUP) return agent.Refresh();
    Log(Severity::kInfo, "tessera-agent stops", {{"signal", info.ssi_signo}});
    runner.Quit();
  });
  runner.Post([&] {
    Log(Severity::kInfo, "tessera-agent starts", {{"version", kTesseraVersion}});
    status = agent.Start();
    if (!status.ok()) runner.Quit();
    // Returns to the system the memory that only the start needed.
    runner.PostDelayed(std::chrono::seconds(2), [] { ::malloc_trim(0); });
  });
  runner.Run();
  runner.Unwatch(signals.get());
  return status.ok() ? 0 : LogFailure(status);
}

}  // namespace tessera::agent
