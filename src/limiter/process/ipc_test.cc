// SPDX-License-Identifier: Apache-2.0
// The charge of memory that one process allocates and another opens by CUDA IPC, on the simulated
// driver: only the process that allocates is charged.
#include <sys/wait.h>
#include <unistd.h>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::IpcMemHandle;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

// Two processes that exchange messages in turn.
class LimitedIpcTest : public LimiterTest {
 protected:
  void SetUp() override {
    LimiterTest::SetUp();
    ASSERT_EQ(::pipe(to_opener_), 0);
    ASSERT_EQ(::pipe(to_exporter_), 0);
  }
  void TearDown() override {
    for (int fd : {to_opener_[0], to_opener_[1], to_exporter_[0], to_exporter_[1]}) ::close(fd);
  }

  template <typename T>
  static void Send(const int* end, const T& value) {
    ASSERT_EQ(::write(end[1], &value, sizeof(value)), ssize_t(sizeof(value)));
  }
  template <typename T>
  static T Receive(const int* end) {
    T value{};
    EXPECT_EQ(::read(end[0], &value, sizeof(value)), ssize_t(sizeof(value)));
    return value;
  }
  static void ExpectSuccess(int pid) {
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }

  int to_opener_[2] = {}, to_exporter_[2] = {};
};

TEST_F(LimitedIpcTest, TheAllocatingProcessIsChargedUntilItFrees) {
  LimitedNode node({100 * kMiB});
  const int exporter = node.Start([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 40 * kMiB));
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(pointer, 7, 40 * kMiB));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    Send(to_opener_, handle);
    Receive<char>(to_exporter_);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(pointer), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 60 * kMiB) << "the allocation of the opener";
    Send(to_opener_, 'f');
    Receive<char>(to_exporter_);
  });
  const int opener = node.Start([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const auto handle = Receive<IpcMemHandle>(to_opener_);
    DevicePtr own = 0, opened = 0, more = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&own, 60 * kMiB));
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&more, 1), Result::kOutOfMemory) << "no memory is left";
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&opened, handle, 1)) << "opening allocates nothing";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    char value = 0;
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, opened, 1));
    EXPECT_EQ(value, 7);
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(opened), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(opened));
    EXPECT_EQ(CU(cuda, cuIpcCloseMemHandle)(opened), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 100 * kMiB) << "closing releases nothing";
    Send(to_exporter_, 'c');
    Receive<char>(to_opener_);
    EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&opened, handle, 1), Result::kInvalidValue);
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&more, 40 * kMiB));
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    Send(to_exporter_, 'e');
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
  EXPECT_EQ(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimitedIpcTest, MemoryOfAnotherContainerIsNotChargedHere) {
  LimitedNode node({100 * kMiB});
  const int exporter = ::fork();
  if (exporter == 0) {
    const CudaLibrary cuda(node.node().library("libcuda.so.1"));
    MakeContext(cuda);
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 400 * kMiB));
    EXPECT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    Send(to_opener_, handle);
    Receive<char>(to_exporter_);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    DevicePtr pointer = 0;
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&pointer, Receive<IpcMemHandle>(to_opener_), 1));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(pointer));
    EXPECT_EQ(node.Held(0), 0u);
    Send(to_exporter_, 'e');
  }));
  ExpectSuccess(exporter);
}

}  // namespace
}  // namespace tessera::limiter
