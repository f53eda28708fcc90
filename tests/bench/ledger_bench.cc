// SPDX-License-Identifier: Apache-2.0
// Measures how much memory the ledger of a large cluster takes in the scheduler, and whether it
// grows: the scheduler's own feed, ledger and default policy against a fake API server in another
// process.
//
//   ledger_bench [nodes, 15000] [pods without GPUs, 450000] [pods with GPUs, 20000]
//
// The cluster is listed eleven times, each time with a tenth of the pods replaced. Then 100,000
// nodes join and leave.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/feed.h"
#include "src/ledger/testing/objects.h"

namespace tessera {
namespace {

using ledger::testing::UuidOf;
using std::chrono::milliseconds;

struct Size {
  int nodes = 15'000;
  int cpu_pods = 450'000;
  int gpu_pods = 20'000;

  int pods() const { return cpu_pods + gpu_pods; }
};
constexpr int kGenerations = 10;

double MiBOf(std::string_view field) {
  const std::string status = ReadFile("/proc/self/status").value_or("");
  for (const std::string_view line : Split(status, '\n')) {
    if (line.starts_with(field)) return std::atof(line.data() + field.size() + 1) / 1024;
  }
  return -1;
}

std::string NodeName(int number) { return fmt::format("gpu-node-{:05}", number); }

kube::NodeObject NodeOf(int number) {
  kube::NodeObject node = ledger::testing::GpuNode(NodeName(number), 8);
  node.meta.resource_version = fmt::format("{}", number + 1);
  return node;
}

// The generation in which the pod of this number was created. In each generation a tenth of the
// pods are replaced, as by rolling updates, on all nodes.
int CreatedIn(int generation, int number) {
  for (; generation > 0 && generation % 10 != number / 7 % 10; --generation) {
  }
  return generation;
}

// A UID in the format of the API server.
Uid UidOf(int generation, int number) {
  return Uid(fmt::format("{:08x}-7c1d-4e2f-9b3a-{:012x}", CreatedIn(generation, number), number));
}

kube::PodObject PodOf(const Size& size, int generation, int number) {
  const bool gpu = number >= size.cpu_pods;  // pods with GPUs are listed last
  const int node = number % size.nodes;
  std::map<std::string_view, std::string> amounts{{"cpu", fmt::format("{}m", 100 + number % 40)},
                                                  {"memory", fmt::format("{}Mi", 64 + number % 9)}};
  if (gpu) amounts.emplace(names::kResourceGpu, "1");
  const std::string replica_set =
      fmt::format("{:08x}{}", number / 7, CreatedIn(generation, number));
  kube::PodObject pod = ledger::testing::GpuPod(
      fmt::format("service-{}-{}-{:05x}", gpu ? "gpu" : "web", replica_set, number), amounts);
  pod.meta.ns = fmt::format("team-{}", number % 170);
  pod.meta.uid = UidOf(generation, number);
  pod.meta.resource_version = fmt::format("{}", 1'000'000 * (generation + 1) + number);
  pod.meta.labels = {{"app", fmt::format("service-{}", number / 70)},
                     {"pod-template-hash", replica_set}};
  pod.phase = kube::PodPhase::kRunning;
  StringMap annotations;
  if (gpu) {
    device::Assignment assignment;
    assignment.containers["main"] = {
        {UuidOf(NodeName(node), (number - size.cpu_pods) / size.nodes % 8), kWholeGpu, GiB(80)}};
    annotations = {
        {std::string(names::kAnnotationAssignment), EncodeAssignment(assignment).value()}};
  }
  return ledger::testing::BoundPod(std::move(pod), NodeName(node), annotations);
}

// Runs the fake API server. Each byte that it reads starts another generation of pods.
[[noreturn]] void Serve(const Size& size, const Fd& ready_out, const Fd& next) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  EpollTaskRunner runner;
  net::IoThread io;
  kube::testing::FakeApiServer server(io, runner);
  int generation = 0;
  const auto set_pods = [&] {
    std::vector<std::string> messages;
    for (int i = 0; i < size.pods(); ++i) {
      messages.push_back(kube::testing::MessageOf(PodOf(size, generation, i)));
    }
    server.SetCollection("pods", "Pod", std::move(messages));
  };
  std::vector<std::string> nodes;
  for (int i = 0; i < size.nodes; ++i) nodes.push_back(kube::testing::MessageOf(NodeOf(i)));
  server.SetCollection("nodes", "Node", std::move(nodes));
  set_pods();
  (void)WriteFd(ready_out.get(), server.url().ToString());
  std::thread reader([&] {
    char byte;
    while (::read(next.get(), &byte, 1) == 1) {
      runner.Post([&] {
        ++generation;
        set_pods();
        // "410 Gone" tells the client that its version is too old, so that it lists again.
        server.Refuse("pods", 410);
        server.EndWatches();
        runner.PostDelayed(milliseconds(300), [&] { server.Allow("pods"); });
      });
    }
  });
  runner.Run();
  ::_exit(0);
}

class Follower : private ledger::ClusterFeed::Delegate {
 public:
  Follower(const Size& size, const std::string& server, Fd next)
      : size_(size), next_(std::move(next)) {
    client_.emplace(io_, runner_, kube::Config{.server = net::ParseUrl(server).value()},
                    kube::ClientOptions{});
    ledger_ = ledger::ClusterLedger::Make({}, &runner_.clock()).value();
    feed_.emplace(*client_, *ledger_,
                  ledger::FeedOptions{.quota_name = "", .watches_budgets = true},
                  static_cast<ledger::ClusterFeed::Delegate&>(*this));
  }

