// SPDX-License-Identifier: Apache-2.0
// Limited processes on the simulated driver: several at one limit, forked processes, killed
// processes, and processes without a region.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/base/subprocess.h"
#include "src/limiter/region/slots.h"
#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

TEST_F(LimiterTest, ProcessesShareOneLimitAndADeadProcessHoldsNothing) {
  LimitedNode node({100 * kMiB});
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const int holder = node.Start([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 80 * kMiB));
    ASSERT_EQ(::write(ready[1], "r", 1), 1);
    while (true) ::pause();
  });
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB), Result::kOutOfMemory);
    ::kill(holder, SIGKILL);
    siginfo_t ended;
    // The killed process stays a zombie, with closed files, until its parent waits for it.
    (void)::waitid(P_PID, id_t(holder), &ended, WEXITED | WNOWAIT);
    Result result = Result::kOutOfMemory;
    for (int i = 0; i < 20'000 && result != Result::kSuccess; ++i) {
      result = CU(cuda, cuMemAlloc_v2)(&pointer, 100 * kMiB);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_OK(result);
  }));
  int status;
  ::waitpid(holder, &status, 0);
}

// Other processes clear the slot of an ended process when they need memory. A query of free memory
// counts that memory as free, too.
TEST_F(LimiterTest, FreeMemoryDoesNotCountProcessesThatHaveEnded) {
  LimitedNode node({100 * kMiB});
  int to_reader[2], from_reader[2];
  ASSERT_EQ(::pipe(to_reader), 0);
  ASSERT_EQ(::pipe(from_reader), 0);
  char byte;
  const auto free_memory = [](const CudaLibrary& cuda) {
    size_t free = 0, total = 0;
    EXPECT_OK(CU(cuda, cuMemGetInfo_v2)(&free, &total));
    return free;
  };
  // This process starts first, so that the other process does not take over its slot.
  const int reader = node.Start([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    ASSERT_EQ(::write(from_reader[1], "s", 1), 1);
    ASSERT_EQ(::read(to_reader[0], &byte, 1), 1);
    EXPECT_EQ(free_memory(cuda), 20 * kMiB);
    ASSERT_EQ(::write(from_reader[1], "l", 1), 1);
    ASSERT_EQ(::read(to_reader[0], &byte, 1), 1);
    EXPECT_EQ(free_memory(cuda), 100 * kMiB);
  });
  ASSERT_EQ(::read(from_reader[0], &byte, 1), 1);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 80 * kMiB));
    ASSERT_EQ(::write(to_reader[1], "h", 1), 1);
    ASSERT_EQ(::read(from_reader[0], &byte, 1), 1);
  }));
  EXPECT_EQ(node.Held(0), 80 * kMiB) << "the slot is not cleared yet";
  ASSERT_EQ(::write(to_reader[1], "e", 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(reader, &status, 0), reader);
  EXPECT_EQ(status, 0);
  for (int end : {to_reader[0], to_reader[1], from_reader[0], from_reader[1]}) ::close(end);
}

// exec closes the program's end of `exec_pipe`.
TEST_F(LimiterTest, ExecOfALimitedProgramFreesItsSlot) {
  LimitedNode node({100 * kMiB});
  int exec_pipe[2];
  ASSERT_EQ(::pipe2(exec_pipe, O_CLOEXEC), 0);
  const int program = node.Start([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 80 * kMiB));
    ::execl("/bin/sleep", "sleep", "600", nullptr);
    FAIL() << "exec";
  });
  ::close(exec_pipe[1]);
  char byte;
  ASSERT_EQ(::read(exec_pipe[0], &byte, 1), 0);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 100 * kMiB));
    EXPECT_EQ(node.Held(0), 100 * kMiB);
  }));
  ::kill(program, SIGKILL);
  int status;
  ::waitpid(program, &status, 0);
  ::close(exec_pipe[0]);
}

TEST_F(LimiterTest, AVforkedProgramLeavesItsParentsMemoryCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0, other = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 60 * kMiB));
    const pid_t child = ::vfork();
    if (child == 0) {
      ::execl("/bin/true", "true", nullptr);
      ::_exit(127);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    node.Sweep();
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&other, 60 * kMiB), Result::kOutOfMemory);
    EXPECT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&other, 60 * kMiB));
  }));
}

