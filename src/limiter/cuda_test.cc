// SPDX-License-Identifier: Apache-2.0
// The limiter on the simulated driver, as programs in a limited container get it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/base/subprocess.h"
#include "src/limiter/testing/limited_node.h"

namespace tessera::limiter {
namespace {

using cuda::Context;
using cuda::CudaLibrary;
using cuda::Device;
using cuda::DevicePtr;
using cuda::MemPool;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;

constexpr uint64_t kContext = 10 * kMiB;  // of the node's profile

#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)
#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)

class LimiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LimitedNode::Possible()) GTEST_SKIP() << "needs root for a mount namespace of its own";
  }
};

void MakeContext(const CudaLibrary& cuda, Device device = 0) {
  Context context = nullptr;
  ASSERT_OK(CU(cuda, cuInit)(0));
  ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, device));
}

TEST_F(LimiterTest, AllocatesUpToTheLimitAndThenIsOutOfMemory) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    std::vector<DevicePtr> pointers;
    DevicePtr pointer = 0;
    while (CU(cuda, cuMemAlloc_v2)(&pointer, 10 * kMiB) == Result::kSuccess)
      pointers.push_back(pointer);
    EXPECT_EQ(pointers.size(), 10u);
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 100 * kMiB + kContext);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 1), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointers.back()));
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 10 * kMiB));
  }));
  EXPECT_EQ(node.usage(0).refused, 2u);
  EXPECT_EQ(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimiterTest, ViewsShowTheShare) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    size_t free = 0, total = 0;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB));
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, &total));
    EXPECT_EQ(total, 100 * kMiB);
    EXPECT_EQ(free, 70 * kMiB);
    EXPECT_OK(CU(cuda, cuMemGetInfo_v2)(nullptr, &total))
        << "programs leave out what they do not want";
    EXPECT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));
    ASSERT_OK(CU(cuda, cuDeviceTotalMem_v2)(&total, 0));
    EXPECT_EQ(total, 100 * kMiB);
    ASSERT_OK(CU(cuda, cuDeviceTotalMem_v2)(&total, 1));
    EXPECT_EQ(total, 4000 * kMiB) << "the other GPU is not limited";
  }));
}

TEST_F(LimiterTest, FreeMemoryIsNeverMoreThanTheDeviceHas) {
  LimitedNode node({3900 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    ASSERT_TRUE(node.Run([&](const CudaLibrary&) {}));
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    DevicePtr pointer = 0;
    size_t free = 0;
    // Another tenant, which is not limited, takes nearly all.
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&pointer, 3500 * kMiB));
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));
    EXPECT_EQ(free, 4000 * kMiB - 3500 * kMiB - kContext);
  }));
}

TEST_F(LimiterTest, EveryWayToFindAFunctionLeadsToTheLimiter) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    void* const by_name = reinterpret_cast<void*>(CU(cuda, cuMemAlloc_v2));
    int status = -1;
    void* found = nullptr;
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuMemAlloc", &found, 3020, 0, &status));
    EXPECT_EQ(found, by_name);
    EXPECT_EQ(status, 0);
    ASSERT_OK(CU(cuda, cuGetProcAddress)("cuMemAlloc", &found, 12000, 0));
    EXPECT_EQ(found, by_name);
    // CUDA's runtime asks for this one, too, and goes on with what it gets.
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuGetProcAddress", &found, 12000, 0, nullptr));
    EXPECT_EQ(found, reinterpret_cast<void*>(CU(cuda, cuGetProcAddress_v2)));
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuMemFreeAsync", &found, 12000, 2, nullptr));
    Dl_info info;
    ASSERT_NE(::dladdr(found, &info), 0);
    EXPECT_STREQ(info.dli_fname, "/run/tessera/lib/libcuda.so.1");
    EXPECT_OK(CU(cuda, cuGetProcAddress_v2)("cuMemAlloc", nullptr, 12000, 0, nullptr) ==
                      Result::kInvalidValue
                  ? Result::kSuccess
                  : Result::kUnknown);
  }));
}

