// SPDX-License-Identifier: Apache-2.0
// Order and effects of commands, and the time of the GPU that kernels, streams and processes share.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr unsigned kNonBlocking = 1;
constexpr char kNode[] = "base: a100-sxm4-80gb\nnode:\n  gpus: 2\n  nvlink: none\n";
constexpr char kPtx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry fill(.param .u64 p, .param .f32 v, .param .u32 n) { ret; }\n"
    ".visible .entry slow() { ret; }\n.visible .entry short_one() { ret; }\n";
// An A100 runs 216 blocks of 1,024 threads at once.
constexpr unsigned kWholeGpuBlocks = 216, kTinyBlocks = 1;

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

// A program with a context on GPU 0.
struct Program {
  explicit Program(const std::string& library) : cuda(library) {
    Module module = nullptr;
    EXPECT_OK(CU(cuda, cuInit)(0));
    EXPECT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&context, 0));
    EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
    EXPECT_OK(CU(cuda, cuModuleLoadData)(&module, kPtx));
    EXPECT_OK(CU(cuda, cuModuleGetFunction)(&slow, module, "slow"));
    EXPECT_OK(CU(cuda, cuModuleGetFunction)(&short_one, module, "short_one"));
    EXPECT_OK(CU(cuda, cuModuleGetFunction)(&fill, module, "fill"));
  }
  void Launch(Function function, Stream stream, unsigned blocks = kWholeGpuBlocks) const {
    EXPECT_OK(
        CU(cuda, cuLaunchKernel)(function, blocks, 1, 1, 1024, 1, 1, 0, stream, nullptr, nullptr));
  }
  void Fill(float* to, float value, Stream stream) const {
    auto pointer = reinterpret_cast<DevicePtr>(to);
    int count = 1;
    void* parameters[] = {&pointer, &value, &count};
    EXPECT_OK(CU(cuda, cuLaunchKernel)(fill, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr));
  }
  Stream NewStream(unsigned flags = kNonBlocking) const {
    Stream stream = nullptr;
    EXPECT_OK(CU(cuda, cuStreamCreate)(&stream, flags));
    return stream;
  }
  Event Record(Stream stream) const {
    Event event = nullptr;
    EXPECT_OK(CU(cuda, cuEventCreate)(&event, 0));
    EXPECT_OK(CU(cuda, cuEventRecord)(event, stream));
    return event;
  }
  float Elapsed(Event start, Event end) const {
    float milliseconds = 0;
    EXPECT_OK(CU(cuda, cuEventSynchronize)(end));
    EXPECT_OK(CU(cuda, cuEventElapsedTime)(&milliseconds, start, end));
    return milliseconds;
  }
  float* Pinned() const {
    void* memory = nullptr;
    EXPECT_OK(CU(cuda, cuMemHostAlloc)(&memory, sizeof(float), 0));
    auto* value = static_cast<float*>(memory);
    *value = 0;
    return value;
  }

  CudaLibrary cuda;
  Context context = nullptr;
  Function slow = nullptr, short_one = nullptr, fill = nullptr;
};

// Reads memory that the GPU writes, without a lock, as a program that polls memory does.
__attribute__((no_sanitize("thread"))) float Peek(const float* value) {
  return *static_cast<const volatile float*>(value);
}

// All tests share one driver in this process, because a driver cannot be unloaded.
class TimeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMGPU_KERNEL_NS", "slow=50000000,short_one=200000", 1);
    node_ = new sim::testing::SimNode({.profile = kNode});
    program_ = new Program(node_->library("libcuda.so.1"));
  }
  static void TearDownTestSuite() {
    delete program_;
    delete node_;
  }
  void SetUp() override { ASSERT_OK(CU(p().cuda, cuCtxSetCurrent)(p().context)); }
  void TearDown() override { EXPECT_OK(CU(p().cuda, cuCtxSynchronize)()); }
  static Program& p() { return *program_; }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline Program* program_ = nullptr;
};

TEST_F(TimeTest, AnEffectIsVisibleOnlyWhenItsKernelEnds) {
  Stream stream = p().NewStream();
  float* value = p().Pinned();
  bool seen_running = false;
  // On a busy machine the kernel may end before the program looks.
  for (int i = 0; i < 20 && !seen_running; ++i) {
    *value = 0;
    const uint64_t before = sim::MonotonicNs();
    p().Launch(p().slow, stream);
    p().Fill(value, 7, stream);
    const float seen = Peek(value);
    seen_running = sim::MonotonicNs() - before < 50 * kMs;
    if (seen_running) {
      EXPECT_EQ(seen, 0.0f);
    }
    EXPECT_OK(CU(p().cuda, cuStreamSynchronize)(stream));
    EXPECT_EQ(*value, 7.0f);
  }
  EXPECT_TRUE(seen_running);
}

