// SPDX-License-Identifier: Apache-2.0
// Virtual memory management as PyTorch's expandable segments and NCCL's buffers use it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kBlock = 2 << 20;
constexpr PhysicalMemoryProperties kOnDevice = {
    .type = 1, .handle_types = kShareByFileDescriptor, .location = {kLocationDevice, 0}};
constexpr MemAccess kReadWrite = {{kLocationDevice, 0}, kAccessReadWrite};

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class VirtualMemoryTest : public OneGpuTest {
 protected:
  static PhysicalMemory Create(uint64_t bytes,
                               const PhysicalMemoryProperties& properties = kOnDevice) {
    PhysicalMemory memory = 0;
    EXPECT_OK(CU(*cuda_, cuMemCreate)(&memory, bytes, &properties, 0));
    return memory;
  }
  static DevicePtr Reserve(uint64_t bytes) {
    DevicePtr pointer = 0;
    EXPECT_OK(CU(*cuda_, cuMemAddressReserve)(&pointer, bytes, 0, 0, 0));
    return pointer;
  }
};

TEST_F(VirtualMemoryTest, MemoryIsChargedFromItsCreationToItsLastHandleAndMapping) {
  DevicePtr pointer = Reserve(2 * kBlock);
  EXPECT_EQ(UsedBytes(), 0u) << "addresses are not charged";
  const PhysicalMemory memory = Create(kBlock);
  EXPECT_EQ(UsedBytes(), kBlock);
  EXPECT_OK(CU(*cuda_, cuMemMap)(pointer, kBlock, 0, memory, 0));
  EXPECT_OK(CU(*cuda_, cuMemMap)(pointer + kBlock, kBlock, 0, memory, 0));
  EXPECT_OK(CU(*cuda_, cuMemRelease)(memory));
  EXPECT_EQ(CU(*cuda_, cuMemRelease)(memory), Result::kInvalidValue);
  EXPECT_EQ(UsedBytes(), kBlock) << "one of two mappings is left";
  PhysicalMemory again = 0;
  EXPECT_OK(CU(*cuda_, cuMemRetainAllocationHandle)(&again, reinterpret_cast<void*>(pointer + 5)));
  EXPECT_EQ(again, memory);
  EXPECT_EQ(CU(*cuda_, cuMemAddressFree)(pointer, 2 * kBlock), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemUnmap)(pointer, 2 * kBlock));
  EXPECT_EQ(UsedBytes(), kBlock) << "a handle is held";
  EXPECT_OK(CU(*cuda_, cuMemRelease)(again));
  EXPECT_EQ(UsedBytes(), 0u);
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(pointer, 2 * kBlock));
}

TEST_F(VirtualMemoryTest, ACopyMaySpanAdjacentMappings) {
  DevicePtr pointer = Reserve(2 * kBlock);
  const PhysicalMemory first = Create(kBlock), second = Create(kBlock);
  EXPECT_OK(CU(*cuda_, cuMemMap)(pointer, kBlock, 0, first, 0));
  EXPECT_OK(CU(*cuda_, cuMemMap)(pointer + kBlock, kBlock, 0, second, 0));
  const std::vector<char> data(2 * kBlock, 'x');
  EXPECT_EQ(CU(*cuda_, cuMemcpyHtoD_v2)(pointer, data.data(), data.size()), Result::kInvalidValue)
      << "no device has access yet";
  EXPECT_OK(CU(*cuda_, cuMemSetAccess)(pointer, 2 * kBlock, &kReadWrite, 1));
  EXPECT_OK(CU(*cuda_, cuMemcpyHtoD_v2)(pointer, data.data(), data.size()));
  EXPECT_EQ(CU(*cuda_, cuMemcpyHtoD_v2)(pointer + 1, data.data(), data.size()),
            Result::kInvalidValue);
  std::vector<char> back(2 * kBlock);
  EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(back.data(), pointer, back.size()));
  EXPECT_EQ(back, data);
  EXPECT_OK(CU(*cuda_, cuMemUnmap)(pointer, 2 * kBlock));
  EXPECT_OK(CU(*cuda_, cuMemRelease)(first));
  EXPECT_OK(CU(*cuda_, cuMemRelease)(second));
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(pointer, 2 * kBlock));
}