TEST_F(LimiterTest, AStaticProgramThatOpensTheLibraryIsLimited) {
#ifndef LIMITER_STATIC_CLIENT
  GTEST_SKIP() << "sanitizers do not link statically";
#else
  LimitedNode node({100 * kMiB});
  const auto allocates = [](uint64_t bytes) {
    const auto result = RunProgram({LIMITER_STATIC_CLIENT, "allocate", std::to_string(bytes)},
                                   std::chrono::seconds(60), {"LD_LIBRARY_PATH=/run/tessera/lib"});
    return result.ok() ? result->exit_code : -1;
  };
  EXPECT_EQ(allocates(80 * kMiB), 0);
  EXPECT_EQ(allocates(120 * kMiB), static_cast<int>(cuda::Result::kOutOfMemory));
#endif
}

TEST_F(LimiterTest, AForkedChildHasItsOwnCharges) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    // A program may fork before it initializes CUDA, and both processes may use the GPU.
    const pid_t child = ::fork();
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, child == 0 ? 10 * kMiB : 20 * kMiB));
    if (child == 0) ::_exit(::testing::Test::HasFailure());
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    // A later child may not use CUDA: the driver refuses, and the limiter leaves the parent's
    // charges as they are.
    const pid_t late = ::fork();
    if (late == 0) {
      if (CU(cuda, cuMemAlloc_v2)(&pointer, kMiB) != Result::kNotInitialized) ::_exit(1);
      ::_exit(CU(cuda, cuMemFree_v2)(pointer) == Result::kSuccess ? 2 : 0);
    }
    ::waitpid(late, &status, 0);
    EXPECT_EQ(status, 0);
    DevicePtr rest = 0;
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&rest, 80 * kMiB));
  }));
}

TEST_F(LimiterTest, AProgramWithoutARegionGetsNoGpu) {
  LimitedNode node({100 * kMiB});
  std::filesystem::remove("/run/tessera/limits/limits");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(node.Run(
      [&](const CudaLibrary& cuda) { EXPECT_EQ(CU(cuda, cuInit)(0), Result::kNotPermitted); }));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "tessera: cannot read the limits of this container at /run/tessera/limits/limits: "
                "No such file"),
            std::string::npos);
}

TEST_F(LimiterTest, TheProcessBeyondTheLastSlotGetsNoGpu) {
  constexpr char kUsageFile[] = "/run/tessera/usage/usage";
  LimitedNode node({100 * kMiB});
  Usage* usage = nullptr;
  uint32_t own = 0;
  ASSERT_EQ(ClaimSlot(kUsageFile, &usage, &own), 0);
  // A slot belongs to its process while the process runs, with or without the lock.
  for (uint32_t i = 0; i < kMaxSlots; ++i) {
    usage->starts[i].store(usage->starts[own].load());
    usage->pids[i].store(usage->pids[own].load());
  }
  ::testing::internal::CaptureStderr();
  const bool refused = node.Run(
      [&](const CudaLibrary& cuda) { EXPECT_EQ(CU(cuda, cuInit)(0), Result::kNotPermitted); });
  const std::string message = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(refused) << message;
  EXPECT_NE(message.find("4096 processes of this container use it"), std::string::npos) << message;
  usage->pids[kMaxSlots - 1].store(0);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) { MakeContext(cuda); }));
}

TEST_F(LimiterTest, WithFailOpenAProcessThatCannotBeLimitedGetsTheGpu) {
  LimitedNode node({100 * kMiB});
  std::filesystem::remove("/run/tessera/usage/usage");
  std::filesystem::create_directory("/run/tessera/usage/usage");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(node.Run(
      [&](const CudaLibrary& cuda) { EXPECT_EQ(CU(cuda, cuInit)(0), Result::kNotPermitted); }));
  node.SetFailOpen();
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 200 * kMiB));
    EXPECT_OK(CU(cuda, cuMemFree_v2)(pointer));
  }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("Is a directory: the GPU is not available"), std::string::npos) << log;
  EXPECT_NE(log.find("Is a directory: this process is not limited"), std::string::npos) << log;
}

TEST_F(LimiterTest, ALaterCuInitSucceedsWhenDescriptorsAreFreeAgain) {
  LimitedNode node({100 * kMiB});
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    std::vector<int> all;
    for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::open("/dev/null", O_RDONLY)) {
      all.push_back(fd);
    }
    EXPECT_EQ(CU(cuda, cuInit)(0), Result::kNotPermitted);
    for (const int fd : all) ::close(fd);
    DevicePtr pointer = 0;
    MakeContext(cuda);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 60 * kMiB));
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 60 * kMiB), Result::kOutOfMemory);
  }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("Too many open files: the GPU is not available until a later cuInit succeeds"),
            std::string::npos)
      << log;
}

TEST_F(LimiterTest, AFileSizeLimitDoesNotKillTheProcess) {
  LimitedNode node({100 * kMiB});
  std::filesystem::remove("/run/tessera/usage/usage");
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    rlimit before;
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small{1 << 20, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_EQ(CU(cuda, cuInit)(0), Result::kNotPermitted);
    EXPECT_FALSE(std::filesystem::exists("/run/tessera/usage/usage"));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    MakeContext(cuda);
  }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("this process may not create a file of 6 MiB: "), std::string::npos) << log;
}

