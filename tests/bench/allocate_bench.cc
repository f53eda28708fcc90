// SPDX-License-Identifier: Apache-2.0
// Measures how long the kubelet waits for Allocate and GetPreferredAllocation on the socket, for
// every size on 8 and 16 GPUs. Also measures the null call (GetDevicePluginOptions): the least time
// that client, gRPC and socket take. The plugin is a process of its own, so that its CPU time is
// measured apart from the client's.
#include <fmt/format.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "deviceplugin_v1beta1.grpc.pb.h"
#include "src/base/strings.h"
#include "src/net/unix_listener.h"
#include "tests/component/agent_node.h"

namespace tessera::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Ids = std::vector<std::string>;

// The links that make a choice costly: boards of four GPUs with NVLink, NVSwitch between all GPUs,
// and two NUMA nodes.
device::LinkMatrix Links(int gpus) {
  device::LinkMatrix links(gpus);
  for (int a = 0; a < gpus; ++a) {
    for (int b = 0; b < a; ++b) {
      const bool pair = a / 2 == b / 2, board = a / 4 == b / 4;
      links.Set(a, b,
                {.pcie = board ? device::PcieLevel::kSingleSwitch : device::PcieLevel::kSystem,
                 .nvlinks = static_cast<uint8_t>(pair    ? 8
                                                 : board ? 4
                                                         : 0)});
    }
  }
  return links;
}

// Serves, in a child process, until the pipe `until` closes.
[[noreturn]] void Serve(const std::string& dir, int gpus, int until) {
  {
    AgentNode node(dir, gpus);
    node.Publish({}, Links(gpus));
    char byte;
    while (::read(until, &byte, 1) > 0) {
    }
  }
  std::_Exit(0);
}

double CpuMicros(pid_t pid) {
  double nanos = 0;
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    double on_cpu = 0;
    std::ifstream(task.path() / "schedstat") >> on_cpu;
    nanos += on_cpu;
  }
  return nanos / 1000;
}

struct Row {
  std::string call;
  std::vector<double> micros;
  double server_cpu = 0;
};

template <typename Call>
Row Measure(std::string name, pid_t server, int count, Call call) {
  for (int i = 0; i < count / 10; ++i) call();
  Row row{std::move(name), {}, 0};
  const double cpu = CpuMicros(server);
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    call();
    row.micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  }
  row.server_cpu = (CpuMicros(server) - cpu) / count;
  std::sort(row.micros.begin(), row.micros.end());
  return row;
}

void Print(const Row& row) {
  const size_t n = row.micros.size();
  fmt::print("| {:<34} | {:>5} | {:>7.0f} | {:>7.0f} | {:>7.0f} | {:>9.0f} |\n", row.call, n,
             row.micros[n / 2], row.micros[n * 99 / 100], row.micros[n - 1], row.server_cpu);
}

void Check(const grpc::Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "call failed: {}\n", status.error_message());
  std::exit(1);
}

void Bench(const std::string& dir, pid_t server, int gpus, int count) {
  FakeKubelet kubelet(dir);
  kubelet.Start();
  if (!kubelet.WaitForRegistrations(1, std::chrono::seconds(20))) {
    fmt::print(stderr, "the plugin did not register\n");
    std::exit(1);
  }
  auto fd = net::ConnectUnix(JoinPath(dir, kubelet.endpoint()));
  const auto stub =
      v1beta1::DevicePlugin::NewStub(grpc::CreateInsecureChannelFromFd("localhost", fd->Release()));
  Print(Measure(fmt::format("{} GPUs: GetDevicePluginOptions (null)", gpus), server, count, [&] {
    grpc::ClientContext context;
    v1beta1::DevicePluginOptions reply;
    Check(stub->GetDevicePluginOptions(&context, {}, &reply));
  }));
  Ids all;
  for (int i = 0; i < gpus; ++i) all.push_back(AgentNode::Id(i));
  for (int size = 1; size <= gpus; ++size) {
    v1beta1::AllocateRequest request;
    auto* container = request.add_container_requests();
    for (int i = 0; i < size; ++i) container->add_devices_ids(all[i]);
    Print(Measure(fmt::format("{} GPUs: Allocate {}", gpus, size), server, count, [&] {
      grpc::ClientContext context;
      v1beta1::AllocateResponse reply;
      Check(stub->Allocate(&context, request, &reply));
    }));
  }
  for (int size = 1; size <= gpus; ++size) {
    v1beta1::PreferredAllocationRequest request;
    auto* container = request.add_container_requests();
    for (const std::string& id : all) container->add_available_deviceids(id);
    container->set_allocation_size(size);
    Print(
        Measure(fmt::format("{} GPUs: GetPreferredAllocation {}", gpus, size), server, count, [&] {
          grpc::ClientContext context;
          v1beta1::PreferredAllocationResponse reply;
          Check(stub->GetPreferredAllocation(&context, request, &reply));
        }));
  }
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  const int64_t asked = argc > 1 ? tessera::ParseInt(argv[1]).value_or(0) : 1000;
  if (argc > 2 || asked < 1 || asked > 1'000'000) {
    const bool help = argc == 2 && std::string_view(argv[1]) == "--help";
    fmt::print(help ? stdout : stderr,
               "usage: allocate_bench [calls of each kind, 1 to 1000000 (1000)]\n");
    return help ? 0 : 2;
  }
  const int count = static_cast<int>(asked);
  fmt::print("| {:<34} | {:>5} | {:>7} | {:>7} | {:>7} | {:>9} |\n", "call (µs)", "n", "p50", "p99",
             "max", "server CPU");
  fmt::print("|{:-<36}|{:-<7}|{:-<9}|{:-<9}|{:-<9}|{:-<11}|\n", "", "", "", "", "", "");
  for (const int gpus : {8, 16}) {
    const tessera::TempDir dir("allocate-bench");
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    std::fflush(stdout);
    // Each size has a process pair of its own, made before gRPC has threads.
    const pid_t bench = ::fork();
    if (bench == 0) {
      const pid_t server = ::fork();
      if (server == 0) {
        ::close(ends[1]);
        tessera::testing::Serve(dir.path(), gpus, ends[0]);
      }
      tessera::testing::Bench(dir.path(), server, gpus, count);
      std::fflush(stdout);
      ::close(ends[1]);
      std::_Exit(0);
    }
    ::close(ends[0]);
    ::close(ends[1]);
    ::waitpid(bench, nullptr, 0);
  }
  return 0;
}