TEST_F(VirtualMemoryTest, AFillWithZeroIsVisibleThroughEveryMapping) {
  const DevicePtr pointer = Reserve(2 * kBlock);
  const PhysicalMemory memory = Create(kBlock);
  for (DevicePtr at : {pointer, pointer + kBlock}) {
    ASSERT_OK(CU(*cuda_, cuMemMap)(at, kBlock, 0, memory, 0));
  }
  ASSERT_OK(CU(*cuda_, cuMemSetAccess)(pointer, 2 * kBlock, &kReadWrite, 1));
  ASSERT_OK(CU(*cuda_, cuMemsetD8_v2)(pointer, 7, kBlock));
  ASSERT_OK(CU(*cuda_, cuMemsetD8_v2)(pointer, 0, kBlock));
  std::vector<char> bytes(kBlock, 1);
  ASSERT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(bytes.data(), pointer + kBlock, kBlock));
  EXPECT_EQ(bytes, std::vector<char>(kBlock));
  EXPECT_OK(CU(*cuda_, cuMemUnmap)(pointer, 2 * kBlock));
  EXPECT_OK(CU(*cuda_, cuMemRelease)(memory));
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(pointer, 2 * kBlock));
}

TEST_F(VirtualMemoryTest, AnotherProcessMapsExportedMemoryWithoutACharge) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const PhysicalMemory memory = Create(kBlock);
  int fd = -1;
  ASSERT_OK(CU(*cuda_, cuMemExportToShareableHandle)(&fd, memory, kShareByFileDescriptor, 0));
  const pid_t child = fork();
  if (child == 0) {
    // CUDA does not work after fork, so the child writes through its own mapping.
    char byte = 'x';
    void* memory_here = mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory_here == MAP_FAILED) _exit(3);
    static_cast<char*>(memory_here)[7] = 'z';
    _exit(write(ready[1], &byte, 1) == 1 ? 0 : 2);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  PhysicalMemory imported = 0;
  ASSERT_OK(CU(*cuda_, cuMemImportFromShareableHandle)(
      &imported, reinterpret_cast<void*>(intptr_t(fd)), kShareByFileDescriptor));
  EXPECT_EQ(UsedBytes(), kBlock) << "the exporter is charged";
  DevicePtr pointer = Reserve(kBlock);
  EXPECT_OK(CU(*cuda_, cuMemMap)(pointer, kBlock, 0, imported, 0));
  EXPECT_OK(CU(*cuda_, cuMemSetAccess)(pointer, kBlock, &kReadWrite, 1));
  char value = 0;
  EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&value, pointer + 7, 1));
  EXPECT_EQ(value, 'z');
  EXPECT_OK(CU(*cuda_, cuMemUnmap)(pointer, kBlock));
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(pointer, kBlock));
  EXPECT_OK(CU(*cuda_, cuMemRelease)(imported));
  for (int end : {ready[0], ready[1], fd}) close(end);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_OK(CU(*cuda_, cuMemRelease)(memory));
}

TEST_F(VirtualMemoryTest, ExportedMemoryLivesUntilTheLastDescriptorIsClosed) {
  int fd = -1;
  size_t free = 0, total = 0;
  PhysicalMemory memory = Create(kBlock), other = Create(kBlock);
  ASSERT_OK(CU(*cuda_, cuMemExportToShareableHandle)(&fd, memory, kShareByFileDescriptor, 0));
  ASSERT_OK(CU(*cuda_, cuMemRelease)(memory));
  EXPECT_EQ(UsedBytes(), 2 * kBlock) << "a descriptor holds the memory";
  ASSERT_OK(CU(*cuda_, cuMemImportFromShareableHandle)(
      &memory, reinterpret_cast<void*>(intptr_t(fd)), kShareByFileDescriptor));
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  close(fd);
  EXPECT_EQ(UsedBytes(), 2 * kBlock) << "charged once";
  ASSERT_OK(CU(*cuda_, cuMemRelease)(memory));
  ASSERT_OK(CU(*cuda_, cuMemGetInfo_v2)(&free, &total));
  EXPECT_EQ(UsedBytes(), 2 * kBlock) << "a copy of the descriptor holds the memory";
  close(copy);
  ASSERT_OK(CU(*cuda_, cuMemGetInfo_v2)(&free, &total));
  EXPECT_EQ(UsedBytes(), kBlock);
  ASSERT_OK(CU(*cuda_, cuMemRelease)(other));
}