// The descriptor that holds the lock of the slot is open during cuInit, and a child inherits it.
TEST_F(LimiterTest, AChildThatIsForkedDuringCuInitDoesNotKeepTheMemoryOfItsDeadParent) {
  LimitedNode node({100 * kMiB});
  for (int i = 0; i < 15; ++i) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const int owner = node.Start([&](const CudaLibrary& cuda) {
      ::setpgid(0, 0);
      std::atomic<bool> stop{false};
      std::thread forking([&] {
        for (int children = 0; children < 50 && !stop.load(); ++children) {
          if (::fork() != 0) continue;
          while (true) ::pause();
        }
      });
      ::usleep(1000);
      DevicePtr pointer = 0;
      EXPECT_OK(CU(cuda, cuInit)(0));
      stop = true;
      forking.join();
      MakeContext(cuda);
      EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 80 * kMiB));
      ASSERT_EQ(::write(ready[1], "r", 1), 1);
      while (true) ::pause();
    });
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    for (const int end : ready) ::close(end);
    ::kill(owner, SIGKILL);
    int status;
    ::waitpid(owner, &status, 0);
    node.Sweep();
    const uint64_t held = node.Held(0);
    ::kill(-owner, SIGKILL);
    ASSERT_EQ(held, 0u) << "run " << i;
  }
}

TEST_F(LimiterTest, RefusalsNameTheLimitOnStandardErrorAtABoundedRate) {
  LimitedNode node({100 * kMiB});
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 40 * kMiB));
    for (int i = 0; i < 1000; ++i)
      EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 90 * kMiB), Result::kOutOfMemory);
  }));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("this container may use 100 MiB of GPU-"), std::string::npos) << log;
  EXPECT_NE(log.find("holds 40 MiB; an allocation of 90.0 MiB is refused"), std::string::npos)
      << log;
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), 10);
}

// Makes `fd` the standard error of processes that start meanwhile.
class ReplacedStandardError {
 public:
  explicit ReplacedStandardError(int fd) : before_(::dup(STDERR_FILENO)) {
    ::dup2(fd, STDERR_FILENO);
  }
  ~ReplacedStandardError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
  }

 private:
  const int before_;
};

void AllocateBeyondLimit(const CudaLibrary& cuda) {
  ::alarm(20);  // ends a process that a full pipe blocks
  DevicePtr pointer = 0;
  MakeContext(cuda);
  EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 200 * kMiB), Result::kOutOfMemory);
}

TEST_F(LimiterTest, RefusalsAreWrittenToAPipeAndToASocket) {
  LimitedNode node({100 * kMiB});
  for (const bool is_socket : {false, true}) {
    int ends[2];
    ASSERT_EQ(is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : ::pipe(ends), 0);
    {
      const ReplacedStandardError replaced(ends[1]);
      EXPECT_TRUE(node.Run(AllocateBeyondLimit));
    }
    ::close(ends[1]);
    char text[512] = {};
    EXPECT_GT(::read(ends[0], text, sizeof(text) - 1), 0);
    EXPECT_NE(std::string(text).find("tessera: CUDA out of memory"), std::string::npos) << text;
    ::close(ends[0]);
  }
}

TEST_F(LimiterTest, ARefusalDoesNotEndAProgramWhoseLogHasNoReader) {
  LimitedNode node({100 * kMiB});
  for (const bool is_socket : {false, true}) {
    int ends[2];
    ASSERT_EQ(is_socket ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : ::pipe(ends), 0);
    ::close(ends[0]);
    const ReplacedStandardError replaced(ends[1]);
    EXPECT_TRUE(node.Run([](const CudaLibrary& cuda) {
      AllocateBeyondLimit(cuda);
      sigset_t pending;
      ::sigpending(&pending);
      EXPECT_FALSE(::sigismember(&pending, SIGPIPE));
    }));
    ::close(ends[1]);
  }
}

TEST_F(LimiterTest, ARefusalDoesNotWaitForTheReaderOfAFullPipe) {
  LimitedNode node({100 * kMiB});
  for (const bool has_proc : {true, false}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
    const std::string page(4096, 'x');
    while (::write(ends[1], page.data(), page.size()) > 0) {
    }
    ASSERT_EQ(::fcntl(ends[1], F_SETFL, 0), 0);
    const ReplacedStandardError replaced(ends[1]);
    EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
      if (!has_proc) {
        // Another process ID namespace has another /proc.
        ASSERT_EQ(::mount("tmpfs", "/proc", "tmpfs", 0, nullptr), 0);
      }
      AllocateBeyondLimit(cuda);
      EXPECT_EQ(::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
    })) << has_proc;
    if (!has_proc) ::umount("/proc");
    for (const int end : ends) ::close(end);
  }
}

