// SPDX-License-Identifier: Apache-2.0
// Many processes on one node: its totals equal the sum of the processes, whenever one is killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/sim/cuda/cuda_library.h"
#include "src/sim/simgpu/state_server.h"
#include "src/sim/state_socket.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kContext = 10 * kMiB;
constexpr uint64_t kCapacity = 4000 * kMiB;
constexpr char kNode[] =
    "base: a100-sxm4-80gb\ngpu:\n  memory_mib: 4096\n  reserved_mib: 96\n  context_mib: 10\n"
    "node:\n  gpus: 2\n  nvlink: none\n";
constexpr int kProcesses = 64;
constexpr int kRounds = 60;

// The least and the most memory that a child may hold. The child writes both values, which differ
// only during a call.
struct Ledger {
  std::atomic<uint64_t> least, most;
  std::atomic<uint64_t> operations;
  std::atomic<int> broken;
};

// Allocates and frees until the process is killed.
[[noreturn]] void Churn(const std::string& library, int gpu, Ledger* ledger, unsigned seed) {
  CudaLibrary cuda(library);
  Context context = nullptr;
  ledger->most = kContext;
  Result made = CU(cuda, cuInit)(0);
  if (made == Result::kSuccess) {
    // Other processes may have filled the GPU.
    do made = CU(cuda, cuCtxCreate_v2)(&context, 0, gpu);
    while (made == Result::kOutOfMemory);
  }
  if (made != Result::kSuccess) {
    ledger->broken = int(made);
    _exit(1);
  }
  ledger->least = kContext;
  const auto allocate = CU(cuda, cuMemAlloc_v2);
  const auto release = CU(cuda, cuMemFree_v2);
  std::mt19937 random(seed);
  std::map<DevicePtr, uint64_t> held;
  uint64_t sum = kContext;
  while (true) {
    if (held.empty() || random() % 2 == 0) {
      const uint64_t bytes = (1 + random() % 32) * 2 * kMiB;
      DevicePtr pointer = 0;
      ledger->most = sum + bytes;
      const Result result = allocate(&pointer, bytes);
      if (result == Result::kSuccess)
        held[pointer] = bytes, sum += bytes;
      else if (result != Result::kOutOfMemory)
        ledger->broken = int(result);
      ledger->most = sum;
      ledger->least = sum;
    } else {
      const auto it = held.begin();
      ledger->least = sum - it->second;
      if (release(it->first) != Result::kSuccess) ledger->broken = -1;
      sum -= it->second;
      held.erase(it);
      ledger->most = sum;
      ledger->least = sum;
    }
    ++ledger->operations;
  }
}

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() : node_({.profile = kNode}) {
    void* memory = mmap(nullptr, sizeof(Ledger) * kProcesses, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TESSERA_CHECK(memory != MAP_FAILED);
    ledgers_ = static_cast<Ledger*>(memory);
  }
  ~ProcessTest() override {
    for (auto& [index, pid] : children_) kill(pid, SIGKILL);
    for (auto& [index, pid] : children_) waitpid(pid, nullptr, 0);
    munmap(ledgers_, sizeof(Ledger) * kProcesses);
  }

  void Start(int index) {
    new (&ledgers_[index]) Ledger{};
    const unsigned seed = unsigned(++started_);
    const pid_t pid = fork();
    if (pid == 0) Churn(node_.library("libcuda.so.1"), index % 2, &ledgers_[index], seed);
    children_[index] = pid;
  }
  void Kill(int index) {
    kill(children_[index], SIGKILL);
    waitpid(children_[index], nullptr, 0);
    children_.erase(index);
  }
  // Stops all children at any point, so that nothing changes during a check.
  void Freeze() {
    for (auto& [index, pid] : children_) kill(pid, SIGSTOP);
    int status = 0;
    for (auto& [index, pid] : children_) waitpid(pid, &status, WUNTRACED);
  }
  void Thaw() {
    for (auto& [index, pid] : children_) kill(pid, SIGCONT);
  }
  void ExpectTotalsAreTheSumOfLiveProcesses(const char* when) {
    for (int gpu = 0; gpu < 2; ++gpu) {
      uint64_t least = 0, most = 0;
      for (auto& [index, pid] : children_) {
        if (index % 2 != gpu) continue;
        least += ledgers_[index].least;
        most += ledgers_[index].most;
      }
      const uint64_t used = node_.state().UsedBytes(uint32_t(gpu));
      ASSERT_GE(used, least) << when << ", GPU " << gpu;
      ASSERT_LE(used, most) << when << ", GPU " << gpu;
      ASSERT_LE(used, kCapacity) << when << ", GPU " << gpu;
    }
  }

  sim::testing::SimNode node_;
  Ledger* ledgers_ = nullptr;
  std::map<int, pid_t> children_;
  int started_ = 0;
};

