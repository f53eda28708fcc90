// SPDX-License-Identifier: Apache-2.0
// Measures the cost of the agent on a node: the time from exec to registration, memory, and CPU
// while nothing happens. Runs the real program on a simulated node, beside a stand-in for the
// kubelet.
//
//   agent_bench --agent bin/tessera-agent --simgpu bin/simgpu --library-dir lib [--idle 60]
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "src/base/file.h"
#include "src/base/subprocess.h"
#include "tests/bench/interrupt.h"
#include "tests/component/fake_kubelet.h"

namespace tessera::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string agent;
  std::string simgpu;
  std::string library_dir;
  int gpus = 8;
  int runs = 20;
  int idle_s = 60;
};

// One run of the agent.
class Process {
 public:
  Process(const Options& options, const std::string& dir, const std::string& sockets)
      : started_(Clock::now()) {
    std::vector<std::string> arguments = {options.agent,
                                          "--driver-root",
                                          dir + "/driver",
                                          "--dev-root",
                                          dir,
                                          "--kubelet-socket",
                                          sockets + "/kubelet.sock",
                                          "--pod-resources-socket",
                                          sockets + "/pods.sock",
                                          "--state-dir",
                                          dir + "/state",
                                          "--grant-socket",
                                          dir + "/grant.sock",
                                          "--metrics-address",
                                          "127.0.0.1:0",
                                          "--node-name",
                                          ""};
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) pid_ = -1;
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }
  Clock::time_point started() const { return started_; }

  long StatusKiB(const std::string& field) const {
    std::ifstream status(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(status, line);) {
      if (line.rfind(field + ":", 0) == 0) return std::atol(line.c_str() + field.size() + 1);
    }
    return -1;
  }
  double CpuSeconds() const {
    double nanos = 0;
    for (const auto& task :
         std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid_))) {
      double on_cpu = 0;
      std::ifstream(task.path() / "schedstat") >> on_cpu;
      nanos += on_cpu;
    }
    return nanos / 1e9;
  }

 private:
  pid_t pid_ = -1;
  const Clock::time_point started_;
};

int Run(const Options& options) {
  const TempDir dir("agent-bench");
  ::setenv("SIMGPU_DEV_ROOT", dir.path().c_str(), 1);
  const auto made = RunProgram({options.simgpu, "--root", dir.path() + "/driver", "create",
                                "--dev-root", dir.path(), "--device-files", "--gpus",
                                std::to_string(options.gpus), "--library-dir", options.library_dir},
                               std::chrono::seconds(30));
  if (!made.ok() || made->exit_code != 0) {
    fmt::print(stderr, "no simulated node: {}\n", made.ok() ? made->err : made.status().message());
    return 1;
  }
  const std::string sockets = dir.path() + "/kubelet";
  (void)MakeDirs(sockets);
  std::vector<double> took_ms;
  for (int run = 0; run < options.runs; ++run) {
    if (Interrupted()) return kInterruptedExit;
    FakeKubelet kubelet(sockets);
    kubelet.Start();
    const Process process(options, dir.path(), sockets);
    if (!kubelet.WaitForRegistrations(1, std::chrono::seconds(20))) {
      fmt::print(stderr, "the agent did not register\n");
      return 1;
    }
    took_ms.push_back(
        std::chrono::duration<double, std::milli>(kubelet.last_registered() - process.started())
            .count());
  }
  std::sort(took_ms.begin(), took_ms.end());
  fmt::print("| what | value |\n|---|---|\n");
  fmt::print("| exec to registered, {} runs: min / p50 / max | {:.1f} / {:.1f} / {:.1f} ms |\n",
             options.runs, took_ms.front(), took_ms[took_ms.size() / 2], took_ms.back());
  FakeKubelet kubelet(sockets);
  kubelet.Start();
  const Process process(options, dir.path(), sockets);
  if (!kubelet.WaitForRegistrations(1, std::chrono::seconds(20))) return 1;
  if (!SleepUnlessInterrupted(std::chrono::seconds(5))) return kInterruptedExit;
  fmt::print("| RSS, {} GPUs | {:.1f} MiB (anonymous {:.1f}, peak {:.1f}) |\n", options.gpus,
             process.StatusKiB("VmRSS") / 1024.0, process.StatusKiB("RssAnon") / 1024.0,
             process.StatusKiB("VmHWM") / 1024.0);
  fmt::print("| threads | {} |\n", process.StatusKiB("Threads"));
  const double before = process.CpuSeconds();
  if (!SleepUnlessInterrupted(std::chrono::seconds(options.idle_s))) return kInterruptedExit;
  const double used = process.CpuSeconds() - before;
  fmt::print("| CPU while nothing happens, {} s | {:.4f} s per minute |\n", options.idle_s,
             used * 60 / options.idle_s);
  return 0;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  tessera::testing::Options options;
  CLI::App app{"Measures start, memory and idle CPU of tessera-agent"};
  app.add_option("--agent", options.agent, "the program")->required();
  app.add_option("--simgpu", options.simgpu, "makes the simulated node")->required();
  app.add_option("--library-dir", options.library_dir, "libraries of the simulation")->required();
  app.add_option("--gpus", options.gpus)->capture_default_str();
  app.add_option("--runs", options.runs)->capture_default_str();
  app.add_option("--idle", options.idle_s, "seconds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  tessera::testing::CatchInterrupts();
  return tessera::testing::Run(options);
}