TEST_F(LimiterTest, FunctionsThatAreNotLimitedAreTheDriversOwn) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    void* found = nullptr;
    Dl_info info;
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuStreamCreate", &found, 12000, 0, nullptr));
    EXPECT_EQ(found, reinterpret_cast<void*>(CU(cuda, cuStreamCreate)));
    ASSERT_NE(::dladdr(found, &info), 0);
    EXPECT_EQ(std::filesystem::canonical(info.dli_fname),
              std::filesystem::canonical(node.node().library("libcuda.so.1")));
  }));
}

TEST_F(LimiterTest, SmallAllocationsAreChargedByTheBlocksThatTheyShare) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    std::vector<DevicePtr> pointers(6000);
    for (DevicePtr& pointer : pointers) ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 1000));
    EXPECT_EQ(node.Held(0), 6 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 6 * kMiB + kContext);
    for (DevicePtr pointer : pointers) ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimiterTest, PitchedAndManagedMemoryIsCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    DevicePtr pitched = 0, managed = 0, other = 0;
    size_t pitch = 0;
    ASSERT_OK(CU(cuda, cuMemAllocPitch_v2)(&pitched, &pitch, 1000, 20'000, 4));
    EXPECT_EQ(node.Held(0), 20 * kMiB);
    ASSERT_OK(CU(cuda, cuMemAllocManaged)(&managed, 70 * kMiB, 1));
    EXPECT_EQ(node.Held(0), node.DeviceBytes(0) - kContext);
    EXPECT_EQ(CU(cuda, cuMemAllocManaged)(&other, 70 * kMiB, 1), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuMemAllocPitch_v2)(&other, &pitch, 1 << 20, 100, 4), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuMemAllocPitch_v2)(&other, &pitch, SIZE_MAX - 3, 100, 4),
              Result::kInvalidValue);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pitched));
    ASSERT_OK(CU(cuda, cuMemFree_v2)(managed));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimiterTest, APoolIsChargedWithWhatItReserves) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    MemPool pool = nullptr;
    ASSERT_OK(CU(cuda, cuDeviceGetDefaultMemPool)(&pool, 0));
    uint64_t keep = 64 * kMiB;
    ASSERT_OK(CU(cuda, cuMemPoolSetAttribute)(pool, 4, &keep));
    DevicePtr pointer = 0, other = 0;
    ASSERT_OK(CU(cuda, cuMemAllocAsync)(&pointer, 60 * kMiB, nullptr));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_EQ(CU(cuda, cuMemAllocAsync)(&other, 60 * kMiB, nullptr), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
    EXPECT_EQ(node.Held(0), 60 * kMiB) << "the pool keeps it";
    ASSERT_OK(CU(cuda, cuMemAllocAsync)(&pointer, 30 * kMiB, nullptr)) << "and serves from it";
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&other, 90 * kMiB))
        << "kept memory is returned before anything is refused";
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 90 * kMiB + kContext);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(other));
    ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 60 * kMiB, pool, nullptr));
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
    ASSERT_OK(CU(cuda, cuMemPoolTrimTo)(pool, 0));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimiterTest, APoolIsChargedToItsOwnGpu) {
  LimitedNode node({100 * kMiB, 100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda, 0);
    cuda::MemPoolProperties properties{};
    properties.alloc_type = 1;
    properties.location = {1, 1};
    MemPool pool = nullptr;
    ASSERT_OK(CU(cuda, cuMemPoolCreate)(&pool, &properties));
    MakeContext(cuda, 1);
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 10 * kMiB, pool, nullptr));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.Held(1), 10 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
    ASSERT_OK(CU(cuda, cuMemPoolDestroy)(pool));
    EXPECT_EQ(node.Held(1), 0u);
  }));
}

