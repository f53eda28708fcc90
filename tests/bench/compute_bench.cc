// SPDX-License-Identifier: Apache-2.0
// Prints how much of a simulated GPU's time two containers get, next to their limits:
//
//   1. the first container alone, both containers, and the first in the three seconds after the
//      second has ended;
//   2. limits of 40 and 50 %, which leave the GPU partly idle, with the agent and without it: means
//      and deviations of 20 seconds;
//   3. the seconds after a program has changed its work: it no longer copies device memory, which
//      the driver's samples do not include, or it continues with longer kernels in one stream.
//
// The limiters, the agent's ComputeControl and the driver's samples are real. The printed figures
// come from the simulated GPU's own account of busy time.
//
//   compute_bench [--busy LOOPS | --changes]    needs root, for mount namespaces; about 20 s a row
//
// --busy: only the second table, while LOOPS processes use the CPU. --changes: only the third
// table.
//
// Each container is a process of its own, which is this program with "--child".
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/agent/limits/compute_control.h"
#include "src/base/file.h"
#include "src/base/uid.h"
#include "src/limiter/limits_file.h"
#include "src/limiter/region/slots.h"
#include "src/sim/cuda/cuda_library.h"
#include "src/sim/state.h"
#include "src/sim/testing/sim_node.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using cuda::CudaLibrary;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr char kProfile[] = "base: a100-sxm4-80gb\nnode:\n  gpus: 1\n  nvlink: none\n";
constexpr char kPtx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry brief() { ret; }\n.visible .entry lengthy() { ret; }\n";
constexpr unsigned kBlocks = 1024;  // a kernel that fills the GPU
constexpr uint64_t kMemory = uint64_t{40} << 30;

struct Program {
  const char* name;
  const char* times;  // SIMGPU_KERNEL_NS
  int batch;          // launches of the brief kernel between two waits
  // Whether the launches are of a graph, which after each batch is launched once with the lengthy
  // kernel in place of the brief kernel.
  bool exchanges;
  // During the first kTimeBeforeChange:
  int copies = 0;   // copies of kCopyBytes before each batch
  int streams = 1;  // streams to which the launches of a batch go in turn
  // Whether the program then launches the lengthy kernel in one stream.
  bool changes = false;
};
constexpr Program kAllPrograms[] = {
    {"kernels of 50 us", "brief=50000", 200, false},
    {"kernels of 5 ms", "brief=5000000", 4, false},
    {"1 ms, each waited for", "brief=1000000", 1, false},
    {"graphs of 10 us, 20 times, and 200 ms", "brief=10000,lengthy=200000000", 20, true},
    {"kernels of 2 ms", "brief=2000000", 8, false},
    {"1 ms, each after a copy at first", "brief=1000000", 1, false, 1},
    {"1 ms, each after 10 copies at first", "brief=1000000", 1, false, 10},
    {"5 us, then 20 ms", "brief=5000,lengthy=20000000", 200, false, 0, 1, true},
    {"4 streams of 20 us, then 1 ms", "brief=20000,lengthy=1000000", 200, false, 0, 4, true},
};
constexpr uint64_t kCopyBytes = 16 << 20;
constexpr seconds kTimeBeforeChange(10);
constexpr size_t kPrograms[] = {0, 1, 2, 3};     // of the first table
constexpr size_t kStrictPrograms[] = {0, 4, 1};  // of the second table
constexpr size_t kCopyPrograms[] = {5, 6};       // of the third table
constexpr size_t kOtherPrograms[] = {7, 8};      // of the third table, also beside a container

void Require(cuda::Result result, const char* call) {
  if (result == cuda::Result::kSuccess) return;
  fmt::print(stderr, "compute_bench: {} failed with {}\n", call, static_cast<int>(result));
  std::exit(1);
}
#define REQUIRE(cuda, name, ...) Require(CU(cuda, name)(__VA_ARGS__), #name)

void Check(bool done, const char* what) {
  if (done) return;
  fmt::print(stderr, "compute_bench: {} failed: {}\n", what, std::strerror(errno));
  std::exit(1);
}

