// SPDX-License-Identifier: Apache-2.0
// Compares limiters on the simulated driver, in one run: the driver alone, our limiter, and another
// limiter that is preloaded, such as HAMi-core's libvgpu.so. Measures the cost of calls, the time
// that processes take to start, and the part of the GPU's time that a program gets without a limit
// and with limits of 30, 50 and 70 %.
//
//   peer_limiter_bench [--peer LIBRARY]        needs root, for a mount namespace of its own
//
// Each measurement is a process of its own, which is this program with "--child", and prints
// numbers.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/strings.h"
#include "src/limiter/testing/limited_node.h"

namespace tessera {
namespace {

using cuda::CudaLibrary;
using limiter::testing::LimitedNode;
using Clock = std::chrono::steady_clock;
using Numbers = std::map<std::string, double>;

constexpr uint64_t kShareMiB = 40 << 10;
constexpr int kRounds = 9;
constexpr int kAtOnce[] = {100, 300};
constexpr int kLive[] = {0, 1000, 10'000};
constexpr unsigned kBlocks = 1024;  // a kernel that fills the GPU
constexpr int kKernelMicros[] = {50, 1000, 5000};
constexpr int kShares[] = {30, 50, 70};
constexpr int kFreeMicros[] = {5, 50, 1000};  // lengths of kernels without a limit
constexpr char kPtx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n";

void Require(cuda::Result result, const char* call) {
  if (result == cuda::Result::kSuccess) return;
  fmt::print("{} failed with {}\n", call, static_cast<int>(result));
  std::exit(1);
}
#define REQUIRE(cuda, name, ...) Require(CU(cuda, name)(__VA_ARGS__), #name)

double NanosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

cuda::Function Open(const CudaLibrary& cuda) {
  cuda::Context context = nullptr;
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  REQUIRE(cuda, cuInit, 0);
  REQUIRE(cuda, cuCtxCreate_v2, &context, 0, 0);
  REQUIRE(cuda, cuModuleLoadData, &module, kPtx);
  REQUIRE(cuda, cuModuleGetFunction, &function, module, "work");
  return function;
}

// The median over rounds of the nanoseconds of one call. Each round begins with an idle GPU.
template <typename Calls>
void Print(const CudaLibrary& cuda, const std::string& name, int count, Calls calls) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    REQUIRE(cuda, cuCtxSynchronize);
    const auto start = Clock::now();
    calls(count);
    times.push_back(NanosSince(start) / count);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  fmt::print("{}={}\n", name, times[kRounds / 2]);
}

void Calls(const CudaLibrary& cuda) {
  const cuda::Function function = Open(cuda);
  const auto allocate = cuda.Get<cuda::fn::cuMemAlloc_v2>("cuMemAlloc_v2");
  const auto release = cuda.Get<cuda::fn::cuMemFree_v2>("cuMemFree_v2");
  const auto info = cuda.Get<cuda::fn::cuMemGetInfo_v2>("cuMemGetInfo_v2");
  const auto launch = cuda.Get<cuda::fn::cuLaunchKernel>("cuLaunchKernel");
  std::vector<cuda::DevicePtr> live;
  for (const int count : kLive) {
    while (live.size() < static_cast<size_t>(count)) {
      Require(allocate(&live.emplace_back(), 2 << 20), "cuMemAlloc");
    }
    Print(cuda, fmt::format("cuMemAlloc + cuMemFree, {} live", count), 5000, [&](int calls) {
      for (int i = 0; i < calls; ++i) {
        cuda::DevicePtr pointer = 0;
        Require(allocate(&pointer, 4 << 20), "cuMemAlloc");
        Require(release(pointer), "cuMemFree");
      }
    });
  }
  Print(cuda, "cuMemGetInfo", 20'000, [&](int calls) {
    size_t free = 0, total = 0;
    for (int i = 0; i < calls; ++i) info(&free, &total);
  });
  Print(cuda, "cuLaunchKernel", 2000, [&](int calls) {
    for (int i = 0; i < calls; ++i)
      launch(function, kBlocks, 1, 1, 256, 1, 1, 0, nullptr, nullptr, nullptr);
  });
}

// How many kernels end in four seconds, after one second in which the limiter may settle.
void Share(const CudaLibrary& cuda, int kernel_micros) {
  const cuda::Function function = Open(cuda);
  // Always keeps some ten milliseconds of work queued.
  const int batch = std::max(1, 10'000 / kernel_micros);
  const auto work = [&](std::chrono::seconds time) {
    int64_t kernels = 0;
    const auto start = Clock::now();
    while (Clock::now() - start < time) {
      for (int i = 0; i < batch; ++i, ++kernels)
        REQUIRE(cuda, cuLaunchKernel, function, kBlocks, 1, 1, 256, 1, 1, 0, nullptr, nullptr,
                nullptr);
      REQUIRE(cuda, cuCtxSynchronize);
    }
    return static_cast<double>(kernels) * kernel_micros * 1000 / NanosSince(start);
  };
  work(std::chrono::seconds(1));
  fmt::print("share={}\n", 100 * work(std::chrono::seconds(4)));
}

int Child(const std::string& what, const std::string& library, int argument) {
  const CudaLibrary cuda(library);
  if (what == "calls") Calls(cuda);
  if (what == "start") Open(cuda);
  if (what == "share") Share(cuda, argument);
  return 0;
}

struct Limiter {
  std::string name;
  std::string library;
  std::vector<std::string> environment;
};

class Bench {
 public:
  explicit Bench(const std::string& peer)
      : node_({kShareMiB << 20}, "base: a100-sxm4-80gb\nnode:\n  gpus: 1\n  nvlink: none\n") {
    const std::string driver = node_.node().library("libcuda.so.1");
    limiters_.push_back({"driver alone", driver, {}});
    limiters_.push_back(
        {"ours", std::string(limiter::testing::kContainerDir) + "/lib/libcuda.so.1", {}});
    if (peer.empty()) return;
    // HAMi-core's variables.
    limiters_.push_back({"peer",
                         driver,
                         {"LD_PRELOAD=" + peer, "CUDA_REDIRECT=" + peer, "LIBCUDA_LOG_LEVEL=0",
                          "LD_LIBRARY_PATH=" + std::string(DirName(driver)),
                          fmt::format("CUDA_DEVICE_MEMORY_LIMIT={}m", kShareMiB),
                          "CUDA_DEVICE_MEMORY_SHARED_CACHE=/run/peer-region"}});
  }

  void Run() {
    fmt::print("{:44}", "");
    for (const Limiter& each : limiters_) fmt::print("{:>14}", each.name);
    fmt::print("\n");
    std::vector<Numbers> calls;
    for (const Limiter& each : limiters_) calls.push_back(Finish(Start(each, "calls", 0, 0, true)));
    for (const auto& [name, value] : calls[0]) {
      fmt::print("{:44}", name + ", ns");
      for (const Numbers& of : calls) fmt::print("{:14.0f}", of.at(name));
      fmt::print("\n");
    }
    Row("process start to module, us", [&](const Limiter& each) { return StartMicros(each, 1); });
    for (const int at_once : kAtOnce) {
      Row(fmt::format("{} processes at once, ms", at_once),
          [&](const Limiter& each) { return StartMicros(each, at_once) / 1000; });
    }
    for (const int kernel : kFreeMicros) {
      Row(fmt::format("not limited, kernels of {} us: has", kernel), [&](const Limiter& each) {
        return Finish(Start(each, "share", 0, kernel, true)).at("share");
      });
    }
    for (const int kernel : kKernelMicros) {
      for (const int share : kShares) {
        Row(fmt::format("may have {} %, kernels of {} us: has", share, kernel),
            [&](const Limiter& each) {
              return Finish(Start(each, "share", share, kernel, true)).at("share");
            });
      }
    }
  }

 private:
  struct Process {
    pid_t pid = -1;
    int output = -1;
  };

  template <typename Measure>
  void Row(const std::string& name, Measure measure) {
    fmt::print("{:44}", name);
    for (const Limiter& each : limiters_) {
      fmt::print("{:14.2f}", measure(each));
      std::fflush(stdout);
    }
    fmt::print("\n");
  }

  // `share`: hundredths of the GPU's time; 0: not limited.
  Process Start(const Limiter& limiter, const char* what, int share, int kernel_micros,
                bool fresh) {
    node_.SetCompute(0, share / 100.0);
    if (fresh) ::unlink("/run/peer-region");
    std::vector<std::string> environment = limiter.environment;
    for (char** each = environ; *each != nullptr; ++each) environment.emplace_back(*each);
    environment.push_back(fmt::format("SIMGPU_KERNEL_NS=work={}", kernel_micros * 1000));
    environment.push_back(fmt::format("CUDA_DEVICE_SM_LIMIT={}", share));
    const std::vector<std::string> arguments = {"/proc/self/exe", "--child", what, limiter.library,
                                                std::to_string(kernel_micros)};
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    // HAMi-core writes log lines to standard error.
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    Process process{.output = ends[0]};
    const int error = ::posix_spawn(&process.pid, "/proc/self/exe", &actions, nullptr,
                                    Pointers(arguments).data(), Pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    if (error != 0) std::abort();
    return process;
  }

  static std::vector<char*> Pointers(const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
  }

  static Numbers Finish(const Process& process) {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::read(process.output, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    ::close(process.output);
    int status = 0;
    ::waitpid(process.pid, &status, 0);
    if (status != 0) {
      fmt::print(stderr, "peer_limiter_bench: a measurement failed\n{}", text);
      std::exit(1);
    }
    Numbers numbers;
    for (const std::string_view line : Split(text, '\n')) {
      const size_t equals = line.find('=');
      if (equals == std::string_view::npos) continue;
      numbers[std::string(line.substr(0, equals))] = std::atof(line.data() + equals + 1);
    }
    return numbers;
  }

  // The median time from the start of the first process to the end of the last process.
  double StartMicros(const Limiter& limiter, int at_once) {
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      const auto start = Clock::now();
      std::vector<Process> processes;
      for (int i = 0; i < at_once; ++i) {
        processes.push_back(Start(limiter, "start", 0, 1000, i == 0));
      }
      for (const Process& process : processes) Finish(process);
      times.push_back(NanosSince(start) / 1000);
    }
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    return times[kRounds / 2];
  }

  LimitedNode node_;
  std::vector<Limiter> limiters_;
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 4 && arguments[0] == "--child") {
    return tessera::Child(arguments[1], arguments[2], std::atoi(arguments[3].c_str()));
  }
  const bool with_peer = arguments.size() == 2 && arguments[0] == "--peer";
  if (!arguments.empty() && !with_peer) {
    fmt::print(stderr, "usage: peer_limiter_bench [--peer LIBRARY]\n");
    return 64;
  }
  if (!tessera::LimitedNode::Possible()) {
    fmt::print(stderr, "peer_limiter_bench: needs root, for a mount namespace of its own\n");
    return 1;
  }
  tessera::Bench(with_peer ? arguments[1] : "").Run();
}
