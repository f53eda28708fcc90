// SPDX-License-Identifier: Apache-2.0
// The charge of memory that cuMemCreate creates, on the simulated driver.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "src/base/file.h"
#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::PhysicalMemory;
using cuda::PhysicalMemoryProperties;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

constexpr uint64_t kBlock = 2 * kMiB;
constexpr PhysicalMemoryProperties kOnDevice = {.type = 1, .location = {cuda::kLocationDevice, 0}};

constexpr PhysicalMemoryProperties kExportable = {.type = 1,
                                                  .handle_types = cuda::kShareByFileDescriptor,
                                                  .location = {cuda::kLocationDevice, 0}};

void* AsHandle(int fd) { return reinterpret_cast<void*>(intptr_t(fd)); }

// A copy of the descriptor of another process.
int FetchDescriptor(int pid, int fd) {
  const int process = int(::syscall(SYS_pidfd_open, pid, 0));
  const int copy = int(::syscall(SYS_pidfd_getfd, process, fd, 0));
  ::close(process);
  return copy;
}

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

TEST_F(LimitedVirtualMemoryTest, ExportedMemoryIsChargedUntilItsDescriptorsAreClosed) {
  LimitedNode node({10 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    std::vector<int> descriptors;
    PhysicalMemory memory = 0;
    while (CU(cuda, cuMemCreate)(&memory, kBlock, &kExportable, 0) == Result::kSuccess) {
      int fd = -1;
      ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&fd, memory, 1, 0));
      EXPECT_OK(CU(cuda, cuMemRelease)(memory));
      // A second handle of the same piece is not charged.
      EXPECT_OK(CU(cuda, cuMemImportFromShareableHandle)(&memory, AsHandle(fd), 1));
      EXPECT_OK(CU(cuda, cuMemRelease)(memory));
      descriptors.push_back(fd);
      ASSERT_LE(descriptors.size(), 5u) << "the limit is 5 blocks";
    }
    EXPECT_EQ(descriptors.size(), 5u);
    EXPECT_EQ(node.Held(0), 10 * kMiB);
    for (int fd : descriptors) ::close(fd);
    EXPECT_OK(CU(cuda, cuMemCreate)(&memory, 10 * kMiB, &kExportable, 0));
    EXPECT_EQ(node.Held(0), 10 * kMiB);
  }));
}

