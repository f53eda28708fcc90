// SPDX-License-Identifier: Apache-2.0
// The charges of modules and contexts, and their refusals, on the simulated driver.
#include <string>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::Context;
using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

std::string PtxWith(uint64_t bytes) {
  return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 big[" +
         std::to_string(bytes) + "];\n.visible .entry k() { ret; }\n";
}

class LimitedModuleTest : public LimiterTest {};

TEST_F(LimitedModuleTest, VariablesOfPtxAreChargedFromLoadToUnload) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const std::string image = PtxWith(30 * kMiB);
    std::vector<cuda::Module> modules(3);
    cuda::Module rejected = nullptr;
    cuda::Library library = nullptr;
    for (cuda::Module& module : modules) {
      ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, image.c_str()));
    }
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 90 * kMiB + kContextBytes);
    EXPECT_EQ(CU(cuda, cuModuleLoadDataEx)(&rejected, image.c_str(), 0, nullptr, nullptr),
              Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuModuleLoadFatBinary)(&rejected, image.c_str()), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuLibraryLoadData)(&library, image.c_str(), nullptr, nullptr, 0, nullptr,
                                          nullptr, 0),
              Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuModuleUnload)(modules[0]));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    ASSERT_OK(CU(cuda, cuLibraryLoadData)(&library, image.c_str(), nullptr, nullptr, 0, nullptr,
                                          nullptr, 0));
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    ASSERT_OK(CU(cuda, cuLibraryUnload)(library));
    ASSERT_OK(CU(cuda, cuModuleUnload)(modules[1]));
    ASSERT_OK(CU(cuda, cuModuleUnload)(modules[2]));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedModuleTest, TheEndOfAContextEndsTheChargesOfItsModules) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context context = MakeContext(cuda);
    cuda::Module module = nullptr;
    ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, PtxWith(30 * kMiB).c_str()));
    EXPECT_EQ(node.Held(0), 30 * kMiB);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

Result LoadLibrary(const CudaLibrary& cuda, uint64_t bytes, cuda::Library* library) {
  return CU(cuda, cuLibraryLoadData)(library, PtxWith(bytes).c_str(), nullptr, nullptr, 0, nullptr,
                                     nullptr, 0);
}

TEST_F(LimitedModuleTest, ALibraryThatIsLoadedBeforeAContextIsChargedInTheContext) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Library library = nullptr;
    DevicePtr pointer = 0;
    size_t bytes = 0;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(LoadLibrary(cuda, 60 * kMiB, &library));
    EXPECT_EQ(node.Held(0), 0u);
    MakeContext(cuda);
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    ASSERT_OK(CU(cuda, cuLibraryGetGlobal)(&pointer, &bytes, library, "big"));
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 60 * kMiB), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuLibraryUnload)(library));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedModuleTest, ALibraryIsChargedInEachContextUntilTheContextEnds) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context first = MakeContext(cuda);
    cuda::Library library = nullptr, other = nullptr;
    Context rejected = nullptr;
    DevicePtr pointer = 0;
    size_t bytes = 0;
    ASSERT_OK(LoadLibrary(cuda, 30 * kMiB, &library));
    ASSERT_OK(CU(cuda, cuLibraryGetGlobal)(&pointer, &bytes, library, "big"));
    EXPECT_EQ(node.Held(0), 30 * kMiB);
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuLibraryGetGlobal)(&pointer, &bytes, library, "big"));
    EXPECT_EQ(node.Held(0), 60 * kMiB + kContextBytes);
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + 2 * kContextBytes);
    EXPECT_EQ(CU(cuda, cuCtxCreate_v2)(&rejected, 0, 0), Result::kOutOfMemory);
    EXPECT_EQ(LoadLibrary(cuda, 20 * kMiB, &other), Result::kOutOfMemory) << "20 in each";
    EXPECT_EQ(node.Held(0), 60 * kMiB + kContextBytes);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(first));
    EXPECT_EQ(node.Held(0), 30 * kMiB) << "one context is left";
    ASSERT_OK(CU(cuda, cuLibraryUnload)(library));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedModuleTest, NothingIsLoadedOrCreatedWhileTheLimitIsReached) {
  LimitedNode node({100 * kMiB});
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context first = MakeContext(cuda);
    const std::string image = PtxWith(4);
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
    Context context = nullptr;
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, image.c_str()));
    ASSERT_OK(CU(cuda, cuModuleGetFunction)(&function, module, "k"));
    // The agent reports unaccounted memory.
    node.SetUnaccounted(0, 60 * kMiB);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 40 * kMiB));
    EXPECT_EQ(CU(cuda, cuModuleLoadData)(&module, image.c_str()), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuModuleLoad)(&module, "/no/such/file"), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuFuncLoad)(function), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuCtxCreate_v2)(&context, 0, 0), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuDevicePrimaryCtxRetain)(&context, 0), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 1)) << "the other GPU is not limited";
    ASSERT_OK(CU(cuda, cuCtxSetCurrent)(first));
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, image.c_str()));
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&context, 0));
    node.SetUnaccounted(0, 200 * kMiB);
    EXPECT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&context, 0))
        << "the primary context exists already";
  }));
  EXPECT_EQ(node.usage(0).refused, 5u);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("the load of a module is refused"), std::string::npos) << log;
  EXPECT_NE(log.find("a context is refused"), std::string::npos) << log;
  EXPECT_EQ(log.find("an allocation of"), std::string::npos) << log;
}

}  // namespace
}  // namespace tessera::limiter
