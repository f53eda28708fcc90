// SPDX-License-Identifier: Apache-2.0
// The charge of arrays and mipmapped arrays, on the simulated driver.
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::Array;
using cuda::Array3DDescriptor;
using cuda::Context;
using cuda::CudaLibrary;
using cuda::MipmappedArray;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

// An array that takes `mib` MiB: 64 rows of 16 KiB for each MiB.
constexpr Array3DDescriptor ArrayOfMiB(size_t mib) {
  return {.width = 4096, .height = mib * 64, .format = cuda::kFormatUint32, .channels = 1};
}
constexpr Array3DDescriptor kSmall = {
    .width = 100, .height = 100, .format = cuda::kFormatUint8, .channels = 1};

class LimitedArrayTest : public LimiterTest {};

Result Create(const CudaLibrary& cuda, Array* array, const Array3DDescriptor& descriptor) {
  return CU(cuda, cuArray3DCreate_v2)(array, &descriptor);
}

TEST_F(LimitedArrayTest, AnArrayIsRefusedBeyondTheLimitAndFreedWhenDestroyed) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    Array array = nullptr, other = nullptr;
    ASSERT_OK(Create(cuda, &array, ArrayOfMiB(60)));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    EXPECT_EQ(Create(cuda, &other, ArrayOfMiB(41)), Result::kOutOfMemory);
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    ASSERT_OK(Create(cuda, &other, ArrayOfMiB(40)));
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    ASSERT_OK(CU(cuda, cuArrayDestroy)(array));
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    EXPECT_OK(Create(cuda, &array, ArrayOfMiB(60)));
  }));
  EXPECT_EQ(node.usage(0).refused, 1u);
  EXPECT_EQ(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimitedArrayTest, EveryFunctionThatCreatesAnArrayIsCounted) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const cuda::ArrayDescriptor flat{4096, 640, cuda::kFormatUint32, 1};
    const cuda::ArrayDescriptorV1 old_flat{4096, 640, cuda::kFormatUint32, 1};
    const cuda::Array3DDescriptorV1 old{1024, 256, 10, cuda::kFormatUint32, 1, 0};
    const Array3DDescriptor full{1024, 256, 10, cuda::kFormatUint32, 1, 0};
    const Array3DDescriptor level0{2048, 2048, 0, cuda::kFormatUint32, 1, 0};
    Array arrays[4] = {};
    MipmappedArray mipmap = nullptr;
    ASSERT_OK(CU(cuda, cuArrayCreate)(&arrays[0], &old_flat));
    ASSERT_OK(CU(cuda, cuArrayCreate_v2)(&arrays[1], &flat));
    ASSERT_OK(CU(cuda, cuArray3DCreate)(&arrays[2], &old));
    ASSERT_OK(CU(cuda, cuArray3DCreate_v2)(&arrays[3], &full));
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    ASSERT_OK(CU(cuda, cuMipmappedArrayCreate)(&mipmap, &level0, 3));
    EXPECT_EQ(node.Held(0), 62 * kMiB) << "levels of 16, 4 and 1 MiB, rounded up to blocks";
    EXPECT_EQ(node.DeviceBytes(0), 62 * kMiB + kContextBytes);
    Array level = nullptr;
    ASSERT_OK(CU(cuda, cuMipmappedArrayGetLevel)(&level, mipmap, 0));
    EXPECT_EQ(CU(cuda, cuArrayDestroy)(level), Result::kInvalidHandle);
    EXPECT_EQ(node.Held(0), 62 * kMiB) << "the driver does not destroy a single level";
    for (Array array : arrays) ASSERT_OK(CU(cuda, cuArrayDestroy)(array));
    ASSERT_OK(CU(cuda, cuMipmappedArrayDestroy)(mipmap));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedArrayTest, SmallArraysAreChargedByTheBlocksThatTheyShare) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context context = MakeContext(cuda);
    std::vector<Array> arrays(300);
    for (Array& array : arrays) ASSERT_OK(Create(cuda, &array, kSmall));
    EXPECT_EQ(node.Held(0), 4 * kMiB) << "300 arrays of 13 KiB";
    EXPECT_EQ(node.DeviceBytes(0), 4 * kMiB + kContextBytes);
    for (size_t i = 0; i < 200; ++i) ASSERT_OK(CU(cuda, cuArrayDestroy)(arrays[i]));
    EXPECT_EQ(node.Held(0), 2 * kMiB);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    EXPECT_EQ(node.Held(0), 0u) << "arrays end with their context";
    EXPECT_EQ(node.DeviceBytes(0), 0u);
  }));
}

TEST_F(LimitedArrayTest, AnArrayThatTheDriverRefusesIsNotCharged) {
  LimitedNode node({3900 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    cuda::DevicePtr pointer = 0;
    Array array = nullptr;
    MipmappedArray mipmap = nullptr;
    // Another tenant without a limit allocates nearly all of the GPU.
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&pointer, 3900 * kMiB));
    EXPECT_EQ(Create(cuda, &array, ArrayOfMiB(200)), Result::kOutOfMemory);
    const Array3DDescriptor large = ArrayOfMiB(200);
    EXPECT_EQ(CU(cuda, cuMipmappedArrayCreate)(&mipmap, &large, 1), Result::kOutOfMemory);
    Array3DDescriptor wrong = ArrayOfMiB(10);
    wrong.channels = 3;
    EXPECT_EQ(Create(cuda, &array, wrong), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuArray3DCreate_v2)(&array, nullptr), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuArray3DCreate_v2)(nullptr, &wrong), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.usage(0).pending[0], 0u) << "the reservation has ended";
    EXPECT_OK(Create(cuda, &array, ArrayOfMiB(60)));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
  }));
  EXPECT_EQ(node.usage(0).refused, 0u);
}

