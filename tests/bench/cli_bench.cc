// SPDX-License-Identifier: Apache-2.0
// Measures how long a user waits for `tessera` on a large cluster. A fake API server has 5,000
// nodes of 8 GPUs and 20,000 pods with GPUs, in protobuf and with the fields that objects usually
// have. The program runs as a user starts it. Prints for each command wall time, processor time and
// memory of the program alone. The server's own work is in the wall time. The server is a process
// of its own, because the kernel counts the memory of the process that forks as the program's.
//   cli_bench PATH_OF_TESSERA [nodes, 5000] [pods, 20000] [runs, 5]
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/device/assignment.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/testing/objects.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using ledger::testing::UuidOf;

struct Size {
  int nodes = 5000;
  int pods = 20000;
};

std::string NodeName(int number) { return fmt::format("gpu-node-{:05}", number); }

std::vector<std::string> Nodes(const Size& size) {
  std::vector<std::string> messages;
  for (int i = 0; i < size.nodes; ++i) {
    kube::NodeObject node = ledger::testing::GpuNode(NodeName(i), 8);
    node.meta.resource_version = fmt::format("{}", i + 1);
    node.internal_ip = fmt::format("10.{}.{}.{}", i / 62500, i / 250 % 250, i % 250);
    messages.push_back(kube::testing::MessageOf(node));
  }
  return messages;
}

// Each node has four pods: two with a GPU each, and two that share a third GPU. One pod in a
// thousand waits for 9 GPUs.
kube::PodObject PodOf(const Size& size, int number) {
  const int node = number % size.nodes;
  const int turn = number / size.nodes % 4;
  const bool share = turn >= 2;
  std::map<std::string_view, std::string> limits{{names::kResourceGpu, "1"}};
  if (share) limits = {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "20"}};
  if (number % 1000 == 999) limits = {{names::kResourceGpu, "9"}};
  kube::PodObject pod = ledger::testing::GpuPod(fmt::format("train-{:05}", number), limits);
  pod.meta.resource_version = fmt::format("{}", number + 1);
  pod.meta.ns = fmt::format("team-{}", number % 17);
  if (number % 1000 == 999) return pod;
  pod.phase = kube::PodPhase::kRunning;
  device::Assignment assignment;
  assignment.containers["main"] = {{UuidOf(NodeName(node), share ? 2 : turn),
                                    MilliGpu(share ? 300 : 1000), share ? GiB(5) : GiB(80)}};
  return ledger::testing::BoundPod(
      std::move(pod), NodeName(node),
      {{std::string(names::kAnnotationAssignment), EncodeAssignment(assignment).value()}});
}

std::vector<std::string> Pods(const Size& size) {
  std::vector<std::string> messages;
  for (int i = 0; i < size.pods; ++i) {
    messages.push_back(kube::testing::MessageOf(PodOf(size, i)));
  }
  return messages;
}

struct Run {
  double wall_ms = 0;
  double cpu_ms = 0;
  double rss_mib = 0;
  bool ok = false;
};

Run RunOnce(const std::vector<std::string>& words, const std::string& kubeconfig) {
  std::fflush(stdout);  // or the child would print it once more
  const auto start = Clock::now();
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("KUBECONFIG", kubeconfig.c_str(), 1);
    if (std::freopen("/dev/null", "w", stdout) == nullptr) ::_exit(127);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  ::wait4(child, &status, 0, &usage);
  const auto ms = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return {std::chrono::duration<double, std::milli>(Clock::now() - start).count(),
          ms(usage.ru_utime) + ms(usage.ru_stime), static_cast<double>(usage.ru_maxrss) / 1024,
          WIFEXITED(status) && WEXITSTATUS(status) == 0};
}

// Takes the best of some runs, because other work on the machine only adds time.
bool Measure(const std::vector<std::string>& words, const std::string& kubeconfig, int runs) {
  Run best{.wall_ms = 1e12};
  for (int i = 0; i < runs; ++i) {
    const Run run = RunOnce(words, kubeconfig);
    if (!run.ok) return false;
    if (run.wall_ms < best.wall_ms) best = run;
  }
  std::string shown = "tessera";
  for (size_t i = 1; i < words.size(); ++i) shown += " " + words[i];
  std::printf("%-40s %8.0f ms %8.0f ms %8.0f MiB\n", shown.c_str(), best.wall_ms, best.cpu_ms,
              best.rss_mib);
  return true;
}

// Serves until it is killed, or its parent ends. Writes a word to `ready` once it serves.
[[noreturn]] void Serve(const Size& size, const std::string& kubeconfig, const Fd& ready) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  EpollTaskRunner runner;
  net::IoThread io;
  kube::testing::FakeApiServer server(io, runner);
  server.SetCollection("nodes", "Node", Nodes(size));
  server.SetCollection("pods", "Pod", Pods(size));
  (void)WriteFileAtomically(kubeconfig, server.Kubeconfig("team-0"), 0600);
  (void)WriteFd(ready.get(), "ready");
  runner.Run();
  ::_exit(0);
}

bool MeasureAll(const char* program, const std::string& kubeconfig, int runs) {
  const std::vector<std::vector<std::string>> commands = {
      {"nodes"},
      {"gpus"},
      {"pods", "-A"},
      {"pods", "-n", "team-0"},
      {"pods", "-A", "-o", "json"},
      {"quota"},
      {"inspect-gpushare"},
      {"explain", "team-0/train-00000"},
      {"explain", fmt::format("team-{}/train-00999", 999 % 17)}};
  for (const std::vector<std::string>& words : commands) {
    std::vector<std::string> all{program};
    all.insert(all.end(), words.begin(), words.end());
    if (!Measure(all, kubeconfig, runs)) return false;
  }
  return true;
}

int Main(int argc, char** argv) {
  Size size;
  if (argc > 2) size.nodes = std::atoi(argv[2]);
  if (argc > 3) size.pods = std::atoi(argv[3]);
  const int runs = argc > 4 ? std::atoi(argv[4]) : 5;
  if (argc < 2 || size.nodes < 1 || size.pods < 1 || runs < 1) {
    std::fprintf(stderr, "usage: cli_bench PATH_OF_TESSERA [nodes] [pods] [runs]\n");
    return 64;
  }
  const TempDir dir;
  const std::string kubeconfig = JoinPath(dir.path(), "config");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return 1;
  const Fd ready(ends[0]);
  Fd ready_out(ends[1]);
  const pid_t server = ::fork();
  if (server == 0) Serve(size, kubeconfig, ready_out);
  ready_out.Reset(-1);
  char word[8];
  bool ok = ::read(ready.get(), word, sizeof(word)) > 0;
  std::printf("%d nodes, %d pods; best of %d\n%-40s %11s %11s %12s\n", size.nodes, size.pods, runs,
              "", "wall", "processor", "memory");
  ok = ok && MeasureAll(argv[1], kubeconfig, runs);
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  if (!ok) std::fprintf(stderr, "a command failed\n");
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