TEST_F(LimiterTest, TheEndOfAContextEndsItsCharges) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Context context = nullptr, primary = nullptr;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&primary, 0));
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&primary, 0));
    ASSERT_OK(CU(cuda, cuCtxSetCurrent)(primary));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 10 * kMiB));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 1000));
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 20 * kMiB));
    ASSERT_OK(CU(cuda, cuMemAllocAsync)(&pointer, 20 * kMiB, nullptr));
    EXPECT_EQ(node.Held(0), 52 * kMiB);
    EXPECT_NE(CU(cuda, cuCtxDestroy_v2)(reinterpret_cast<Context>(&pointer)), Result::kSuccess);
    EXPECT_EQ(node.Held(0), 52 * kMiB);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    EXPECT_EQ(node.Held(0), 12 * kMiB);
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRelease_v2)(0));
    EXPECT_EQ(node.Held(0), 12 * kMiB) << "it is still retained once";
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxReset_v2)(0));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), 0u);
  }));
}

TEST_F(LimiterTest, TheLastDetachOfAContextEndsItsCharges) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Context context = nullptr, attached = nullptr;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB));
    ASSERT_OK(CU(cuda, cuCtxAttach)(&attached, 0));
    ASSERT_OK(CU(cuda, cuCtxDetach)(attached));
    EXPECT_EQ(node.Held(0), 30 * kMiB) << "it was attached twice";
    EXPECT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(node.Held(0), 0u);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB));
    ASSERT_OK(CU(cuda, cuCtxDetach)(context));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), 0u);
  }));
}

TEST_F(LimiterTest, PointersOfOthersAndFreesInVainChangeNothing) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    DevicePtr ours = 0, foreign = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&ours, 10 * kMiB));
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&foreign, 10 * kMiB))
        << "by a library that calls the driver itself";
    EXPECT_OK(CU(cuda, cuMemFree_v2)(foreign));
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(ours + 512), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    EXPECT_OK(CU(cuda, cuMemFree_v2)(ours));
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(ours), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_OK(CU(cuda, cuMemFree_v2)(0));
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(nullptr, 10), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&ours, 0), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&ours, SIZE_MAX), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimiterTest, WhatTheDriverRefusesIsNotCharged) {
  LimitedNode node({0});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 3000 * kMiB)) << "this GPU is counted, not limited";
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 3000 * kMiB), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 3000 * kMiB);
  }));
}

TEST_F(LimiterTest, ProcessesOfTheContainerShareOneLimitAndADeadOneLeavesNothing) {
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
    // The killed process stays a zombie until its parent waits for it. Its files are closed then.
    (void)::waitid(P_PID, id_t(holder), &ended, WEXITED | WNOWAIT);
    Result result = Result::kOutOfMemory;
    for (int i = 0; i < 1000 && result != Result::kSuccess; ++i) {
      result = CU(cuda, cuMemAlloc_v2)(&pointer, 100 * kMiB);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_OK(result);
  }));
  int status;
  ::waitpid(holder, &status, 0);
}