  void Run() {
    Poll();
    runner_.Run();
  }

 private:
  void OnSynced() override {}
  void OnError(std::string_view what, const Status& status) override {
    if (generation_ == 0) fmt::print(stderr, "{}: {}\n", what, status.ToString());
  }

  // Whether the ledger has the last pod of generation_.
  bool HasGeneration() const {
    const kube::PodObject last = PodOf(size_, generation_, size_.pods() - 1);
    const kube::PodObject* known = feed_->FindPod(kube::KeyOf(last.meta));
    return feed_->synced() && known != nullptr &&
           known->meta.resource_version == last.meta.resource_version;
  }

  void Poll() {
    if (HasGeneration()) {
      std::printf("%-34s %8.0f MiB, at most %.0f MiB\n",
                  fmt::format("listed {} times", generation_ + 1).c_str(), MiBOf("VmRSS"),
                  MiBOf("VmHWM"));
      std::fflush(stdout);
      if (generation_++ == kGenerations) return runner_.Quit();
      (void)WriteFd(next_.get(), "n");
    }
    runner_.PostDelayed(milliseconds(200), [this] { Poll(); });
  }

  const Size size_;
  const Fd next_;
  EpollTaskRunner runner_;
  net::IoThread io_;
  std::optional<kube::Client> client_;
  std::unique_ptr<ledger::ClusterLedger> ledger_;
  std::optional<ledger::ClusterFeed> feed_;
  int generation_ = 0;
};

// Adds nodes with a pod of each kind. The oldest node leaves when there are too many nodes.
void JoinAndLeave(int nodes, int at_a_time) {
  const SystemClock clock;
  const auto ledger = ledger::ClusterLedger::Make({}, &clock).value();
  const Size size{.nodes = nodes, .cpu_pods = nodes, .gpu_pods = nodes};
  for (int i = 0; i < nodes; ++i) {
    ledger->SetNode(NodeOf(i));
    ledger->SetPod(PodOf(size, 0, i));
    ledger->SetPod(PodOf(size, 0, nodes + i));
    // Evaluates a pod that waits all the time, so that the policy's tables are in use.
    const auto query = ledger->MakeQuery(
        ledger::testing::GpuPod("waits", {{names::kResourceGpu, fmt::format("{}", 1 + i % 8)}}));
    (void)ledger->Scores(*query);
    if (i >= at_a_time) {
      const int gone = i - at_a_time;
      ledger->RemoveNode(NodeName(gone));
      ledger->RemovePod(UidOf(0, gone));
      ledger->RemovePod(UidOf(0, nodes + gone));
    }
    if ((i + 1) % (nodes / 10) == 0) {
      std::printf("%-34s %8.0f MiB\n", fmt::format("{} nodes have joined", i + 1).c_str(),
                  MiBOf("VmRSS"));
    }
  }
}

// Runs `work` in a process of its own, so that its memory is measured alone.
template <typename Work>
bool InProcess(Work&& work) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    std::fflush(nullptr);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int Main(int argc, char** argv) {
  Size size;
  if (argc > 1) size.nodes = std::atoi(argv[1]);
  if (argc > 2) size.cpu_pods = std::atoi(argv[2]);
  if (argc > 3) size.gpu_pods = std::atoi(argv[3]);
  if (argc > 4 || size.nodes < 1 || size.cpu_pods < 0 || size.gpu_pods < 1) {
    std::fprintf(stderr, "usage: ledger_bench [nodes] [pods without GPUs] [pods with GPUs]\n");
    return 64;
  }
  int to_server[2], from_server[2];
  if (::pipe2(to_server, O_CLOEXEC) != 0 || ::pipe2(from_server, O_CLOEXEC) != 0) return 1;
  const Fd next_end(to_server[0]), ready(from_server[0]);
  Fd next(to_server[1]), ready_out(from_server[1]);
  const pid_t server = ::fork();
  if (server == 0) Serve(size, ready_out, next_end);
  ready_out.Reset(-1);
  char url[128] = "";
  bool ok = ::read(ready.get(), url, sizeof(url) - 1) > 0;
  std::printf("%d nodes, %d pods without GPUs, %d with\n", size.nodes, size.cpu_pods,
              size.gpu_pods);
  ok = ok && InProcess([&] { Follower(size, url, std::move(next)).Run(); });
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  std::printf("\n1,000 nodes at a time, with a pod of each kind\n");
  ok = ok && InProcess([] { JoinAndLeave(100'000, 1'000); });
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