size_t OpenDescriptors() {
  return size_t(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// A program that sends each piece to a process that maps it and ends.
TEST_F(LimitedVirtualMemoryTest, ClosedExportsKeepNeitherDescriptorsNorCharges) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const rlimit few = {.rlim_cur = 200, .rlim_max = 200};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    ASSERT_OK(CU(cuda, cuInit)(0));
    PhysicalMemory parked = 0;
    int parked_fd = -1;
    ASSERT_OK(CU(cuda, cuMemCreate)(&parked, kBlock, &kExportable, 0));
    ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&parked_fd, parked, 1, 0));
    ASSERT_OK(CU(cuda, cuMemRelease)(parked));
    const size_t before = OpenDescriptors();
    for (int i = 0; i < 1000; ++i) {
      PhysicalMemory memory = 0;
      int fd = -1;
      ASSERT_OK(CU(cuda, cuMemCreate)(&memory, kBlock, &kExportable, 0)) << i;
      ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&fd, memory, 1, 0)) << i;
      const bool close_first = i % 2 == 0 || i > 900;
      if (close_first) ::close(fd);
      ASSERT_OK(CU(cuda, cuMemRelease)(memory));
      if (!close_first) ::close(fd);
      ASSERT_LE(node.Held(0), 20 * kBlock) << i;
    }
    EXPECT_LE(OpenDescriptors(), before + 20);
    size_t free = 0;
    MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));
    EXPECT_EQ(node.Held(0), kBlock) << "the descriptor of `parked` is open";
    ::close(parked_fd);
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedVirtualMemoryTest, AReleaseAfterTheDescriptorsAreClosedEndsTheChargeAtOnce) {
  LimitedNode node({10 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    PhysicalMemory memory = 0;
    int fd = -1;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(CU(cuda, cuMemCreate)(&memory, kBlock, &kExportable, 0));
    ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&fd, memory, 1, 0));
    ::close(fd);
    EXPECT_EQ(node.Held(0), kBlock);
    ASSERT_OK(CU(cuda, cuMemRelease)(memory));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

// A process that exports a piece of three blocks by two descriptors, and ends on request. First,
// the process exports `closed_exports` other descriptors of the piece and closes them.
class Exporter {
 public:
  explicit Exporter(LimitedNode* node, int closed_exports = 0) {
    int link[2], done[2];
    EXPECT_EQ(::pipe2(link, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(done, O_CLOEXEC), 0);
    from_ = Fd(link[0]), to_ = Fd(done[1]);
    const Fd sends(link[1]), waits(done[0]);
    pid_ = node->Start([&](const CudaLibrary& cuda) {
      ASSERT_OK(CU(cuda, cuInit)(0));
      PhysicalMemory memory = 0;
      int sent[2] = {-1, -1};
      ASSERT_OK(CU(cuda, cuMemCreate)(&memory, 3 * kBlock, &kExportable, 0));
      const size_t before = OpenDescriptors();
      for (int i = 0; i < closed_exports; ++i) {
        ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&sent[0], memory, 1, 0));
        ::close(sent[0]);
      }
      ASSERT_LE(OpenDescriptors(), before + 1);
      for (int& fd : sent) ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&fd, memory, 1, 0));
      ASSERT_EQ(::write(sends.get(), sent, sizeof(sent)), ssize_t(sizeof(sent)));
      char byte = 0;
      ASSERT_EQ(::read(waits.get(), &byte, 1), 1);
      // Now only the importers have descriptors.
      for (const int fd : sent) ::close(fd);
      ASSERT_OK(CU(cuda, cuMemRelease)(memory));
      size_t free = 0;
      MakeContext(cuda);
      ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));  // notices closed descriptors
      ASSERT_EQ(::write(sends.get(), "x", 1), 1);
      ASSERT_EQ(::read(waits.get(), &byte, 1), 1);
    });
    int sent[2];
    EXPECT_EQ(::read(from_.get(), sent, sizeof(sent)), ssize_t(sizeof(sent)));
    for (const int fd : sent) descriptors_.push_back(Fd(FetchDescriptor(pid_, fd)));
  }
  ~Exporter() {
    Kill();
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  }
  void* descriptor(size_t which) { return AsHandle(descriptors_[which].get()); }
  void CloseDescriptors() { descriptors_.clear(); }
  // The process releases its handle and descriptors, and keeps running.
  void ReleasePiece() {
    char byte = 0;
    EXPECT_EQ(::write(to_.get(), "x", 1), 1);
    EXPECT_EQ(::read(from_.get(), &byte, 1), 1);
  }
  // May be called by a process that is not the parent.
  void Kill() {
    const Fd process(int(::syscall(SYS_pidfd_open, pid_, 0)));
    ::kill(pid_, SIGKILL);
    pollfd end = {process.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&end, 1, 60'000), 1);
  }

 private:
  int pid_ = 0;
  Fd from_, to_;
  std::vector<Fd> descriptors_;
};