// The slot of a process that has ended is cleared by others when they need it. Until then, too,
// what it held is free.
TEST_F(LimiterTest, FreeMemoryDoesNotCountProcessesThatHaveEnded) {
  LimitedNode node({100 * kMiB});
  int held[2], looked[2];
  ASSERT_EQ(::pipe(held), 0);
  ASSERT_EQ(::pipe(looked), 0);
  char byte;
  const auto free_memory = [](const CudaLibrary& cuda) {
    size_t free = 0, total = 0;
    EXPECT_OK(CU(cuda, cuMemGetInfo_v2)(&free, &total));
    return free;
  };
  // It starts first, so that the other process has not its slot.
  const int asking = node.Start([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    ASSERT_EQ(::write(looked[1], "s", 1), 1);
    ASSERT_EQ(::read(held[0], &byte, 1), 1);
    EXPECT_EQ(free_memory(cuda), 20 * kMiB);
    ASSERT_EQ(::write(looked[1], "l", 1), 1);
    ASSERT_EQ(::read(held[0], &byte, 1), 1);
    EXPECT_EQ(free_memory(cuda), 100 * kMiB);
  });
  ASSERT_EQ(::read(looked[0], &byte, 1), 1);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 80 * kMiB));
    ASSERT_EQ(::write(held[1], "h", 1), 1);
    ASSERT_EQ(::read(looked[0], &byte, 1), 1);
  }));
  EXPECT_EQ(node.Held(0), 80 * kMiB) << "no process has cleared its slot";
  ASSERT_EQ(::write(held[1], "e", 1), 1);
  int status = -1;
  EXPECT_EQ(::waitpid(asking, &status, 0), asking);
  EXPECT_EQ(status, 0);
  for (int end : {held[0], held[1], looked[0], looked[1]}) ::close(end);
}

TEST_F(LimiterTest, AStaticProgramThatOpensTheLibraryIsLimited) {
#ifndef LIMITER_STATIC_CLIENT
  GTEST_SKIP() << "sanitizers do not link statically";
#else
  LimitedNode node({100 * kMiB});
  const auto allocates = [](uint64_t bytes) {
    const auto result = RunProgram({LIMITER_STATIC_CLIENT, std::to_string(bytes)},
                                   std::chrono::seconds(60), {"LD_LIBRARY_PATH=/run/tessera/lib"});
    return result.ok() ? result->exit_code : -1;
  };
  EXPECT_EQ(allocates(80 * kMiB), 0);
  EXPECT_EQ(allocates(120 * kMiB), static_cast<int>(cuda::Result::kOutOfMemory));
#endif
}

TEST_F(LimiterTest, ALimitChangesWhileTheProgramRuns) {
  LimitedNode node({50 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    DevicePtr first = 0, second = 0;
    size_t free = 1, total = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&first, 40 * kMiB));
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&second, 40 * kMiB), Result::kOutOfMemory);
    node.SetMemory(0, 100 * kMiB);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&second, 40 * kMiB));
    node.SetMemory(0, 20 * kMiB);
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, &total));
    EXPECT_EQ(free, 0u) << "the program keeps what it has, and is told that nothing is left";
    EXPECT_EQ(total, 20 * kMiB);
  }));
}

TEST_F(LimiterTest, AForkedChildStartsAnew) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    // Before CUDA is initialized a program may fork, and both may use the GPU.
    const pid_t child = ::fork();
    DevicePtr pointer = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, child == 0 ? 10 * kMiB : 20 * kMiB));
    if (child == 0) ::_exit(::testing::Test::HasFailure());
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    // Afterwards a child may not use CUDA: the driver says so, and the limiter changes nothing of
    // its parent's.
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