TEST_F(VirtualMemoryTest, ImportsThatAreReleasedKeepNoDescriptors) {
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  int fd = -1;
  PhysicalMemory memory = Create(kBlock);
  ASSERT_OK(CU(*cuda_, cuMemExportToShareableHandle)(&fd, memory, kShareByFileDescriptor, 0));
  const auto before = open_descriptors();
  for (int i = 0; i < 50; ++i) {
    PhysicalMemory imported = 0;
    ASSERT_OK(CU(*cuda_, cuMemImportFromShareableHandle)(
        &imported, reinterpret_cast<void*>(intptr_t(fd)), kShareByFileDescriptor));
    ASSERT_OK(CU(*cuda_, cuMemRelease)(imported));
  }
  EXPECT_LE(open_descriptors(), before + 1);
  EXPECT_EQ(UsedBytes(), kBlock);
  ASSERT_OK(CU(*cuda_, cuMemRelease)(memory));
  EXPECT_EQ(UsedBytes(), kBlock) << "a descriptor holds the memory";
  close(fd);
  size_t free = 0, total = 0;
  ASSERT_OK(CU(*cuda_, cuMemGetInfo_v2)(&free, &total));
  EXPECT_EQ(UsedBytes(), 0u);
  EXPECT_EQ(open_descriptors(), before - 2);
}

TEST_F(VirtualMemoryTest, OnlyOneOfTwoThreadsUnmapsAMapping) {
  const DevicePtr pointer = Reserve(kBlock);
  const PhysicalMemory memory = Create(kBlock);
  ASSERT_OK(CU(*cuda_, cuMemMap)(pointer, kBlock, 0, memory, 0));
  // While this function of the program runs, both threads wait in cuMemUnmap.
  static std::atomic<bool> may_end;
  may_end = false;
  ASSERT_OK(CU(*cuda_, cuLaunchHostFunc)(
      nullptr,
      [](void*) {
        while (!may_end) usleep(1000);
      },
      nullptr));
  std::atomic<int> unmapped = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      const Result result = CU(*cuda_, cuMemUnmap)(pointer, kBlock);
      unmapped += result == Result::kSuccess;
      refused += result == Result::kInvalidValue;
    });
  }
  usleep(50'000);  // gives both threads the time to begin
  may_end = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(unmapped, 1);
  EXPECT_EQ(refused, 1);
  EXPECT_OK(CU(*cuda_, cuMemRelease)(memory));
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(pointer, kBlock));
}

TEST_F(VirtualMemoryTest, InvalidCallsAreRefused) {
  PhysicalMemory memory = 0;
  PhysicalMemoryProperties properties = kOnDevice;
  EXPECT_EQ(CU(*cuda_, cuMemCreate)(&memory, kMiB, &properties, 0), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemCreate)(&memory, 2000 * kMiB, &properties, 0), Result::kOutOfMemory);
  DevicePtr too_large = 0;
  EXPECT_EQ(CU(*cuda_, cuMemAddressReserve)(&too_large, 0 - kBlock, 0, 0, 0), Result::kOutOfMemory);
  properties.location.id = 3;
  EXPECT_EQ(CU(*cuda_, cuMemCreate)(&memory, kBlock, &properties, 0), Result::kInvalidDevice);
  properties.location = {kLocationHost, 0};
  memory = Create(kBlock, properties);
  EXPECT_EQ(UsedBytes(), 0u) << "host memory";
  DevicePtr pointer = Reserve(kBlock);
  EXPECT_EQ(CU(*cuda_, cuMemMap)(pointer, 2 * kBlock, 0, memory, 0), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemMap)(pointer + kBlock, kBlock, 0, memory, 0), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemMap)(pointer, kBlock, 0, memory, 0));
  EXPECT_EQ(CU(*cuda_, cuMemFree_v2)(pointer), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuMemUnmap)(pointer, kMiB), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemUnmap)(pointer, kBlock));
  EXPECT_OK(CU(*cuda_, cuMemRelease)(memory));
  EXPECT_OK(CU(*cuda_, cuMemAddressFree)(pointer, kBlock));
}

}  // namespace
}  // namespace tessera::cuda