TEST_F(TimeTest, AProgramThatOnlyPollsMemorySeesTheEffect) {
  Stream stream = p().NewStream();
  float* value = p().Pinned();
  p().Launch(p().short_one, stream);
  p().Fill(value, 7, stream);
  while (Peek(value) == 0.0f) std::this_thread::yield();
  EXPECT_EQ(Peek(value), 7.0f);
}

TEST_F(TimeTest, PageableMemoryMayChangeWhenTheCallReturns) {
  Stream stream = p().NewStream();
  DevicePtr device = 0;
  ASSERT_OK(CU(p().cuda, cuMemAlloc_v2)(&device, sizeof(float)));
  float value = 7, back = 0;
  p().Launch(p().slow, stream);
  EXPECT_OK(CU(p().cuda, cuMemcpyHtoDAsync_v2)(device, &value, sizeof(value), stream));
  value = 8;
  EXPECT_OK(CU(p().cuda, cuMemcpyDtoHAsync_v2)(&back, device, sizeof(back), stream));
  EXPECT_EQ(back, 7.0f) << "the driver writes pageable memory before it returns";
  EXPECT_OK(CU(p().cuda, cuMemFree_v2)(device));
}

TEST_F(TimeTest, AStreamWaitsForAnEventOfAnotherStream) {
  Stream first = p().NewStream(), second = p().NewStream();
  float* value = p().Pinned();
  p().Launch(p().slow, first);
  p().Fill(value, 7, first);
  Event filled = p().Record(first);
  EXPECT_OK(CU(p().cuda, cuStreamWaitEvent)(second, filled, 0));
  EXPECT_OK(CU(p().cuda, cuEventRecord)(filled, first)) << "the wait is for the earlier record";
  p().Fill(value, 8, second);
  Event end = p().Record(second);
  EXPECT_GE(p().Elapsed(filled, end), 0.0f);
  EXPECT_EQ(*value, 8.0f);
}

TEST_F(TimeTest, TheLegacyStreamIsOrderedWithBlockingStreams) {
  Stream stream = p().NewStream(0);
  float* value = p().Pinned();
  p().Launch(p().slow, stream);
  p().Fill(value, 1, stream);
  Event before = p().Record(stream);
  p().Launch(p().short_one, nullptr);
  Event legacy = p().Record(nullptr);
  p().Fill(value, 2, stream);
  Event after = p().Record(stream);
  EXPECT_GE(p().Elapsed(before, after), 0.1f);
  EXPECT_GE(p().Elapsed(before, legacy), 0.1f);
  EXPECT_GE(p().Elapsed(legacy, after), 0.0f);
  EXPECT_EQ(*value, 2.0f);
}

TEST_F(TimeTest, ConcurrentKernelsTakeLongerOnlyIfTheyFillTheGpu) {
  Stream first = p().NewStream(), second = p().NewStream();
  // A pause between two calls lengthens a time, so the shortest of several times counts.
  const auto least = [&](unsigned blocks) {
    float shortest = 1e9;
    for (int i = 0; i < 5; ++i) {
      const Event start = p().Record(first);
      p().Launch(p().slow, first, blocks);
      p().Launch(p().slow, second, blocks);
      const Event both = p().Record(second);
      shortest = std::min(shortest, p().Elapsed(start, both));
      EXPECT_OK(CU(p().cuda, cuCtxSynchronize)());
    }
    return shortest;
  };
  EXPECT_NEAR(least(kTinyBlocks), 50, 1);
  EXPECT_NEAR(least(kWholeGpuBlocks), 100, 1);
}

