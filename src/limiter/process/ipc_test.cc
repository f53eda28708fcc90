// SPDX-License-Identifier: Apache-2.0
// Memory that one process allocates and another opens (CUDA's IPC) is charged once, to the first,
// on the simulated driver.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/limiter/testing/limited_node.h"

namespace tessera::limiter {
namespace {

using cuda::Context;
using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::IpcMemHandle;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;

#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)
#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)

// Two processes that speak in turn.
class LimitedIpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LimitedNode::Possible()) GTEST_SKIP() << "needs root for a mount namespace of its own";
    ASSERT_EQ(::pipe(to_opener_), 0);
    ASSERT_EQ(::pipe(to_exporter_), 0);
  }
  void TearDown() override {
    for (int fd : {to_opener_[0], to_opener_[1], to_exporter_[0], to_exporter_[1]}) ::close(fd);
  }

  template <typename T>
  static void Tell(const int* end, const T& value) {
    ASSERT_EQ(::write(end[1], &value, sizeof(value)), ssize_t(sizeof(value)));
  }
  template <typename T>
  static T Hear(const int* end) {
    T value{};
    EXPECT_EQ(::read(end[0], &value, sizeof(value)), ssize_t(sizeof(value)));
    return value;
  }
  static void Begin(const CudaLibrary& cuda) {
    Context context = nullptr;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
  }
  static void ExpectWell(int pid) {
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }

  int to_opener_[2] = {}, to_exporter_[2] = {};
};

TEST_F(LimitedIpcTest, WhoAllocatesPaysUntilItFrees) {
  LimitedNode node({100 * kMiB});
  const int exporter = node.Start([&](const CudaLibrary& cuda) {
    Begin(cuda);
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 40 * kMiB));
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(pointer, 7, 40 * kMiB));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    Tell(to_opener_, handle);
    Hear<char>(to_exporter_);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(pointer), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 60 * kMiB) << "what the opener allocated itself";
    Tell(to_opener_, 'f');
    Hear<char>(to_exporter_);
  });
  const int opener = node.Start([&](const CudaLibrary& cuda) {
    Begin(cuda);
    const auto handle = Hear<IpcMemHandle>(to_opener_);
    DevicePtr own = 0, opened = 0, more = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&own, 60 * kMiB));
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&more, 1), Result::kOutOfMemory) << "nothing is left";
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&opened, handle, 1)) << "but this takes nothing";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    char value = 0;
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, opened, 1));
    EXPECT_EQ(value, 7);
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(opened), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(opened));
    EXPECT_EQ(CU(cuda, cuIpcCloseMemHandle)(opened), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 100 * kMiB) << "closing gives nothing back";
    Tell(to_exporter_, 'c');
    Hear<char>(to_opener_);
    EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&opened, handle, 1), Result::kInvalidValue);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&more, 40 * kMiB));
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    Tell(to_exporter_, 'e');
  });
  ExpectWell(exporter);
  ExpectWell(opener);
  EXPECT_EQ(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimitedIpcTest, MemoryOfAnotherContainerIsNotChargedHere) {
  LimitedNode node({100 * kMiB});
  const int exporter = ::fork();
  if (exporter == 0) {
    const CudaLibrary cuda(node.node().library("libcuda.so.1"));
    Begin(cuda);
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 400 * kMiB));
    EXPECT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    Tell(to_opener_, handle);
    Hear<char>(to_exporter_);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Begin(cuda);
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&pointer, Hear<IpcMemHandle>(to_opener_), 1));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(pointer));
    EXPECT_EQ(node.Held(0), 0u);
    Tell(to_exporter_, 'e');
  }));
  ExpectWell(exporter);
}

}  // namespace
}  // namespace tessera::limiter
