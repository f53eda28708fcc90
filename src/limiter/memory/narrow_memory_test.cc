// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA 3.1 and earlier that allocate or report memory, which cuGetProcAddress
// returns for version 2000.
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtrV1;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

// Finds a function by dlsym, or by cuGetProcAddress as a program for CUDA 2.0.
struct Lookup {
  const CudaLibrary& cuda;
  bool by_version;

  template <typename F>
  F Find(const char* name) const {
    if (!by_version) return cuda.Get<F>(name);
    void* found = nullptr;
    EXPECT_EQ(CU(cuda, cuGetProcAddress)(name, &found, 2000, 0), Result::kSuccess) << name;
    EXPECT_EQ(found, cuda.Get<void*>(name)) << name;
    return reinterpret_cast<F>(found);
  }
};
#define NARROW(lookup, name) (lookup).Find<cuda::fn::name>(#name)

class NarrowMemoryTest : public LimiterTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Lookup, NarrowMemoryTest, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "AtVersion2000" : "ByName");
});

TEST_P(NarrowMemoryTest, AllocatesUpToTheLimitAndThenIsOutOfMemory) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Lookup lookup{cuda, GetParam()};
    MakeContext(cuda);
    DevicePtrV1 pointer = 0, pitched = 0;
    unsigned pitch = 0;
    std::vector<DevicePtrV1> pointers;
    while (NARROW(lookup, cuMemAlloc)(&pointer, 10 * kMiB) == Result::kSuccess)
      pointers.push_back(pointer);
    EXPECT_EQ(pointers.size(), 10u);
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 100 * kMiB + kContextBytes);
    EXPECT_EQ(NARROW(lookup, cuMemAllocPitch)(&pitched, &pitch, 1000, 20'000, 4),
              Result::kOutOfMemory);
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(NARROW(lookup, cuMemFree)(pointers.back()));
      pointers.pop_back();
    }
    EXPECT_EQ(node.Held(0), 70 * kMiB);
    ASSERT_OK(NARROW(lookup, cuMemAllocPitch)(&pitched, &pitch, 1000, 20'000, 4));
    EXPECT_EQ(pitch, 1024u);
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 90 * kMiB + kContextBytes);
    ASSERT_OK(NARROW(lookup, cuMemFree)(pitched));
    EXPECT_NE(NARROW(lookup, cuMemFree)(pitched), Result::kSuccess) << "a double free";
    EXPECT_EQ(node.Held(0), 70 * kMiB);
  }));
}

TEST_P(NarrowMemoryTest, MemoryQueriesShowTheShare) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Lookup lookup{cuda, GetParam()};
    MakeContext(cuda);
    DevicePtrV1 pointer = 0;
    unsigned free = 0, total = 0;
    ASSERT_OK(NARROW(lookup, cuMemAlloc)(&pointer, 30 * kMiB));
    ASSERT_OK(NARROW(lookup, cuMemGetInfo)(&free, &total));
    EXPECT_EQ(total, 100 * kMiB);
    EXPECT_EQ(free, 70 * kMiB);
    EXPECT_OK(NARROW(lookup, cuMemGetInfo)(nullptr, nullptr));
    ASSERT_OK(NARROW(lookup, cuDeviceTotalMem)(&total, 0));
    EXPECT_EQ(total, 100 * kMiB);
    ASSERT_OK(NARROW(lookup, cuDeviceTotalMem)(&total, 1));
    EXPECT_EQ(total, 4000 * kMiB) << "the other GPU is not limited";
  }));
}

}  // namespace
}  // namespace tessera::limiter