// Mounts the folder at /run/tessera, in a mount namespace of this process.
void EnterContainer(const std::string& folder) {
  Check(::unshare(CLONE_NEWNS) == 0, "unshare");
  Check(::mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount");
  Check(::mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0, "mount of /run");
  Check(::mkdir("/run/tessera", 0755) == 0, "mkdir");
  Check(::mount(folder.c_str(), "/run/tessera", nullptr, MS_BIND, nullptr) == 0, "bind mount");
}

// Works until it is killed.
[[noreturn]] void Work(const Program& program) {
  const CudaLibrary cuda("/run/tessera/lib/libcuda.so.1");
  cuda::Context context = nullptr;
  cuda::Module module = nullptr;
  cuda::Function brief = nullptr, lengthy = nullptr;
  REQUIRE(cuda, cuInit, 0);
  REQUIRE(cuda, cuCtxCreate_v2, &context, 0, 0);
  REQUIRE(cuda, cuModuleLoadData, &module, kPtx);
  REQUIRE(cuda, cuModuleGetFunction, &brief, module, "brief");
  REQUIRE(cuda, cuModuleGetFunction, &lengthy, module, "lengthy");
  const auto kernel = [](cuda::Function function) {
    return cuda::KernelNodeParameters{.function = function,
                                      .grid_x = kBlocks,
                                      .grid_y = 1,
                                      .grid_z = 1,
                                      .block_x = 256,
                                      .block_y = 1,
                                      .block_z = 1};
  };
  const cuda::KernelNodeParameters of_brief = kernel(brief), of_lengthy = kernel(lengthy);
  cuda::Graph graph = nullptr;
  cuda::GraphNode node = nullptr;
  cuda::GraphExec exec = nullptr;
  REQUIRE(cuda, cuGraphCreate, &graph, 0);
  REQUIRE(cuda, cuGraphAddKernelNode_v2, &node, graph, nullptr, 0, &of_brief);
  REQUIRE(cuda, cuGraphInstantiateWithFlags, &exec, graph, 0);
  cuda::DevicePtr to = 0, from = 0;
  REQUIRE(cuda, cuMemAlloc_v2, &to, kCopyBytes);
  REQUIRE(cuda, cuMemAlloc_v2, &from, kCopyBytes);
  std::vector<cuda::Stream> streams(static_cast<size_t>(program.streams), nullptr);
  for (cuda::Stream& stream : streams) {
    constexpr unsigned kNonBlocking = 1;
    if (program.streams > 1) REQUIRE(cuda, cuStreamCreate, &stream, kNonBlocking);
  }
  const auto start = Clock::now();
  for (;;) {
    const bool first = Clock::now() - start < kTimeBeforeChange;
    if (!first && program.changes) {
      REQUIRE(cuda, cuLaunchKernel, lengthy, kBlocks, 1, 1, 256, 1, 1, 0, nullptr, nullptr,
              nullptr);
      continue;
    }
    for (int i = 0; first && i < program.copies; ++i) {
      REQUIRE(cuda, cuMemcpyDtoDAsync_v2, to, from, kCopyBytes, nullptr);
    }
    for (int i = 0; i < program.batch; ++i) {
      if (program.exchanges) {
        REQUIRE(cuda, cuGraphLaunch, exec, nullptr);
      } else {
        cuda::Stream stream = streams[static_cast<size_t>(i) % streams.size()];
        REQUIRE(cuda, cuLaunchKernel, brief, kBlocks, 1, 1, 256, 1, 1, 0, stream, nullptr, nullptr);
      }
    }
    if (program.exchanges) {
      REQUIRE(cuda, cuGraphExecKernelNodeSetParams_v2, exec, node, &of_lengthy);
      REQUIRE(cuda, cuGraphLaunch, exec, nullptr);
      REQUIRE(cuda, cuGraphExecKernelNodeSetParams_v2, exec, node, &of_brief);
    }
    REQUIRE(cuda, cuCtxSynchronize);
  }
}

// A container with a share of the GPU, as the host sees it.
class Container {
 public:
  Container(const sim::testing::SimNode& node, const std::string& name, int percent,
            const std::string& uuid)
      : folder_(dir_.path()) {
    for (const char* part : {"real", "lib", "limits", "usage"}) {
      fs::create_directories(folder_ + "/" + part);
    }
    fs::create_symlink(node.library("libcuda.so.1"), folder_ + "/real/libcuda");
    fs::copy_file(LIMITER_CUDA_LIBRARY, folder_ + "/lib/libcuda.so.1");
    const std::string usage = folder_ + "/usage/usage";
    member_.limits = std::make_shared<limiter::LimitsFile>();
    const double share = percent / 100.0;
    Check(member_.limits->Open((folder_ + "/limits/limits").c_str()) == 0, "limits");
    Check(member_.limits->SetMemory(uuid.c_str(), kMemory) == 0, "limit of memory");
    Check(member_.limits->SetCompute(uuid.c_str(), share, share) == 0, "limit of compute");
    Check(limiter::MakeUsage(usage.c_str()) == 0, "usage");
    member_.usage = std::make_shared<const Fd>(::open(usage.c_str(), O_RDWR | O_CLOEXEC));
    member_.pod_uid = Uid(name);
    member_.container = "main";
    member_.uuid = uuid;
    member_.share.request = member_.share.limit = share;
  }
  ~Container() { Stop(); }

  void Start(size_t program) {
    const std::string number = std::to_string(program);
    const char* const arguments[] = {"compute_bench", "--child", folder_.c_str(), number.c_str(),
                                     nullptr};
    Check(::posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr,
                        const_cast<char* const*>(arguments), environ) == 0,
          "start");
  }
  void Stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  agent::ComputeControl::Member& member() { return member_; }

 private:
  const TempDir dir_;
  const std::string folder_;
  agent::ComputeControl::Member member_;
  pid_t pid_ = 0;
};

