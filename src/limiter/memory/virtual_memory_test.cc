// SPDX-License-Identifier: Apache-2.0
// The charge of memory that programs create apart from addresses, on the simulated driver.
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::PhysicalMemory;
using cuda::PhysicalMemoryProperties;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;

constexpr uint64_t kBlock = 2 * kMiB;
constexpr PhysicalMemoryProperties kOnDevice = {.type = 1, .location = {cuda::kLocationDevice, 0}};

class LimitedVirtualMemoryTest : public LimiterTest {};

TEST_F(LimitedVirtualMemoryTest, MemoryIsRefusedBeyondTheLimitAlsoWithoutAContext) {
  LimitedNode node({10 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    PhysicalMemory memory = 0, more = 0;
    EXPECT_OK(CU(cuda, cuMemCreate)(&memory, 10 * kMiB, &kOnDevice, 0));
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    EXPECT_EQ(CU(cuda, cuMemCreate)(&more, kBlock, &kOnDevice, 0), Result::kOutOfMemory);
    PhysicalMemoryProperties of_host = kOnDevice;
    of_host.location = {cuda::kLocationHost, 0};
    EXPECT_OK(CU(cuda, cuMemCreate)(&more, kBlock, &of_host, 0)) << "host memory";
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    EXPECT_OK(CU(cuda, cuMemRelease)(memory));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(CU(cuda, cuMemRelease)(memory), Result::kInvalidValue);
  }));
  EXPECT_EQ(node.usage(0).refused, 1u);
}

TEST_F(LimitedVirtualMemoryTest, MappedMemoryIsChargedAfterItsHandleIsReleased) {
  LimitedNode node({10 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    PhysicalMemory memory = 0, again = 0;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuMemAddressReserve)(&pointer, 2 * kBlock, 0, 0, 0));
    ASSERT_OK(CU(cuda, cuMemCreate)(&memory, kBlock, &kOnDevice, 0));
    ASSERT_OK(CU(cuda, cuMemMap)(pointer, kBlock, 0, memory, 0));
    ASSERT_OK(CU(cuda, cuMemMap)(pointer + kBlock, kBlock, 0, memory, 0));
    EXPECT_OK(CU(cuda, cuMemRelease)(memory));
    EXPECT_EQ(node.Held(0), kBlock) << "released, but mapped twice";
    EXPECT_OK(CU(cuda, cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(pointer)));
    EXPECT_OK(CU(cuda, cuMemUnmap)(pointer, 2 * kBlock));
    EXPECT_EQ(node.Held(0), kBlock) << "a handle is held";
    EXPECT_OK(CU(cuda, cuMemRelease)(again));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

// Creates, maps, unmaps, retains and releases at random.
void Churn(const CudaLibrary& cuda, unsigned seed, int rounds) {
  constexpr int kPlaces = 8;
  std::mt19937 random(seed);
  DevicePtr range = 0;
  ASSERT_OK(CU(cuda, cuMemAddressReserve)(&range, kPlaces * 4 * kBlock, 0, 0, 0));
  std::vector<PhysicalMemory> handles;
  std::map<DevicePtr, uint64_t> mapped;
  for (int i = 0; i < rounds; ++i) {
    const DevicePtr place = range + random() % kPlaces * 4 * kBlock;
    const uint64_t bytes = (1 + random() % 4) * kBlock;
    PhysicalMemory memory = 0;
    const unsigned what = random() % 5;
    if (what == 0) {
      const Result result = CU(cuda, cuMemCreate)(&memory, bytes, &kOnDevice, 0);
      if (result == Result::kSuccess) handles.push_back(memory);
    } else if (what == 1 && !handles.empty() && !mapped.contains(place)) {
      const PhysicalMemory one = handles[random() % handles.size()];
      if (CU(cuda, cuMemMap)(place, kBlock, 0, one, 0) == Result::kSuccess) mapped[place] = kBlock;
    } else if (what == 2 && mapped.contains(place)) {
      ASSERT_OK(CU(cuda, cuMemUnmap)(place, mapped[place]));
      mapped.erase(place);
    } else if (what == 3 && mapped.contains(place)) {
      ASSERT_OK(CU(cuda, cuMemRetainAllocationHandle)(&memory, reinterpret_cast<void*>(place)));
      handles.push_back(memory);
    } else if (what == 4 && !handles.empty()) {
      const size_t which = random() % handles.size();
      ASSERT_OK(CU(cuda, cuMemRelease)(handles[which]));
      handles.erase(handles.begin() + long(which));
    }
  }
}

TEST_F(LimitedVirtualMemoryTest, RandomCallsOfManyThreadsAreCountedAsTheDeviceCountsThem) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    for (unsigned round = 0; round < 20; ++round) {
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&cuda, seed = round * 4 + t] { Churn(cuda, seed, 500); });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(node.Held(0), node.DeviceBytes(0)) << "round " << round;
      ASSERT_LE(node.usage(0).peak, 100 * kMiB);
    }
    EXPECT_GT(node.Held(0), 0u);
  }));
}

}  // namespace
}  // namespace tessera::limiter
