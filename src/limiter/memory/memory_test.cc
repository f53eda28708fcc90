// SPDX-License-Identifier: Apache-2.0
// The charge of device memory from addresses and pools, on the simulated driver.
#include <sched.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::Context;
using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::MemPool;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

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
    EXPECT_EQ(node.DeviceBytes(0), 100 * kMiB + kContextBytes);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 1), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointers.back()));
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 10 * kMiB));
  }));
  EXPECT_EQ(node.usage(0).refused, 2u);
  EXPECT_EQ(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimiterTest, MemoryQueriesShowTheShare) {
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
        << "a program may pass null for a value that it does not need";
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
    // Another tenant without a limit allocates nearly all of the GPU.
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&pointer, 3500 * kMiB));
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));
    EXPECT_EQ(free, 4000 * kMiB - 3500 * kMiB - kContextBytes);
  }));
}

TEST_F(LimiterTest, SmallAllocationsAreChargedByTheBlocksThatTheyShare) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    std::vector<DevicePtr> pointers(6000);
    for (DevicePtr& pointer : pointers) ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 1000));
    EXPECT_EQ(node.Held(0), 6 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 6 * kMiB + kContextBytes);
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
    EXPECT_EQ(node.Held(0), node.DeviceBytes(0) - kContextBytes);
    EXPECT_EQ(CU(cuda, cuMemAllocManaged)(&other, 70 * kMiB, 1), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuMemAllocPitch_v2)(&other, &pitch, 1 << 20, 100, 4), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuMemAllocPitch_v2)(&other, &pitch, SIZE_MAX - 3, 100, 4),
              Result::kInvalidValue);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pitched));
    ASSERT_OK(CU(cuda, cuMemFree_v2)(managed));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimiterTest, APoolIsChargedWithItsReservedBytes) {
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
    EXPECT_EQ(node.Held(0), 60 * kMiB) << "the pool keeps the memory";
    ASSERT_OK(CU(cuda, cuMemAllocAsync)(&pointer, 30 * kMiB, nullptr))
        << "the pool serves the allocation from kept memory";
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&other, 90 * kMiB))
        << "kept memory is returned before anything is refused";
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 90 * kMiB + kContextBytes);
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

TEST_F(LimiterTest, TheDefaultPoolOfAnotherGpuIsChargedToThatGpu) {
  LimitedNode node({100 * kMiB, 50 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda, 0);
    MemPool pool = nullptr;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuDeviceGetDefaultMemPool)(&pool, 1));
    EXPECT_EQ(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 60 * kMiB, pool, nullptr),
              Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 40 * kMiB, pool, nullptr));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.Held(1), 40 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
    ASSERT_OK(CU(cuda, cuMemPoolTrimTo)(pool, 0));
    EXPECT_EQ(node.Held(1), 0u);
  }));
}

TEST_F(LimiterTest, TheDefaultPoolOfAGpuWithoutALimitIsNotCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda, 0);
    MemPool pool = nullptr;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuDeviceGetDefaultMemPool)(&pool, 1));
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 200 * kMiB, pool, nullptr));
      EXPECT_EQ(node.Held(0), 0u);
      ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
      ASSERT_OK(CU(cuda, cuMemPoolTrimTo)(pool, 0));
    }
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimiterTest, APoolThatALibraryHasCreatedInTheDriverIsChargedToItsOwnGpu) {
  LimitedNode node({100 * kMiB, 50 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda, 0);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    cuda::MemPoolProperties properties{};
    properties.alloc_type = 1;
    properties.location = {1, 1};
    MemPool pool = nullptr;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(real, cuMemPoolCreate)(&pool, &properties));
    EXPECT_EQ(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 60 * kMiB, pool, nullptr),
              Result::kOutOfMemory);
    EXPECT_EQ(node.DeviceBytes(1), 0u);
    ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 40 * kMiB, pool, nullptr));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.Held(1), 40 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
    ASSERT_OK(CU(cuda, cuMemPoolDestroy)(pool));
    EXPECT_EQ(node.Held(1), 0u);
  }));
}