class Bench {
 public:
  Bench() : node_({.profile = kProfile}) {}

  void Run() {
    fmt::print("{:40}{:>7}{:>8}{:>9}{:>11}{:>8}{:>8}\n", "points of a GPU", "wanted", "alone",
               "beside", "neighbor", "wanted", "after");
    for (const size_t program : kPrograms) {
      for (const int percent : {30, 70}) Row(program, percent);
    }
  }

  // A container with a limit of 30 %, before and after the change of its work: alone, and beside a
  // container with a limit of 70 % that changes at the same time.
  void RunChanges() {
    fmt::print("\n{:40}{:>7}{:>9}  {}\n", "points of a GPU by kernels", "wanted", "at first",
               "in each second after the change");
    for (const size_t program : kCopyPrograms) ChangeRow(program, false);
    for (const size_t program : kOtherPrograms) {
      for (const bool beside : {false, true}) ChangeRow(program, beside);
    }
  }

  // Limits of 40 and 50 %, while `loops` processes use the CPU.
  void RunStrict(int loops) {
    std::vector<pid_t> busy;
    for (int i = 0; i < loops; ++i) busy.push_back(StartLoop());
    fmt::print("\n{:40}{:>10}{:>16}{:>16}\n", "points of a GPU, mean / deviation", "", "40 wanted",
               "50 wanted");
    for (const size_t program : kStrictPrograms) {
      for (const bool agent : {true, false}) StrictRow(program, agent);
    }
    for (const pid_t loop : busy) {
      ::kill(loop, SIGKILL);
      ::waitpid(loop, nullptr, 0);
    }
  }

 private:
  struct Use {
    uint64_t busy_ns = 0, sampled_ns = 0;
  };
  Use UseOf(const Container& container) {
    sim::ProcessView views[16];
    const uint32_t count = std::min<uint32_t>(16, node_.state().Processes(0, views, 16));
    for (uint32_t i = 0; i < count; ++i) {
      if (views[i].pid == container.pid()) return {views[i].busy_ns, views[i].sample_busy_ns};
    }
    return {};
  }

  // Lets `time` pass, and once a second passes the driver's samples, in whole percent, to the
  // agent's ComputeControl.
  void Pass(seconds time) {
    for (seconds passed{0}; passed < time; ++passed) {
      std::this_thread::sleep_for(seconds(1));
      std::vector<agent::ComputeControl::Member> members;
      for (Container* one : {first_.get(), second_.get()}) {
        const uint64_t percent = 100 * UseOf(*one).sampled_ns / sim::kSamplePeriodNs;
        one->member().utilization = static_cast<double>(std::min<uint64_t>(percent, 100)) / 100;
        members.push_back(one->member());
      }
      if (control_) control_->Update(std::move(members));
    }
  }

  // The percent of the GPU that each container uses in this time.
  std::pair<double, double> Measure(seconds time) {
    const auto start = Clock::now();
    const Use first = UseOf(*first_), second = UseOf(*second_);
    Pass(time);
    const double span = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    const auto part = [span](uint64_t from, uint64_t to) {
      return to < from ? 0 : 100 * static_cast<double>(to - from) / span;
    };
    return {part(first.busy_ns, UseOf(*first_).busy_ns),
            part(second.busy_ns, UseOf(*second_).busy_ns)};
  }