TEST_F(ProcessTest, TotalsEqualTheSumOfLiveProcessesAfterRandomKills) {
  for (int i = 0; i < kProcesses; ++i) Start(i);
  std::mt19937 random(7);
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    usleep(useconds_t(random() % 40'000));  // a random moment
    Freeze();
    ExpectTotalsAreTheSumOfLiveProcesses("while all are stopped");
    const int victims = 1 + int(random() % 8);
    for (int i = 0; i < victims; ++i) {
      const int index = int(random() % kProcesses);
      if (children_.contains(index)) Kill(index);
    }
    ExpectTotalsAreTheSumOfLiveProcesses("after some were killed");
    Thaw();
    for (int i = 0; i < kProcesses; ++i) {
      if (!children_.contains(i)) Start(i);
    }
  }
  uint64_t operations = 0;
  for (int i = 0; i < kProcesses; ++i) {
    EXPECT_EQ(ledgers_[i].broken.load(), 0) << "child " << i;
    operations += ledgers_[i].operations;
  }
  EXPECT_GT(operations, uint64_t(kProcesses));
  while (!children_.empty()) Kill(children_.begin()->first);
  EXPECT_EQ(node_.state().UsedBytes(0), 0u);
  EXPECT_EQ(node_.state().UsedBytes(1), 0u);
  EXPECT_LE(node_.state().file().slots_end.load(), uint32_t(kProcesses) + 1);
}

TEST_F(ProcessTest, AThousandProcessesGetSlots) {
  constexpr int kMany = 1000;
  std::vector<pid_t> children;
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  for (int i = 0; i < kMany; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      sim::State state;
      sim::ProcessSlot slot;
      const bool ok = state.Open(node_.state().dir()) == 0 && slot.Claim(&state) == 0 &&
                      slot.Charge(0, 2 * kMiB) == 0;
      if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
      while (true) pause();
    }
    children.push_back(pid);
  }
  int claimed = 0;
  char answer = 0;
  for (int i = 0; i < kMany && read(ready[0], &answer, 1) == 1; ++i) claimed += answer == 'y';
  EXPECT_EQ(claimed, kMany);
  const uint64_t before = sim::MonotonicNs();
  EXPECT_EQ(node_.state().UsedBytes(0), kMany * 2 * kMiB);
  RecordProperty("used_bytes_of_1000_us", int((sim::MonotonicNs() - before) / 1000));
  for (pid_t pid : children) kill(pid, SIGKILL);
  for (pid_t pid : children) waitpid(pid, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  EXPECT_EQ(node_.state().UsedBytes(0), 0u);
}

TEST_F(ProcessTest, TheHostSeesHostPidsOfProcessesInAPidNamespace) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a pid namespace";
  int ready[2];
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const pid_t outer = fork();
  if (outer == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(1);
    const pid_t inner = fork();  // pid 1 of its namespace
    if (inner == 0) {
      sim::State state;
      sim::ProcessSlot slot;
      sim::ProcessView views[2];
      const bool ok = getpid() == 1 && state.Open(node_.state().dir()) == 0 &&
                      slot.Claim(&state) == 0 && slot.Charge(0, 2 * kMiB) == 0 &&
                      state.Processes(0, views, 2) == 1 && views[0].pid == 1;
      if (write(ready[1], ok ? "y" : "n", 1) != 1) _exit(1);
      while (true) pause();
    }
    waitpid(inner, nullptr, 0);
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  sim::ProcessView views[2];
  ASSERT_EQ(node_.state().Processes(0, views, 2), 1u);
  EXPECT_GT(views[0].pid, 1);
  EXPECT_NE(views[0].pid, outer);
  kill(views[0].pid, SIGKILL);
  waitpid(outer, nullptr, 0);
  EXPECT_EQ(node_.state().UsedBytes(0), 0u);
  close(ready[0]);
  close(ready[1]);
}

// A container that NVIDIA's container toolkit sets up: it has the libraries at other paths, device
// files, and the socket of `simgpu serve`, mounted read-only.
bool EnterContainer(const std::string& socket, const std::string& library) {
  const std::string folder = DirName(sim::kStateSocket);
  return unshare(CLONE_NEWNS) == 0 && mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0 && MakeDirs(folder).ok() &&
         WriteFileAtomically(sim::kStateSocket, "", 0644).ok() &&
         mount(socket.c_str(), sim::kStateSocket, nullptr, MS_BIND, nullptr) == 0 &&
         mount("", sim::kStateSocket, nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0 &&
         unsetenv("SIMGPU_STATE_DIR") == 0 && PathExists(library);
}

TEST_F(ProcessTest, AContainerWithTheSocketOfThePersistenceDaemonSharesTheNode) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for a mount namespace";
  const TempDir own("container");
  const std::string library = own.path() + "/libcuda.so.1";
  std::filesystem::copy_file(node_.library("libcuda.so.1"), library);
  int stop[2], ready[2];
  ASSERT_EQ(pipe2(stop, O_CLOEXEC), 0);
  ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
  const Fd stop_read(stop[0]);
  Fd stop_write(stop[1]);
  std::thread server([&] { EXPECT_TRUE(sim::ServeState(node_.driver_root(), stop_read).ok()); });
  const std::string socket = node_.driver_root() + sim::kStateSocket;
  for (int i = 0; i < 20'000 && !sim::IsSocket(socket); ++i) usleep(1000);
  const pid_t pid = fork();
  if (pid == 0) {
    char answer = 'n';
    if (EnterContainer(socket, library)) {
      const CudaLibrary cuda(library);
      Context context = nullptr;
      DevicePtr pointer = 0;
      if (CU(cuda, cuInit)(0) == Result::kSuccess &&
          CU(cuda, cuCtxCreate_v2)(&context, 0, 1) == Result::kSuccess &&
          CU(cuda, cuMemAlloc_v2)(&pointer, 64 * kMiB) == Result::kSuccess) {
        answer = 'y';
      }
    }
    if (write(ready[1], &answer, 1) != 1) _exit(1);
    while (true) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  EXPECT_EQ(node_.state().UsedBytes(1), kContext + 64 * kMiB);
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_EQ(node_.state().UsedBytes(1), 0u);
  stop_write.Reset();
  server.join();
  close(ready[0]);
  close(ready[1]);
}

TEST(KernelTimeSettingTest, AnInvalidItemIsReportedOnceInAProcess) {
  const sim::testing::SimNode node;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    setenv("SIMGPU_KERNEL_NS", "first=5,step=-5", 1);
    const CudaLibrary cuda(node.library("libcuda.so.1"));
    Context context = nullptr;
    Module module = nullptr;
    constexpr char kPtx[] =
        ".version 7.0\n.target sm_50\n.address_size 64\n"
        ".visible .entry first() { ret; }\n.visible .entry step() { ret; }\n";
    bool works = CU(cuda, cuInit)(0) == Result::kSuccess &&
                 CU(cuda, cuCtxCreate_v2)(&context, 0, 0) == Result::kSuccess &&
                 CU(cuda, cuModuleLoadData)(&module, kPtx) == Result::kSuccess;
    for (const char* name : {"first", "step"}) {
      Function function = nullptr;
      works = works && CU(cuda, cuModuleGetFunction)(&function, module, name) == Result::kSuccess;
    }
    _exit(works ? 0 : 1);
  }
  close(ends[1]);
  char text[1000] = "";
  size_t size = 0;
  for (ssize_t got = 0; (got = read(ends[0], text + size, sizeof(text) - 1 - size)) > 0;) {
    size += size_t(got);
  }
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(std::string(text),
            "simgpu: invalid item \"step=-5\" of SIMGPU_KERNEL_NS is ignored: want KERNEL=NS, "
            "KERNEL=LOW..HIGH or KERNEL=NS|NS|..., in whole nanoseconds above 0\n");
}

}  // namespace
}  // namespace tessera::cuda