// A daemon closes its standard streams, and the files that it opens next get their descriptors.
TEST_F(LimiterTest, ARefusalIsNotWrittenToAFileThatReusesTheDescriptor) {
  LimitedNode node({100 * kMiB});
  const TempDir dir;
  const std::string path = dir.path() + "/data";
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ::close(STDERR_FILENO);
    ASSERT_EQ(::open(path.c_str(), O_RDWR | O_CREAT, 0600), STDERR_FILENO);
    AllocateBeyondLimit(cuda);
  }));
  EXPECT_EQ(std::filesystem::file_size(path), 0u);
}

// Counters of a process, in memory that it shares with the test.
struct SharedCounters {
  std::atomic<uint64_t> operations, refused;
  std::atomic<bool> stop;
};
SharedCounters* MakeSharedCounters() {
  void* memory = ::mmap(nullptr, sizeof(SharedCounters), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) SharedCounters{};
}

// Allocates and frees until `stop` is set.
void Churn(const CudaLibrary& cuda, SharedCounters* shared, unsigned seed) {
  ::close(STDERR_FILENO);  // most allocations are refused
  MakeContext(cuda);
  std::mt19937 random(seed);
  std::vector<DevicePtr> held;
  while (!shared->stop.load()) {
    DevicePtr pointer = 0;
    if (held.empty() || random() % 5 < 3) {
      const uint64_t bytes = random() % 3 == 0 ? 1 + random() % 5000 : 1 + random() % (8 * kMiB);
      const Result result = random() % 4 == 0 ? CU(cuda, cuMemAllocAsync)(&pointer, bytes, nullptr)
                                              : CU(cuda, cuMemAlloc_v2)(&pointer, bytes);
      if (result == Result::kSuccess) {
        held.push_back(pointer);
      } else {
        ASSERT_EQ(result, Result::kOutOfMemory);
        ++shared->refused;
      }
    }
    if (!held.empty() && random() % 5 < 3) {
      const size_t which = random() % held.size();
      ASSERT_OK(CU(cuda, cuMemFree_v2)(held[which]));
      held[which] = held.back();
      held.pop_back();
    }
    ++shared->operations;
  }
}

TEST_F(LimiterTest, ManyProcessesAtTheLimitNeverHoldMoreOnTheDevice) {
  constexpr int kProcesses = 64;
  constexpr uint64_t kLimit = 300 * kMiB;
  LimitedNode node({kLimit});
  SharedCounters* shared = MakeSharedCounters();
  std::vector<int> pids;
  for (int i = 0; i < kProcesses; ++i) {
    pids.push_back(node.Start([&](const CudaLibrary& cuda) { Churn(cuda, shared, unsigned(i)); }));
  }
  uint64_t max_used = 0, over = 0, samples = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    const uint64_t used = node.DeviceBytes(0);
    ++samples;
    max_used = std::max(max_used, used);
    // The limit does not include the memory of contexts.
    if (used > kLimit + kProcesses * kContextBytes) ++over;
  }
  shared->stop = true;
  for (int pid : pids) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(over, 0u) << "of " << samples << " samples, at most " << max_used / kMiB << " MiB";
  EXPECT_GT(shared->refused.load(), 0u) << "the limit was never reached";
  EXPECT_LE(node.usage(0).peak, kLimit);
  node.Sweep();
  EXPECT_EQ(node.Held(0), 0u);
}

// TESSERA_LIMITER_KILLS sets the number of killed processes.
TEST_F(LimiterTest, NoMemoryStaysChargedWhenProcessesAreKilledAtAnyPoint) {
  const char* wanted = std::getenv("TESSERA_LIMITER_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 200;
  LimitedNode node({100 * kMiB});
  SharedCounters* shared = MakeSharedCounters();
  std::mt19937 random(11);
  for (int i = 0; i < kills; ++i) {
    shared->operations = 0;
    const int pid = node.Start([&](const CudaLibrary& cuda) { Churn(cuda, shared, unsigned(i)); });
    while (shared->operations.load() < 5) ::sched_yield();
    ::usleep(random() % 2000);
    ::kill(pid, SIGKILL);
    int status;
    ::waitpid(pid, &status, 0);
  }
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 100 * kMiB)) << "the whole limit is free again";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 100 * kMiB + kContextBytes);
  }));
}

}  // namespace
}  // namespace tessera::limiter
