// SPDX-License-Identifier: Apache-2.0
// Measures how much memory the cluster takes in the web console: its model and its meter of
// GPU-hours, against a fake API server in another process. Live memory is what the allocator has
// given out; the resident memory also has what it keeps, and the program.
//
//   console_memory_bench [nodes, 5000] [pods, 20000]
//
// The objects are those of console_bench.mjs, which measures the whole program with its viewers.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/console/cluster_model.h"
#include "src/console/usage_meter.h"
#include "src/device/assignment.h"
#include "src/device/node_annotation.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/testing/objects.h"

namespace tessera {
namespace {

constexpr int kGpus = 8;

struct Size {
  int nodes = 5'000;
  int pods = 20'000;
};

double MiBOf(std::string_view field) {
  const std::string status = ReadFile("/proc/self/status").value_or("");
  for (const std::string_view line : Split(status, '\n')) {
    if (line.starts_with(field)) return std::atof(line.data() + field.size() + 1) / 1024;
  }
  return -1;
}

double LiveMiB() {
  const struct mallinfo2 info = ::mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}

std::string NodeName(int number) { return fmt::format("gpu-node-{:05}", number); }
std::string UuidOf(int node, int gpu) {
  return fmt::format("GPU-{:08x}-7c1d-4e2f-9b3a-{:012x}", node, gpu);
}

kube::NodeObject NodeOf(int number) {
  kube::NodeObject node = ledger::testing::GpuNode(NodeName(number), 0);
  node.meta.uid = Uid(fmt::format("{:08x}-7c1d-4e2f-9b3a-{:012x}", number, 1));
  node.meta.resource_version = fmt::format("{}", number + 1);
  node.meta.labels = {{"gaia.tencent.com/gpu-pool", fmt::format("pool-{}", number % 4)}};
  device::NodeInventory inventory{.driver_version = "550.163.01", .cuda_version = 12040};
  for (int i = 0; i < kGpus; ++i) {
    inventory.gpus.push_back({.uuid = UuidOf(number, i),
                              .index = i,
                              .minor = i,
                              .model = "NVIDIA A100-SXM4-80GB",
                              .memory = GiB(80),
                              .pci_bus_id = fmt::format("0000:0{}:00.0", i),
                              .numa_node = i / 4,
                              .compute_capability = device::ComputeCapability{8, 0}});
  }
  inventory.links = device::LinkMatrix(kGpus);
  for (int a = 1; a < kGpus; ++a) {
    for (int b = 0; b < a; ++b) {
      inventory.links.Set(a, b, *device::LinkFromName(a / 4 == b / 4 ? "NV12+PIX" : "SYS"));
    }
  }
  node.meta.annotations[std::string(names::kAnnotationDevices)] =
      device::EncodeNodeInventory(inventory).value();
  return node;
}

// Four pods of a node hold two whole GPUs and two shares of a third. One pod in a thousand waits
// for more GPUs than a node has.
kube::PodObject PodOf(const Size& size, int number) {
  const int node = number % size.nodes, turn = number / size.nodes % 4;
  const bool share = turn >= 2, waits = number % 1000 == 999;
  std::map<std::string_view, std::string> limits{{names::kResourceGpu, waits ? "9" : "1"}};
  if (share && !waits) {
    limits = {{names::kResourceVcudaCore, "30"}, {names::kResourceVcudaMemory, "20"}};
  }
  kube::PodObject pod = ledger::testing::GpuPod(fmt::format("train-{}", number), limits);
  pod.meta.ns = fmt::format("team-{}", number % 17);
  pod.meta.uid = Uid(fmt::format("{:08x}-7c1d-4e2f-9b3a-{:012x}", number, 2));
  pod.meta.resource_version = fmt::format("{}", 1'000'000 + number);
  if (waits) return pod;
  device::Assignment assignment;
  assignment.containers["main"] = {
      {UuidOf(node, share ? 2 : turn), share ? MilliGpu(300) : kWholeGpu, GiB(share ? 5 : 80)}};
  return ledger::testing::BoundPod(
      std::move(pod), NodeName(node),
      {{std::string(names::kAnnotationAssignment), EncodeAssignment(assignment).value()}});
}

// Runs the fake API server.
[[noreturn]] void Serve(const Size& size, const Fd& ready_out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  EpollTaskRunner runner;
  net::IoThread io;
  kube::testing::FakeApiServer server(io, runner);
  std::vector<std::string> nodes, pods;
  for (int i = 0; i < size.nodes; ++i) nodes.push_back(kube::testing::MessageOf(NodeOf(i)));
  for (int i = 0; i < size.pods; ++i) pods.push_back(kube::testing::MessageOf(PodOf(size, i)));
  server.SetCollection("nodes", "Node", std::move(nodes));
  server.SetCollection("pods", "Pod", std::move(pods));
  (void)WriteFd(ready_out.get(), server.url().ToString());
  runner.Run();
  ::_exit(0);
}

class Reader : private console::ClusterModel::Delegate {
 public:
  explicit Reader(const std::string& server)
      : client_(io_, runner_, kube::Config{.server = net::ParseUrl(server).value()}, {}) {
    console::ModelOptions options;
    options.feed.quota_name.clear();
    options.feed.keeps_pod_labels = true;
    model_ = std::make_unique<console::ClusterModel>(
        client_, std::move(options), static_cast<console::ClusterModel::Delegate&>(*this));
  }

  void Run() {
    Print("before the cluster");
    runner_.Run();
    meter_.Tick(model_->ledger(), runner_.clock().Now(), runner_.clock().WallNow());
    std::printf("%zu nodes, %zu pods\n", model_->nodes().size(), model_->pods().size());
    Print("the cluster");
    ::malloc_trim(0);
    Print("after malloc_trim");
  }

 private:
  static void Print(const char* what) {
    std::printf("%-20s %7.1f MiB live, %7.1f MiB resident, %7.1f MiB at most\n", what, LiveMiB(),
                MiBOf("VmRSS"), MiBOf("VmHWM"));
    std::fflush(stdout);
  }
  void OnChanges(const console::ClusterModel::Changes&) override {}
  void OnState() override {
    if (model_->synced()) runner_.Quit();
  }

  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  console::UsageMeter meter_{"app"};
  std::unique_ptr<console::ClusterModel> model_;
};

int Main(int argc, char** argv) {
  Size size;
  if (argc > 1) size.nodes = std::atoi(argv[1]);
  if (argc > 2) size.pods = std::atoi(argv[2]);
  if (argc > 3 || size.nodes < 1 || size.pods < 0) {
    std::fprintf(stderr, "usage: console_memory_bench [nodes] [pods]\n");
    return 64;
  }
  int from_server[2];
  if (::pipe2(from_server, O_CLOEXEC) != 0) return 1;
  const Fd ready(from_server[0]);
  Fd ready_out(from_server[1]);
  const pid_t server = ::fork();
  if (server == 0) Serve(size, ready_out);
  ready_out.Reset(-1);
  char url[128] = "";
  const bool ok = ::read(ready.get(), url, sizeof(url) - 1) > 0;
  if (ok) Reader(url).Run();
  ::kill(server, SIGKILL);
  ::waitpid(server, nullptr, 0);
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) { return tessera::Main(argc, argv); }