TEST_F(LimitedArrayTest, ForeignArraysAndFailedDestroysChangeNothing) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    Array ours = nullptr, foreign = nullptr;
    ASSERT_OK(Create(cuda, &ours, ArrayOfMiB(10)));
    ASSERT_OK(Create(real, &foreign, ArrayOfMiB(10)))
        << "made by a library that calls the driver directly";
    EXPECT_OK(CU(cuda, cuArrayDestroy)(foreign));
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    EXPECT_OK(CU(cuda, cuArrayDestroy)(ours));
    EXPECT_EQ(CU(cuda, cuArrayDestroy)(ours), Result::kInvalidHandle);
    EXPECT_EQ(CU(cuda, cuArrayDestroy)(nullptr), Result::kInvalidHandle);
    EXPECT_EQ(node.Held(0), 0u);
    const Array3DDescriptor descriptor = ArrayOfMiB(10);
    MipmappedArray mipmap = nullptr, other = nullptr;
    ASSERT_OK(CU(cuda, cuMipmappedArrayCreate)(&mipmap, &descriptor, 1));
    ASSERT_OK(CU(real, cuMipmappedArrayCreate)(&other, &descriptor, 1));
    EXPECT_OK(CU(cuda, cuMipmappedArrayDestroy)(other));
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    EXPECT_OK(CU(cuda, cuMipmappedArrayDestroy)(mipmap));
    EXPECT_EQ(CU(cuda, cuMipmappedArrayDestroy)(mipmap), Result::kInvalidHandle);
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedArrayTest, AnArrayThatTheDriverDoesNotDestroyStaysCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    Array array = nullptr;
    Context context = nullptr;
    ASSERT_OK(Create(cuda, &array, ArrayOfMiB(10)));
    ASSERT_OK(CU(cuda, cuCtxPopCurrent_v2)(&context));
    EXPECT_EQ(CU(cuda, cuArrayDestroy)(array), Result::kInvalidContext);
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    ASSERT_OK(CU(cuda, cuCtxPushCurrent_v2)(context));
    EXPECT_OK(CU(cuda, cuArrayDestroy)(array));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedArrayTest, SparseArraysTakeNoMemoryAtTheirCreation) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    Array array = nullptr;
    Array3DDescriptor descriptor = ArrayOfMiB(1000);
    descriptor.flags = cuda::kArraySparse;
    ASSERT_OK(Create(cuda, &array, descriptor));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
    EXPECT_OK(CU(cuda, cuArrayDestroy)(array));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

// Creates and destroys at random. Small arrays have one size, so that blocks have no gaps.
void Churn(const CudaLibrary& cuda, Context context, unsigned seed, int rounds) {
  ASSERT_OK(CU(cuda, cuCtxSetCurrent)(context));
  std::mt19937 random(seed);
  std::vector<Array> arrays;
  std::vector<MipmappedArray> mipmaps;
  for (int i = 0; i < rounds; ++i) {
    const unsigned call = random() % 4;
    if (call == 0) {
      Array array = nullptr;
      const bool small = random() % 2 == 0 && arrays.size() < 20;
      const Result result = Create(cuda, &array, small ? kSmall : ArrayOfMiB(2 + random() % 8));
      if (result == Result::kSuccess)
        arrays.push_back(array);
      else
        ASSERT_EQ(result, Result::kOutOfMemory);
    } else if (call == 1) {
      MipmappedArray mipmap = nullptr;
      const Array3DDescriptor descriptor = ArrayOfMiB(2 + random() % 8);
      const Result result = CU(cuda, cuMipmappedArrayCreate)(&mipmap, &descriptor, random() % 20);
      if (result == Result::kSuccess)
        mipmaps.push_back(mipmap);
      else
        ASSERT_EQ(result, Result::kOutOfMemory);
    } else if (call == 2 && !arrays.empty()) {
      std::swap(arrays[random() % arrays.size()], arrays.back());
      ASSERT_OK(CU(cuda, cuArrayDestroy)(arrays.back()));
      arrays.pop_back();
    } else if (call == 3 && !mipmaps.empty()) {
      std::swap(mipmaps[random() % mipmaps.size()], mipmaps.back());
      ASSERT_OK(CU(cuda, cuMipmappedArrayDestroy)(mipmaps.back()));
      mipmaps.pop_back();
    }
  }
}

TEST_F(LimitedArrayTest, RandomCallsOfManyThreadsAreCountedAsTheDeviceCountsThem) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context context = MakeContext(cuda);
    for (unsigned round = 0; round < 10; ++round) {
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back(
            [&cuda, context, seed = round * 4 + t] { Churn(cuda, context, seed, 300); });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(node.Held(0), node.DeviceBytes(0) - kContextBytes) << "round " << round;
      ASSERT_LE(node.usage(0).peak, 100 * kMiB);
    }
    EXPECT_GT(node.Held(0), 0u);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    EXPECT_EQ(node.Held(0), 0u);
  }));
  EXPECT_GT(node.usage(0).refused, 0u) << "the limit was never reached";
}

}  // namespace
}  // namespace tessera::limiter