TEST_F(TimeTest, ALaunchWaitsForRoomInAFullQueue) {
  Stream stream = p().NewStream();
  uint64_t fewest = UINT64_MAX;
  // On a busy machine the program may pause while it launches.
  for (int i = 0; i < 10 && fewest >= 190 * kMs; ++i) {
    const uint64_t before = sim::MonotonicNs();
    for (int j = 0; j < 1024; ++j) p().Launch(p().short_one, stream);
    fewest = std::min(fewest, sim::MonotonicNs() - before);
    for (int j = 0; j < 1024; ++j) p().Launch(p().short_one, stream);
    EXPECT_GT(sim::MonotonicNs() - before, 190 * kMs);
    EXPECT_OK(CU(p().cuda, cuStreamSynchronize)(stream));
  }
  EXPECT_LT(fewest, 190 * kMs) << "these 1024 take 205 ms";
}

TEST_F(TimeTest, ADestroyedStreamEndsItsWork) {
  Stream stream = p().NewStream();
  float* value = p().Pinned();
  p().Launch(p().slow, stream);
  p().Fill(value, 7, stream);
  EXPECT_OK(CU(p().cuda, cuStreamDestroy_v2)(stream));
  EXPECT_EQ(CU(p().cuda, cuStreamQuery)(stream), Result::kInvalidHandle);
  while (Peek(value) == 0.0f) std::this_thread::yield();
}

TEST_F(TimeTest, APoolDoesNotReuseMemoryThatKernelsStillUse) {
  Stream stream = p().NewStream();
  float* value = p().Pinned();
  DevicePtr device = 0;
  ASSERT_OK(CU(p().cuda, cuMemAllocAsync)(&device, 8 << 20, stream));
  p().Launch(p().slow, stream);
  p().Fill(reinterpret_cast<float*>(device), 7, stream);
  EXPECT_OK(CU(p().cuda, cuMemcpyDtoHAsync_v2)(value, device, sizeof(float), stream));
  EXPECT_OK(CU(p().cuda, cuMemFreeAsync)(device, stream));
  EXPECT_OK(CU(p().cuda, cuStreamSynchronize)(stream));
  EXPECT_EQ(*value, 7.0f);
}

TEST_F(TimeTest, AHostFunctionMayTakeALockThatACallerHolds) {
  static std::mutex lock;
  static std::atomic<bool> ran = false;
  Stream stream = p().NewStream();
  {
    const std::lock_guard held(lock);
    const auto function = [](void*) {
      const std::lock_guard waits(lock);
      ran = true;
    };
    EXPECT_OK(CU(p().cuda, cuLaunchHostFunc)(stream, function, nullptr));
    usleep(2000);
    EXPECT_EQ(CU(p().cuda, cuStreamQuery)(stream), Result::kNotReady);
  }
  EXPECT_OK(CU(p().cuda, cuStreamSynchronize)(stream));
  EXPECT_TRUE(ran);
}