// Imports a piece, and ends on request.
class Importer {
 public:
  Importer(LimitedNode* node, Exporter* exporter, size_t which) {
    int link[2], done[2];
    EXPECT_EQ(::pipe2(link, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(done, O_CLOEXEC), 0);
    const Fd from(link[0]), sends(link[1]), waits(done[0]);
    to_ = Fd(done[1]);
    pid_ = node->Start([&](const CudaLibrary& cuda) {
      PhysicalMemory memory = 0;
      char byte = 0;
      ASSERT_OK(CU(cuda, cuInit)(0));
      ASSERT_OK(CU(cuda, cuMemImportFromShareableHandle)(&memory, exporter->descriptor(which), 1));
      exporter->CloseDescriptors();
      ASSERT_EQ(::write(sends.get(), "x", 1), 1);
      ASSERT_EQ(::read(waits.get(), &byte, 1), 1);
      ASSERT_OK(CU(cuda, cuMemRelease)(memory));
    });
    char byte = 0;
    EXPECT_EQ(::read(from.get(), &byte, 1), 1);
  }
  void End() {
    int status = -1;
    EXPECT_EQ(::write(to_.get(), "x", 1), 1);
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    EXPECT_EQ(status, 0);
  }

 private:
  int pid_ = 0;
  Fd to_;
};

TEST_F(LimitedVirtualMemoryTest, APieceThatSeveralProcessesShareIsCountedOnce) {
  LimitedNode node({4 * kBlock});
  Exporter exporter(&node);
  EXPECT_EQ(node.Held(0), 3 * kBlock);
  Importer first(&node, &exporter, 0);
  Importer second(&node, &exporter, 1);
  Importer third(&node, &exporter, 1);
  exporter.CloseDescriptors();
  EXPECT_EQ(node.Held(0), 3 * kBlock);
  EXPECT_EQ(node.DeviceBytes(0), 3 * kBlock);
  EXPECT_TRUE(node.Run([](const CudaLibrary& cuda) {
    PhysicalMemory memory = 0;
    ASSERT_OK(CU(cuda, cuInit)(0));
    EXPECT_EQ(CU(cuda, cuMemCreate)(&memory, 2 * kBlock, &kOnDevice, 0), Result::kOutOfMemory);
    EXPECT_OK(CU(cuda, cuMemCreate)(&memory, kBlock, &kOnDevice, 0));
  }));
  first.End();
  second.End();
  exporter.ReleasePiece();
  EXPECT_EQ(node.Held(0), 3 * kBlock) << "the third process holds the piece";
  EXPECT_EQ(node.DeviceBytes(0), 3 * kBlock + kContextBytes);
  third.End();
  EXPECT_EQ(node.Held(0), 0u);
  EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
}

TEST_F(LimitedVirtualMemoryTest, ManyExportsOfAPieceCountOnceAndTakeOneDescriptor) {
  LimitedNode node({4 * kBlock});
  Exporter exporter(&node, 3000);
  Importer first(&node, &exporter, 0);
  Importer second(&node, &exporter, 1);
  EXPECT_EQ(node.Held(0), 3 * kBlock);
  exporter.CloseDescriptors();
  exporter.Kill();
  node.Sweep();
  EXPECT_EQ(node.Held(0), 3 * kBlock) << "imported by two descriptors";
  first.End();
  EXPECT_EQ(node.Held(0), 3 * kBlock);
  second.End();
  EXPECT_EQ(node.Held(0), 0u);
}

TEST_F(LimitedVirtualMemoryTest, APieceIsChargedAfterItsExporterWasKilled) {
  LimitedNode node({5 * kBlock});
  Exporter exporter(&node);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    PhysicalMemory memory = 0, again = 0, more = 0;
    for (PhysicalMemory* handle : {&memory, &again}) {
      ASSERT_OK(CU(cuda, cuMemImportFromShareableHandle)(handle, exporter.descriptor(0), 1));
    }
    EXPECT_EQ(node.Held(0), 3 * kBlock) << "imported twice";
    ASSERT_OK(CU(cuda, cuMemImportFromShareableHandle)(&more, exporter.descriptor(1), 1));
    EXPECT_EQ(node.Held(0), 3 * kBlock) << "by another descriptor of the same piece";
    ASSERT_OK(CU(cuda, cuMemRelease)(more));
    exporter.Kill();
    node.Sweep();
    EXPECT_EQ(node.Held(0), 3 * kBlock);
    EXPECT_EQ(CU(cuda, cuMemCreate)(&more, 3 * kBlock, &kOnDevice, 0), Result::kOutOfMemory);
    EXPECT_EQ(node.DeviceBytes(0), 3 * kBlock);
    ASSERT_OK(CU(cuda, cuMemRelease)(memory));
    EXPECT_EQ(node.Held(0), 3 * kBlock);
    ASSERT_OK(CU(cuda, cuMemRelease)(again));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

// Only the descriptor keeps the memory, so the memory counts for the process that imports it.
TEST_F(LimitedVirtualMemoryTest, APieceWhoseExporterHasEndedIsRefusedBeyondTheLimit) {
  LimitedNode node({5 * kBlock});
  Exporter exporter(&node);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    PhysicalMemory memory = 0, more = 0;
    exporter.Kill();
    ASSERT_OK(CU(cuda, cuMemCreate)(&more, 4 * kBlock, &kOnDevice, 0));
    EXPECT_EQ(CU(cuda, cuMemImportFromShareableHandle)(&memory, exporter.descriptor(0), 1),
              Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemRelease)(more));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_F(LimitedVirtualMemoryTest, ImportedMemoryOfAnotherContainerIsChargedAsItIsMapped) {
  LimitedNode node({5 * kBlock});
  int link[2], done[2];
  ASSERT_EQ(::pipe2(link, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(done, O_CLOEXEC), 0);
  const int exporter = ::fork();
  if (exporter == 0) {
    // The exporter has no limiter, so its descriptor has no mark.
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    MakeContext(real);
    PhysicalMemory theirs = 0;
    int fd = -1;
    char byte = 0;
    EXPECT_OK(CU(real, cuMemCreate)(&theirs, 6 * kBlock, &kExportable, 0));
    EXPECT_OK(CU(real, cuMemExportToShareableHandle)(&fd, theirs, 1, 0));
    EXPECT_EQ(::write(link[1], &fd, sizeof(fd)), ssize_t(sizeof(fd)));
    EXPECT_EQ(::read(done[0], &byte, 1), 1);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    int theirs = -1;
    ASSERT_EQ(::read(link[0], &theirs, sizeof(theirs)), ssize_t(sizeof(theirs)));
    const int sent = FetchDescriptor(exporter, theirs);
    ASSERT_GE(sent, 0);
    PhysicalMemory memory = 0;
    DevicePtr range = 0;
    ASSERT_OK(CU(cuda, cuMemImportFromShareableHandle)(&memory, AsHandle(sent), 1));
    EXPECT_EQ(node.Held(0), 0u);
    ASSERT_OK(CU(cuda, cuMemAddressReserve)(&range, 12 * kBlock, 0, 0, 0));
    ASSERT_OK(CU(cuda, cuMemMap)(range, 2 * kBlock, 0, memory, 0));
    EXPECT_EQ(node.Held(0), 2 * kBlock);
    ASSERT_OK(CU(cuda, cuMemMap)(range + 2 * kBlock, 2 * kBlock, kBlock, memory, 0));
    EXPECT_EQ(node.Held(0), 3 * kBlock);
    EXPECT_EQ(CU(cuda, cuMemMap)(range + 4 * kBlock, 6 * kBlock, 0, memory, 0),
              Result::kOutOfMemory);
    EXPECT_OK(CU(cuda, cuMemRelease)(memory));
    EXPECT_OK(CU(cuda, cuMemUnmap)(range, 4 * kBlock));
    EXPECT_EQ(node.Held(0), 0u);
    ASSERT_EQ(::write(done[1], "x", 1), 1);
  }));
  int status = -1;
  EXPECT_EQ(::waitpid(exporter, &status, 0), exporter);
  EXPECT_EQ(status, 0);
  for (int end : {link[0], link[1], done[0], done[1]}) ::close(end);
}

// Creates, maps, unmaps, retains, exports, imports and releases at random.
void Churn(const CudaLibrary& cuda, unsigned seed, int rounds) {
  constexpr int kPlaces = 8;
  std::mt19937 random(seed);
  DevicePtr range = 0;
  ASSERT_OK(CU(cuda, cuMemAddressReserve)(&range, kPlaces * 4 * kBlock, 0, 0, 0));
  std::vector<PhysicalMemory> handles;
  std::map<DevicePtr, uint64_t> mapped;
  std::vector<int> descriptors;
  for (int i = 0; i < rounds; ++i) {
    const DevicePtr place = range + random() % kPlaces * 4 * kBlock;
    const uint64_t bytes = (1 + random() % 4) * kBlock;
    PhysicalMemory memory = 0;
    const unsigned call = random() % 8;
    if (call == 0) {
      const Result result = CU(cuda, cuMemCreate)(&memory, bytes, &kExportable, 0);
      if (result == Result::kSuccess) handles.push_back(memory);
    } else if (call == 1 && !handles.empty() && !mapped.contains(place)) {
      const PhysicalMemory handle = handles[random() % handles.size()];
      if (CU(cuda, cuMemMap)(place, kBlock, 0, handle, 0) == Result::kSuccess)
        mapped[place] = kBlock;
    } else if (call == 2 && mapped.contains(place)) {
      ASSERT_OK(CU(cuda, cuMemUnmap)(place, mapped[place]));
      mapped.erase(place);
    } else if (call == 3 && mapped.contains(place)) {
      ASSERT_OK(CU(cuda, cuMemRetainAllocationHandle)(&memory, reinterpret_cast<void*>(place)));
      handles.push_back(memory);
    } else if (call == 4 && !handles.empty()) {
      const size_t which = random() % handles.size();
      ASSERT_OK(CU(cuda, cuMemRelease)(handles[which]));
      handles.erase(handles.begin() + long(which));
    } else if (call == 5 && !handles.empty() && descriptors.size() < 20) {
      const PhysicalMemory handle = handles[random() % handles.size()];
      int fd = -1;
      ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&fd, handle, 1, 0));
      descriptors.push_back(fd);
    } else if (call == 6 && !descriptors.empty()) {
      const int fd = descriptors[random() % descriptors.size()];
      const Result result = CU(cuda, cuMemImportFromShareableHandle)(&memory, AsHandle(fd), 1);
      if (result == Result::kSuccess) handles.push_back(memory);
    } else if (call == 7 && !descriptors.empty()) {
      const size_t which = random() % descriptors.size();
      ::close(descriptors[which]);
      descriptors.erase(descriptors.begin() + long(which));
    }
  }
  // Three descriptors stay open, and keep memory that has no handle.
  for (size_t i = 3; i < descriptors.size(); ++i) ::close(descriptors[i]);
}

TEST_F(LimitedVirtualMemoryTest, RandomCallsOfManyThreadsAreCountedAsTheDeviceCountsThem) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    for (unsigned round = 0; round < 20; ++round) {
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back([&cuda, seed = round * 4 + t] { Churn(cuda, seed, 500); });
      }
      for (std::thread& thread : threads) thread.join();
      size_t free = 0;
      ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, nullptr));  // notices closed descriptors
      ASSERT_EQ(node.Held(0), node.DeviceBytes(0) - kContextBytes) << "round " << round;
      ASSERT_LE(node.usage(0).peak, 100 * kMiB);
    }
    EXPECT_GT(node.Held(0), 0u);
  }));
}

}  // namespace
}  // namespace tessera::limiter
