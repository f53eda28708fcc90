// SPDX-License-Identifier: Apache-2.0
// Two threads that destroy one object at the same time, on the simulated driver. The driver
// destroys it for one of the threads and refuses the other, in either order.
#include <sched.h>

#include <atomic>
#include <string>
#include <thread>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::Array3DDescriptor;
using cuda::Context;
using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

constexpr Array3DDescriptor kLargeArray = {
    .width = 4096, .height = 128, .format = cuda::kFormatUint32, .channels = 1};  // 2 MiB
constexpr Array3DDescriptor kSmallArray = {
    .width = 100, .height = 100, .format = cuda::kFormatUint8, .channels = 1};
constexpr char kVariables[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .b8 big[4194304];\n.visible .entry k() { ret; }\n";

class DoubleDestroyTest : public LimiterTest {
 protected:
  // In a process with a limit, calls `create` in one thread and `destroy` in two threads at once,
  // and checks after each round that nothing is held.
  template <typename Handle, typename Create, typename Destroy>
  static void Run(int rounds, Create create, Destroy destroy) {
    LimitedNode node({100 * kMiB});
    EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
      const Context context = MakeContext(cuda);
      std::atomic<Handle> shared{nullptr};  // null: `other` has called `destroy`
      std::atomic<int> destroyed{0};
      std::atomic<bool> ends{false};
      std::thread other([&] {
        EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
        while (!ends.load()) {
          const Handle handle = shared.load();
          if (handle == nullptr) {
            ::sched_yield();
            continue;
          }
          if (destroy(cuda, handle) == Result::kSuccess) ++destroyed;
          shared = nullptr;
        }
      });
      for (int round = 1; round <= rounds && !::testing::Test::HasFailure(); ++round) {
        Handle handle = nullptr;
        EXPECT_OK(create(cuda, &handle, round));
        shared = handle;
        if (destroy(cuda, handle) == Result::kSuccess) ++destroyed;
        while (shared.load() != nullptr) ::sched_yield();
        EXPECT_EQ(destroyed.load(), round);
        EXPECT_EQ(node.Held(0), 0u) << "in round " << round;
      }
      ends = true;
      other.join();
      EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
    }));
  }
};

TEST_F(DoubleDestroyTest, AnArrayIsReleasedOnce) {
  Run<cuda::Array>(
      20'000,
      [](const CudaLibrary& cuda, cuda::Array* array, int round) {
        return CU(cuda, cuArray3DCreate_v2)(array, round % 2 == 0 ? &kLargeArray : &kSmallArray);
      },
      [](const CudaLibrary& cuda, cuda::Array array) { return CU(cuda, cuArrayDestroy)(array); });
}

TEST_F(DoubleDestroyTest, AMipmappedArrayIsReleasedOnce) {
  Run<cuda::MipmappedArray>(
      20'000,
      [](const CudaLibrary& cuda, cuda::MipmappedArray* array, int) {
        return CU(cuda, cuMipmappedArrayCreate)(array, &kLargeArray, 3);
      },
      [](const CudaLibrary& cuda, cuda::MipmappedArray array) {
        return CU(cuda, cuMipmappedArrayDestroy)(array);
      });
}

TEST_F(DoubleDestroyTest, AModuleIsReleasedOnce) {
  Run<cuda::Module>(
      5'000,
      [](const CudaLibrary& cuda, cuda::Module* module, int) {
        return CU(cuda, cuModuleLoadData)(module, kVariables);
      },
      [](const CudaLibrary& cuda, cuda::Module module) {
        return CU(cuda, cuModuleUnload)(module);
      });
}

TEST_F(DoubleDestroyTest, ALibraryIsReleasedOnce) {
  Run<cuda::Library>(
      5'000,
      [](const CudaLibrary& cuda, cuda::Library* library, int) {
        return CU(cuda, cuLibraryLoadData)(library, kVariables, nullptr, nullptr, 0, nullptr,
                                           nullptr, 0);
      },
      [](const CudaLibrary& cuda, cuda::Library library) {
        return CU(cuda, cuLibraryUnload)(library);
      });
}

TEST_F(DoubleDestroyTest, AContextAndItsMemoryAreReleasedOnce) {
  Run<Context>(
      5'000,
      [](const CudaLibrary& cuda, Context* context, int) {
        Context before = nullptr;
        DevicePtr pointer = 0;
        EXPECT_OK(CU(cuda, cuCtxGetCurrent)(&before));
        const Result result = CU(cuda, cuCtxCreate_v2)(context, 0, 0);
        EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 2 * kMiB));
        EXPECT_OK(CU(cuda, cuCtxSetCurrent)(before));
        return result;
      },
      [](const CudaLibrary& cuda, Context context) { return CU(cuda, cuCtxDestroy_v2)(context); });
}

TEST_F(DoubleDestroyTest, AHandleOfPhysicalMemoryIsReleasedOnce) {
  Run<void*>(
      20'000,
      [](const CudaLibrary& cuda, void** handle, int) {
        const cuda::PhysicalMemoryProperties properties = {
            .type = 1, .location = {.type = cuda::kLocationDevice, .id = 0}};
        return CU(cuda, cuMemCreate)(reinterpret_cast<cuda::PhysicalMemory*>(handle), 2 * kMiB,
                                     &properties, 0);
      },
      [](const CudaLibrary& cuda, void* handle) {
        return CU(cuda, cuMemRelease)(reinterpret_cast<cuda::PhysicalMemory>(handle));
      });
}

TEST_F(DoubleDestroyTest, APoolIsReleasedOnce) {
  Run<cuda::MemPool>(
      5'000,
      [](const CudaLibrary& cuda, cuda::MemPool* pool, int) {
        const cuda::MemPoolProperties properties = {
            .alloc_type = 1, .location = {.type = cuda::kLocationDevice, .id = 0}};
        DevicePtr pointer = 0;
        const Result result = CU(cuda, cuMemPoolCreate)(pool, &properties);
        EXPECT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 2 * kMiB, *pool, nullptr));
        EXPECT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
        EXPECT_OK(CU(cuda, cuStreamSynchronize)(nullptr));
        return result;
      },
      [](const CudaLibrary& cuda, cuda::MemPool pool) { return CU(cuda, cuMemPoolDestroy)(pool); });
}

}  // namespace
}  // namespace tessera::limiter