TEST_F(LimiterTest, WithoutItsRegionAProgramDoesNotGetTheGpu) {
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

TEST_F(LimiterTest, AProgramThatCannotBeCountedGetsTheGpuWhereTheLimitsFailOpen) {
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

TEST_F(LimiterTest, ARefusalNamesTheLimitOnStandardErrorAndDoesNotFillIt) {
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

// What a process believes that it may hold, told by itself: shared with the test.
struct Shared {
  std::atomic<uint64_t> operations, refused;
  std::atomic<bool> stop;
};
Shared* MakeShared() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Shared{};
}

// Allocates and frees until it is told to stop.
void Churn(const CudaLibrary& cuda, Shared* shared, unsigned seed) {
  ::close(STDERR_FILENO);  // it is out of memory all the time
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
  Shared* shared = MakeShared();
  std::vector<int> pids;
  for (int i = 0; i < kProcesses; ++i) {
    pids.push_back(node.Start([&](const CudaLibrary& cuda) { Churn(cuda, shared, unsigned(i)); }));
  }
  uint64_t most = 0, over = 0, looks = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    const uint64_t used = node.DeviceBytes(0);
    ++looks;
    most = std::max(most, used);
    // The contexts themselves are the driver's.
    if (used > kLimit + kProcesses * kContext) ++over;
  }
  shared->stop = true;
  for (int pid : pids) {
    int status = -1;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(over, 0u) << "of " << looks << " looks, at most " << most / kMiB << " MiB";
  EXPECT_GT(shared->refused.load(), 0u) << "the limit was never reached";
  EXPECT_LE(node.usage(0).peak, kLimit);
  node.Sweep();
  EXPECT_EQ(node.Held(0), 0u);
}

// TESSERA_LIMITER_KILLS sets how many processes are killed.
TEST_F(LimiterTest, NothingIsLostWhenProcessesAreKilledAtAnyPoint) {
  const char* wanted = std::getenv("TESSERA_LIMITER_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 200;
  LimitedNode node({100 * kMiB});
  Shared* shared = MakeShared();
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
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 100 * kMiB)) << "all of the limit is there again";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 100 * kMiB + kContext);
  }));
}

// Whatever a program does, the limiter counts what the device counts.
TEST_F(LimiterTest, RandomCallsAreCountedAsTheDeviceCountsThem) {
  LimitedNode node({200 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    std::mt19937 random(5);
    std::vector<Context> contexts;
    std::map<DevicePtr, Context> held;
    MemPool pool = nullptr;
    ASSERT_OK(CU(cuda, cuDeviceGetDefaultMemPool)(&pool, 0));
    for (int i = 0; i < 20'000; ++i) {
      const unsigned what = random() % 20;
      if (contexts.empty() || (what == 0 && contexts.size() < 5)) {
        Context context = nullptr;
        ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
        contexts.push_back(context);
      } else if (what == 1) {
        const size_t which = random() % contexts.size();
        const Context context = contexts[which];
        ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
        std::erase_if(held, [&](const auto& one) { return one.second == context; });
        contexts.erase(contexts.begin() + long(which));
      } else if (what == 2) {
        uint64_t keep = random() % 2 * 20 * kMiB;
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(contexts[0]));
        ASSERT_OK(CU(cuda, cuMemPoolSetAttribute)(pool, 4, &keep));
        ASSERT_OK(CU(cuda, cuMemPoolTrimTo)(pool, random() % 2 * 10 * kMiB));
      } else if (what < 12) {
        const Context context = contexts[random() % contexts.size()];
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(context));
        const uint64_t bytes =
            1 + (random() % 2 == 0 ? random() % 100'000 : random() % (16 * kMiB));
        DevicePtr pointer = 0;
        size_t pitch = 0;
        Result result;
        switch (random() % 4) {
          case 0:
            result = CU(cuda, cuMemAllocManaged)(&pointer, bytes, 1);
            break;
          case 1:
            result = CU(cuda, cuMemAllocPitch_v2)(&pointer, &pitch, 1 + bytes / 100, 100, 4);
            break;
          case 2:
            result = CU(cuda, cuMemAllocAsync)(&pointer, bytes, nullptr);
            break;
          default:
            result = CU(cuda, cuMemAlloc_v2)(&pointer, bytes);
            break;
        }
        if (result == Result::kSuccess)
          held[pointer] = context;
        else
          ASSERT_EQ(result, Result::kOutOfMemory);
      } else if (!held.empty()) {
        const auto one = std::next(held.begin(), long(random() % held.size()));
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(one->second));
        ASSERT_OK(CU(cuda, cuMemFree_v2)(one->first));
        held.erase(one);
      }
      ASSERT_EQ(node.Held(0), node.DeviceBytes(0) - contexts.size() * kContext) << "call " << i;
      ASSERT_LE(node.Held(0), 200 * kMiB);
    }
  }));
}

}  // namespace
}  // namespace tessera::limiter