TEST_F(TimeTest, ManyThreadsOnManyStreamsLoseNothing) {
  constexpr int kThreads = 4, kRounds = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      ASSERT_OK(CU(p().cuda, cuCtxSetCurrent)(p().context));
      Stream mine = p().NewStream(), other = p().NewStream(0);
      float* value = p().Pinned();
      for (int i = 1; i <= kRounds; ++i) {
        p().Launch(p().short_one, mine, kTinyBlocks);
        p().Fill(value, float(i), mine);
        Event event = p().Record(mine);
        EXPECT_OK(CU(p().cuda, cuStreamWaitEvent)(other, event, 0));
        p().Launch(p().short_one, other, kTinyBlocks);
        EXPECT_OK(CU(p().cuda, cuStreamSynchronize)(other));
        EXPECT_EQ(*value, float(i));
        EXPECT_OK(CU(p().cuda, cuEventDestroy_v2)(event));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Programs in separate processes. Their queues are always full, so that their GPU time does not
// depend on the machine's load.
class SharedTimeTest : public ::testing::Test {
 protected:
  SharedTimeTest() : node_({.profile = kNode}) {}
  ~SharedTimeTest() override {
    for (pid_t pid : children_) kill(pid, SIGKILL);
    for (pid_t pid : children_) waitpid(pid, nullptr, 0);
  }
  // Starts a process that launches kernels until it is killed, with at most 1,024 in the queue.
  pid_t Start(const char* kernel_ns) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("SIMGPU_KERNEL_NS", kernel_ns, 1);
      Program program(node_.library("libcuda.so.1"));
      for (int i = 0; i < 1000; ++i) program.Launch(program.slow, nullptr);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      while (true) program.Launch(program.slow, nullptr);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    children_.push_back(pid);
    return pid;
  }
  // The median time between the events around a kernel of 200 us, in a new process whose stream is
  // idle before each.
  float MedianBetweenEvents() {
    int result[2];
    EXPECT_EQ(pipe(result), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      setenv("SIMGPU_KERNEL_NS", "short_one=200000", 1);
      Program program(node_.library("libcuda.so.1"));
      std::vector<float> times;
      for (int i = 0; i < 31; ++i) {
        const Event start = program.Record(nullptr);
        program.Launch(program.short_one, nullptr);
        times.push_back(program.Elapsed(start, program.Record(nullptr)));
      }
      std::ranges::sort(times);
      const float median = times[times.size() / 2];
      _exit(write(result[1], &median, sizeof(median)) == sizeof(median) ? 0 : 1);
    }
    close(result[1]);
    float median = 0;
    EXPECT_EQ(read(result[0], &median, sizeof(median)), ssize_t(sizeof(median)));
    close(result[0]);
    waitpid(pid, nullptr, 0);
    return median;
  }
  uint64_t BusyNs(pid_t pid) {
    sim::ProcessView views[8];
    const uint32_t count = std::min(8u, node_.state().Processes(0, views, 8));
    for (uint32_t i = 0; i < count; ++i) {
      if (views[i].pid == pid) return views[i].busy_ns;
    }
    return 0;
  }
  // Nanoseconds: the clock, and the busy time of the GPU and of each process until then.
  struct Reading {
    double at, gpu, first, second;
  };
  // The processes update their busy time only when they run, which a loaded machine delays. So this
  // returns the reading, of all within 200 ms, whose busy time of the GPU is the most up to date.
  Reading Read(pid_t first, pid_t second) {
    Reading latest{0, -1e18, 0, 0};
    for (int i = 0; i < 100; ++i) {
      const Reading reading{double(sim::MonotonicNs()), double(node_.state().BusyNs(0)),
                            double(BusyNs(first)), double(BusyNs(second))};
      if (reading.gpu - reading.at > latest.gpu - latest.at) latest = reading;
      usleep(2'000);
    }
    return latest;
  }
  // Parts of the time that the GPU and each process were busy.
  struct Parts {
    double gpu = 0, first = 0, second = 0;
  };
  Parts Measure(pid_t first, pid_t second, useconds_t duration) {
    const Reading start = Read(first, second);
    usleep(duration);
    const Reading end = Read(first, second);
    const double span = end.at - start.at;
    return {(end.gpu - start.gpu) / span, (end.first - start.first) / span,
            (end.second - start.second) / span};
  }
  // A busy machine may stop one of the processes for longer, which falsifies a measurement.
  static constexpr int kMeasurements = 10;

  sim::testing::SimNode node_;
  std::vector<pid_t> children_;
};

TEST_F(SharedTimeTest, ProcessesGetEqualTurnsForShortAndLongKernels) {
  const pid_t first = Start("slow=1000000"), second = Start("slow=30000000");
  constexpr double kGpu = 0.995, kGpuError = 0.02;  // 10 us of 2 ms to switch
  constexpr double kPart = 0.4975, kPartError = 0.03;
  Parts parts;
  const auto are_as_wanted = [&] {
    return std::abs(parts.gpu - kGpu) < kGpuError && std::abs(parts.first - kPart) < kPartError &&
           std::abs(parts.second - kPart) < kPartError;
  };
  for (int i = 0; i < kMeasurements && !are_as_wanted(); ++i) {
    parts = Measure(first, second, 1'000'000);
  }
  EXPECT_NEAR(parts.gpu, kGpu, kGpuError);
  EXPECT_NEAR(parts.first, kPart, kPartError);
  EXPECT_NEAR(parts.second, kPart, kPartError);
}

// The wait for the turn of the process does not count. It is up to 2 ms.
TEST_F(SharedTimeTest, AnEventGetsItsTimeInATurnOfItsProcess) {
  Start("slow=1000000");
  EXPECT_NEAR(MedianBetweenEvents(), 0.2, 0.05);
}

TEST_F(SharedTimeTest, AKilledProcessLeavesTheGpuToTheOthers) {
  const pid_t victim = Start("slow=1000000"), other = Start("slow=1000000");
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
  std::erase(children_, victim);
  double part = 0;
  for (int i = 0; i < kMeasurements && part <= 0.95; ++i) {
    part = Measure(other, other, 500'000).first;
  }
  EXPECT_GT(part, 0.95);
}

}  // namespace
}  // namespace tessera::cuda
