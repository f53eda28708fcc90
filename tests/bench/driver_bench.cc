// SPDX-License-Identifier: Apache-2.0
// Measures the time from the appearance of a driver's files until the kubelet can allocate its
// GPUs, and from their disappearance until it can allocate none. The real agent runs on a node
// without a driver, beside a stand-in for the kubelet. The root of a simulated driver container
// appears and disappears by rename, as a mount does.
//
//   driver_bench --agent bin/tessera-agent --simgpu bin/simgpu --library-dir lib [--rounds 50]
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
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
  int rounds = 50;
};

class AgentProcess {
 public:
  explicit AgentProcess(std::vector<std::string> arguments) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    if (::posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), environ) != 0) pid_ = -1;
  }
  ~AgentProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_ = -1;
};

// Milliseconds until the kubelet has `gpus` healthy devices; negative after 30 s.
double WaitForGpus(const FakeKubelet& kubelet, int gpus, Clock::time_point since) {
  const auto healthy = [&] {
    const auto devices = kubelet.devices();
    return std::ranges::count_if(devices, [](const FakeKubelet::Device& d) { return d.healthy; });
  };
  while (healthy() != gpus) {
    if (Clock::now() - since > std::chrono::seconds(30)) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

void PrintRow(const char* what, std::vector<double> took_ms) {
  std::sort(took_ms.begin(), took_ms.end());
  const size_t p99 = std::min(took_ms.size() - 1, took_ms.size() * 99 / 100);
  fmt::print("| {} | {:.0f} | {:.0f} | {:.0f} |\n", what, took_ms[took_ms.size() / 2], took_ms[p99],
             took_ms.back());
}

int Run(const Options& options) {
  const TempDir dir("driver-bench");
  const std::string host = dir.path() + "/host";
  const std::string root = host + "/run/nvidia/driver", away = host + "/run/nvidia/away";
  (void)MakeDirs(host + "/run/nvidia");
  ::setenv("SIMGPU_DEV_ROOT", host.c_str(), 1);
  (void)MakeDirs(dir.path() + "/kubelet");
  const auto made =
      RunProgram({options.simgpu, "--root", root, "create", "--dev-root", host, "--device-files",
                  "--gpus", std::to_string(options.gpus), "--library-dir", options.library_dir},
                 std::chrono::seconds(30));
  if (!made.ok() || made->exit_code != 0) {
    fmt::print(stderr, "no simulated node: {}\n", made.ok() ? made->err : made.status().message());
    return 1;
  }
  std::filesystem::rename(root, away);
  FakeKubelet kubelet(dir.path() + "/kubelet");
  kubelet.Start();
  const AgentProcess agent(
      {options.agent, "--driver-root=/", "--driver-root-ctr-path=" + host, "--dev-root=/",
       "--dev-root-ctr-path=" + host, "--kubelet-socket=" + dir.path() + "/kubelet/kubelet.sock",
       "--pod-resources-socket=" + dir.path() + "/kubelet/pods.sock",
       "--state-dir=" + dir.path() + "/state", "--grant-socket=" + dir.path() + "/grant.sock",
       "--validations-dir=" + host + "/run/nvidia/validations",
       "--limits-dir=", "--shared-resources=none", "--node-name=", "--metrics-address=127.0.0.1:0",
       "--gpu-manager-address="});
  if (!kubelet.WaitForRegistrations(1, std::chrono::seconds(20))) {
    fmt::print(stderr, "the agent did not register\n");
    return 1;
  }
  std::vector<double> came_ms, went_ms;
  for (int round = 0; round < options.rounds; ++round) {
    // Rounds begin at different moments of the agent's interval.
    if (!SleepUnlessInterrupted(std::chrono::milliseconds(1500 + 37 * (round % 27)))) {
      return kInterruptedExit;
    }
    std::filesystem::rename(away, root);
    came_ms.push_back(WaitForGpus(kubelet, options.gpus, Clock::now()));
    std::filesystem::rename(root, away);
    went_ms.push_back(WaitForGpus(kubelet, 0, Clock::now()));
    if (came_ms.back() < 0 || went_ms.back() < 0) {
      fmt::print(stderr, "round {}: the GPUs did not {}\n", round,
                 came_ms.back() < 0 ? "come" : "go");
      return 1;
    }
  }
  fmt::print("| {} rounds, {} GPUs, ms | p50 | p99 | max |\n|---|---|---|---|\n", options.rounds,
             options.gpus);
  PrintRow("driver files appear to allocatable", came_ms);
  PrintRow("driver files gone to none allocatable", went_ms);
  return 0;
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  tessera::testing::Options options;
  CLI::App app{"Measures how fast tessera-agent follows a driver that comes and goes"};
  app.add_option("--agent", options.agent, "the program")->required();
  app.add_option("--simgpu", options.simgpu, "makes the simulated driver")->required();
  app.add_option("--library-dir", options.library_dir, "the simulated libraries")->required();
  app.add_option("--gpus", options.gpus, "GPUs of the node")->capture_default_str();
  app.add_option("--rounds", options.rounds, "how often the driver comes and goes")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  tessera::testing::CatchInterrupts();
  return tessera::testing::Run(options);
}