  // Starts a process that uses the CPU until this program ends.
  static pid_t StartLoop() {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t count = 0;;) count = count + 1;
  }

  struct Figures {
    double mean = 0, deviation = 0;
  };
  static Figures FiguresOf(const std::vector<double>& parts) {
    Figures figures;
    for (const double part : parts) figures.mean += part / static_cast<double>(parts.size());
    double squares = 0;
    for (const double part : parts) squares += (part - figures.mean) * (part - figures.mean);
    figures.deviation = std::sqrt(squares / static_cast<double>(parts.size()));
    return figures;
  }

  void MakeContainers(size_t program, int first, int second) {
    ::setenv("SIMGPU_KERNEL_NS", kAllPrograms[program].times, 1);
    const std::string uuid = node_.state().facts(0).uuid;
    first_ = std::make_unique<Container>(node_, "first", first, uuid);
    second_ = std::make_unique<Container>(node_, "second", second, uuid);
  }
  void EndContainers() {
    control_.reset();
    first_.reset();
    second_.reset();
  }

  void StrictRow(size_t program, bool agent) {
    MakeContainers(program, 40, 50);
    if (agent) control_ = std::make_unique<agent::ComputeControl>();
    first_->Start(program);
    second_->Start(program);
    Pass(seconds(4));
    std::vector<double> of_first, of_second;
    for (int second = 0; second < 20; ++second) {
      const auto [first_part, second_part] = Measure(seconds(1));
      of_first.push_back(first_part);
      of_second.push_back(second_part);
    }
    const Figures less = FiguresOf(of_first), more = FiguresOf(of_second);
    fmt::print("{:40}{:>10}{:>9.1f} / {:4.1f}{:>9.1f} / {:4.1f}\n", kAllPrograms[program].name,
               agent ? "agent" : "no agent", less.mean, less.deviation, more.mean, more.deviation);
    std::fflush(stdout);
    EndContainers();
  }

  void ChangeRow(size_t program, bool beside) {
    MakeContainers(program, 30, 70);
    control_ = std::make_unique<agent::ComputeControl>();
    first_->Start(program);
    if (beside) second_->Start(program);
    Pass(seconds(4));
    const auto at_first = Measure(kTimeBeforeChange - seconds(5));
    Pass(seconds(2));
    std::string after[2];
    for (int second = 0; second < 8; ++second) {
      const auto [first_part, second_part] = Measure(seconds(1));
      after[0] += fmt::format("{:6.1f}", first_part);
      after[1] += fmt::format("{:6.1f}", second_part);
    }
    const char* const name = kAllPrograms[program].name;
    fmt::print("{:40}{:>7}{:>9.1f}  {}\n", name, 30, at_first.first, after[0]);
    if (beside)
      fmt::print("{:40}{:>7}{:>9.1f}  {}\n", "  beside it", 70, at_first.second, after[1]);
    std::fflush(stdout);
    EndContainers();
  }

  void Row(size_t program, int percent) {
    MakeContainers(program, percent, 100 - percent);
    control_ = std::make_unique<agent::ComputeControl>();
    first_->Start(program);
    Pass(seconds(2));
    const double alone = Measure(seconds(4)).first;
    second_->Start(program);
    Pass(seconds(4));
    const auto [beside, neighbor] = Measure(seconds(6));
    second_->Stop();
    const double after = Measure(seconds(3)).first;
    fmt::print("{:40}{:>7}{:>8.1f}{:>9.1f}{:>11.1f}{:>8}{:>8.1f}\n", kAllPrograms[program].name,
               percent, alone, beside, neighbor, 100 - percent, after);
    std::fflush(stdout);
    EndContainers();
  }

  sim::testing::SimNode node_;
  std::unique_ptr<Container> first_, second_;
  std::unique_ptr<agent::ComputeControl> control_;
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "--child") {
    tessera::EnterContainer(arguments[1]);
    tessera::Work(tessera::kAllPrograms[std::strtoul(arguments[2].c_str(), nullptr, 10)]);
  }
  int loops = -1;
  bool only_changes = false;
  CLI::App app{"Prints how much of a GPU's time two containers get."};
  app.add_option("--busy", loops, "only the second table, while so many processes use the CPU");
  app.add_flag("--changes", only_changes, "only the third table");
  CLI11_PARSE(app, argc, argv);
  if (::geteuid() != 0) {
    fmt::print(stderr, "compute_bench: needs root, for mount namespaces\n");
    return 1;
  }
  tessera::Bench bench;
  if (loops < 0 && !only_changes) bench.Run();
  if (!only_changes) bench.RunStrict(std::max(loops, 0));
  if (loops < 0) bench.RunChanges();
}