TEST_F(LimiterTest, HundredsOfPoolsAreChargedAndReleased) {
  constexpr uint64_t kPools = 600;
  LimitedNode node({2000 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    cuda::MemPoolProperties properties{};
    properties.alloc_type = 1;
    properties.location = {1, 0};
    std::vector<std::pair<MemPool, DevicePtr>> pools(kPools);
    for (auto& [pool, pointer] : pools) {
      ASSERT_OK(CU(cuda, cuMemPoolCreate)(&pool, &properties));
      ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 2 * kMiB, pool, nullptr));
    }
    EXPECT_EQ(node.Held(0), kPools * 2 * kMiB);
    DevicePtr other = 0;
    ASSERT_OK(CU(cuda, cuMemAllocAsync)(&other, 2 * kMiB, nullptr));
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(other, nullptr));
    for (const auto& [pool, pointer] : pools) {
      ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
      ASSERT_OK(CU(cuda, cuMemPoolDestroy)(pool));
    }
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
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
    EXPECT_EQ(node.Held(0), 52 * kMiB + kContextBytes);
    EXPECT_NE(CU(cuda, cuCtxDestroy_v2)(reinterpret_cast<Context>(&pointer)), Result::kSuccess);
    EXPECT_EQ(node.Held(0), 52 * kMiB + kContextBytes);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    EXPECT_EQ(node.Held(0), 12 * kMiB);
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRelease_v2)(0));
    EXPECT_EQ(node.Held(0), 12 * kMiB) << "one reference to the context is left";
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
    EXPECT_EQ(node.Held(0), 30 * kMiB) << "one of two attachments is left";
    EXPECT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(node.Held(0), 0u);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB));
    ASSERT_OK(CU(cuda, cuCtxDetach)(context));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), 0u);
  }));
}

TEST_F(LimiterTest, ForeignPointersAndFailedFreesChangeNothing) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    DevicePtr ours = 0, foreign = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&ours, 10 * kMiB));
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&foreign, 10 * kMiB))
        << "allocated by a library that calls the driver directly";
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

// If two threads free a pointer, the driver succeeds for one of them and refuses the other, in
// either order.
TEST_F(LimiterTest, MemoryThatTwoThreadsFreeAtOnceIsReleasedOnce) {
  constexpr int kRounds = 20'000;
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context context = MakeContext(cuda);
    std::atomic<DevicePtr> shared{0};  // 0: freed by `other`
    std::atomic<int> freed{0};
    const auto free = [&](DevicePtr pointer) {
      if (CU(cuda, cuMemFree_v2)(pointer) == Result::kSuccess) ++freed;
    };
    std::thread other([&] {
      EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
      for (int i = 0; i < kRounds; ++i) {
        while (shared.load() == 0) ::sched_yield();
        free(shared.load());
        shared = 0;
      }
    });
    for (int i = 0; i < kRounds; ++i) {
      DevicePtr pointer = 0;
      EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, i % 2 == 0 ? 2 * kMiB : 1000));
      shared = pointer;
      free(pointer);
      while (shared.load() != 0) ::sched_yield();
    }
    other.join();
    EXPECT_EQ(freed.load(), kRounds);
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
  }));
}

TEST_F(LimiterTest, MemoryThatALibraryHasFreedInTheDriverIsReleasedWhenItsAddressIsReused) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    DevicePtr first = 0, second = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&first, 40 * kMiB));
    ASSERT_OK(CU(real, cuMemFree_v2)(first));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&second, 40 * kMiB));
    ASSERT_EQ(second, first);
    EXPECT_EQ(node.Held(0), 40 * kMiB);
  }));
}

TEST_F(LimiterTest, AnAllocationThatTheDriverRefusesIsNotCharged) {
  LimitedNode node({0});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 3000 * kMiB)) << "this GPU is counted, not limited";
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 3000 * kMiB), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 3000 * kMiB);
  }));
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
    EXPECT_EQ(free, 0u) << "the program keeps its memory, and no memory is free";
    EXPECT_EQ(total, 20 * kMiB);
  }));
}

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
      const unsigned call = random() % 20;
      if (contexts.empty() || (call == 0 && contexts.size() < 5)) {
        Context context = nullptr;
        const Result result = CU(cuda, cuCtxCreate_v2)(&context, 0, 0);
        if (result == Result::kSuccess) {
          contexts.push_back(context);
        } else {
          ASSERT_EQ(result, Result::kOutOfMemory);
        }
      } else if (call == 1) {
        const size_t which = random() % contexts.size();
        const Context context = contexts[which];
        ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
        std::erase_if(held, [&](const auto& allocation) { return allocation.second == context; });
        contexts.erase(contexts.begin() + long(which));
      } else if (call == 2) {
        uint64_t keep = random() % 2 * 20 * kMiB;
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(contexts[0]));
        ASSERT_OK(CU(cuda, cuMemPoolSetAttribute)(pool, 4, &keep));
        ASSERT_OK(CU(cuda, cuMemPoolTrimTo)(pool, random() % 2 * 10 * kMiB));
      } else if (call < 12) {
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
        const auto allocation = std::next(held.begin(), long(random() % held.size()));
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(allocation->second));
        ASSERT_OK(CU(cuda, cuMemFree_v2)(allocation->first));
        held.erase(allocation);
      }
      ASSERT_EQ(node.Held(0), node.DeviceBytes(0) - (contexts.empty() ? 0 : kContextBytes))
          << "call " << i;
      ASSERT_LE(node.Held(0), 200 * kMiB);
    }
  }));
}

}  // namespace
}  // namespace tessera::limiter
