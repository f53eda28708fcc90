// SPDX-License-Identifier: Apache-2.0
// Memory that processes share by handles, as MPI, NCCL and PyTorch's queues do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kIpcMiB = 1 << 20;
constexpr uint64_t kIpcContext = 10 * kIpcMiB;
constexpr char kIpcNode[] =
    "base: a100-sxm4-80gb\ngpu:\n  memory_mib: 1100\n  reserved_mib: 100\n  context_mib: 10\n"
    "node:\n  gpus: 1\n  nvlink: none\n";

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

// Two processes that exchange messages in turn.
class IpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(to_opener_), 0);
    ASSERT_EQ(pipe(to_exporter_), 0);
  }
  void TearDown() override {
    for (int fd : {to_opener_[0], to_opener_[1], to_exporter_[0], to_exporter_[1]}) close(fd);
  }

  template <typename T>
  static void Send(const int* end, const T& value) {
    ASSERT_EQ(write(end[1], &value, sizeof(value)), ssize_t(sizeof(value)));
  }
  template <typename T>
  static T Receive(const int* end) {
    T value{};
    EXPECT_EQ(read(end[0], &value, sizeof(value)), ssize_t(sizeof(value)));
    return value;
  }

  static void SendDescriptor(int socket, int fd) {
    char byte = 0;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof(control);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    EXPECT_EQ(sendmsg(socket, &message, 0), 1);
  }
  static int ReceiveDescriptor(int socket) {
    char byte = 0;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    iovec data{&byte, 1};
    msghdr message{};
    message.msg_iov = &data, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof(control);
    EXPECT_EQ(recvmsg(socket, &message, 0), 1);
    int fd = -1;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
  }

  using Body = std::function<void(const CudaLibrary&)>;
  pid_t Start(const Body& body) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const CudaLibrary cuda(node_.library("libcuda.so.1"));
    Context context = nullptr;
    EXPECT_OK(CU(cuda, cuInit)(0));
    EXPECT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
    body(cuda);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  static void ExpectSuccess(pid_t pid) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  uint64_t Used() { return node_.state().UsedBytes(0); }

  sim::testing::SimNode node_{{.profile = kIpcNode}};
  int to_opener_[2] = {}, to_exporter_[2] = {};
};

TEST_F(IpcTest, BothProcessesSeeTheSameBytesAndTheExporterIsCharged) {
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    DevicePtr large = 0, small = 0, neighbor = 0;
    IpcMemHandle handle, of_small;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&large, 50 * kIpcMiB));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&neighbor, 1000));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&small, 1000));
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(large, 7, 50 * kIpcMiB));
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(small, 8, 1000));
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(neighbor, 9, 1000));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, large));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&of_small, small + 5))
        << "an address inside the allocation";
    DevicePtr again = 0;
    EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&again, handle, 1), Result::kInvalidContext)
        << "the exporter cannot open its own handle";
    Send(to_opener_, handle);
    Send(to_opener_, of_small);
    Receive<char>(to_exporter_);
    char value = 0;
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, large + 12345, 1));
    EXPECT_EQ(value, 'o') << "the byte that the opener wrote";
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, neighbor, 1));
    EXPECT_EQ(value, 9);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(large));
    EXPECT_EQ(Used(), 2 * kIpcContext + 2 * kIpcMiB);
    Send(to_opener_, 'f');
    Receive<char>(to_exporter_);
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const auto handle = Receive<IpcMemHandle>(to_opener_),
               of_small = Receive<IpcMemHandle>(to_opener_);
    DevicePtr large = 0, again = 0, small = 0;
    EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&large, handle, 0), Result::kInvalidValue);
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&large, handle, 1));
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&again, handle, 1));
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle)(&small, of_small, 1));
    EXPECT_EQ(large, again);
    EXPECT_EQ(Used(), 2 * kIpcContext + 52 * kIpcMiB) << "the opener is charged nothing";
    DevicePtr base = 0;
    size_t size = 0;
    ASSERT_OK(CU(cuda, cuMemGetAddressRange_v2)(&base, &size, small + 1));
    EXPECT_EQ(base, small);
    EXPECT_EQ(size, 1000u);
    char value = 0;
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, large + 50 * kIpcMiB - 1, 1));
    EXPECT_EQ(value, 7);
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, small, 1));
    EXPECT_EQ(value, 8);
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(large + 12345, 'o', 1));
    ASSERT_OK(CU(cuda, cuCtxSynchronize)());
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(large), Result::kInvalidValue);
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(large));
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(large)) << "the second of two opens";
    EXPECT_EQ(CU(cuda, cuIpcCloseMemHandle)(large), Result::kInvalidValue);
    Send(to_exporter_, 'w');
    Receive<char>(to_opener_);
    EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&large, handle, 1), Result::kInvalidValue)
        << "the memory is freed";
    Send(to_exporter_, 'e');
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(IpcTest, OnlyMemoryOfCuMemAllocHasHandles) {
  ExpectSuccess(Start([&](const CudaLibrary& cuda) {
    DevicePtr managed = 0, of_pool = 0;
    IpcMemHandle handle;
    ASSERT_OK(CU(cuda, cuMemAllocManaged)(&managed, kIpcMiB, 1));
    ASSERT_OK(CU(cuda, cuMemAllocAsync)(&of_pool, kIpcMiB, nullptr));
    EXPECT_EQ(CU(cuda, cuIpcGetMemHandle)(&handle, managed), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuIpcGetMemHandle)(&handle, of_pool), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuIpcGetMemHandle)(&handle, 0), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuIpcGetMemHandle)(nullptr, managed), Result::kInvalidValue);
    handle = {};
    EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&managed, handle, 1), Result::kInvalidValue);
  }));
}

TEST_F(IpcTest, OpenedMemoryEndsWithItsContext) {
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 50 * kIpcMiB));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    Send(to_opener_, handle);
    Receive<char>(to_exporter_);
  });
  ExpectSuccess(Start([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    Context context = nullptr;
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&pointer, Receive<IpcMemHandle>(to_opener_), 1));
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&context));
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
    EXPECT_EQ(CU(cuda, cuIpcCloseMemHandle)(pointer), Result::kInvalidValue);
    EXPECT_EQ(Used(), 2 * kIpcContext + 50 * kIpcMiB);
    Send(to_exporter_, 'e');
  }));
  ExpectSuccess(exporter);
}

TEST_F(IpcTest, AHandleOfBytesOutsideOfTheMemoryIsRefused) {
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 50 * kIpcMiB));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    Send(to_opener_, handle);
    Receive<char>(to_exporter_);
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const auto handle = Receive<IpcMemHandle>(to_opener_);
    constexpr size_t kOffset = 24;  // of the field that has the offset of the allocation
    DevicePtr pointer = 0;
    for (const uint64_t offset : {kIpcMiB, 0 - kIpcMiB}) {
      IpcMemHandle forged = handle;
      memcpy(reinterpret_cast<char*>(&forged) + kOffset, &offset, sizeof(offset));
      EXPECT_EQ(CU(cuda, cuIpcOpenMemHandle_v2)(&pointer, forged, 1), Result::kInvalidValue)
          << offset;
    }
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&pointer, handle, 1));
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(pointer));
    Send(to_exporter_, 'e');
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
}

TEST_F(IpcTest, MemoryThatAnotherThreadOpensDuringACloseStaysOpen) {
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    DevicePtr pointer = 0;
    IpcMemHandle handle;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 50 * kIpcMiB));
    ASSERT_OK(CU(cuda, cuIpcGetMemHandle)(&handle, pointer));
    Send(to_opener_, handle);
    Receive<char>(to_exporter_);
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const auto handle = Receive<IpcMemHandle>(to_opener_);
    DevicePtr pointer = 0, again = 0;
    Context context = nullptr;
    ASSERT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&pointer, handle, 1));
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&context));
    // While this function of the program runs, the other thread waits in cuIpcCloseMemHandle.
    static std::atomic<bool> may_end;
    may_end = false;
    ASSERT_OK(CU(cuda, cuLaunchHostFunc)(
        nullptr,
        [](void*) {
          while (!may_end) usleep(1000);
        },
        nullptr));
    std::thread closer([&] {
      EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
      EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(pointer));
    });
    usleep(50'000);  // gives the other thread the time to begin
    EXPECT_OK(CU(cuda, cuIpcOpenMemHandle_v2)(&again, handle, 1));
    may_end = true;
    closer.join();
    EXPECT_EQ(again, pointer);
    EXPECT_OK(CU(cuda, cuMemsetD8_v2)(again, 7, 1));
    EXPECT_OK(CU(cuda, cuIpcCloseMemHandle)(again));
    EXPECT_EQ(CU(cuda, cuIpcCloseMemHandle)(again), Result::kInvalidValue);
    Send(to_exporter_, 'e');
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
}

// The child inherits the descriptor of the pool here; programs send it through a socket.
TEST_F(IpcTest, APoolIsImportedAndPointersOfItAreOpened) {
  MemPoolProperties properties{
      .alloc_type = 1, .handle_types = kShareByFileDescriptor, .location = {kLocationDevice, 0}};
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    MemPool pool = nullptr, private_pool = nullptr;
    DevicePtr pointer = 0, private_pointer = 0;
    IpcMemHandle data;
    int fd = -1;
    ASSERT_OK(CU(cuda, cuMemPoolCreate)(&pool, &properties));
    properties.handle_types = 0;
    ASSERT_OK(CU(cuda, cuMemPoolCreate)(&private_pool, &properties));
    EXPECT_EQ(CU(cuda, cuMemPoolExportToShareableHandle)(&fd, private_pool, 1, 0),
              Result::kInvalidValue);
    ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&private_pointer, 1000, private_pool, nullptr));
    EXPECT_EQ(CU(cuda, cuMemPoolExportPointer)(&data, private_pointer), Result::kInvalidValue);
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(private_pointer, nullptr));
    ASSERT_OK(CU(cuda, cuMemPoolExportToShareableHandle)(&fd, pool, kShareByFileDescriptor, 0));
    ASSERT_OK(CU(cuda, cuMemAllocFromPoolAsync)(&pointer, 50 * kIpcMiB, pool, nullptr));
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(pointer, 7, 50 * kIpcMiB));
    ASSERT_OK(CU(cuda, cuMemPoolExportPointer)(&data, pointer));
    Send(to_opener_, getpid());
    Send(to_opener_, fd);
    Send(to_opener_, data);
    Receive<char>(to_exporter_);
    char value = 0;
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, pointer + 1, 1));
    EXPECT_EQ(value, 'o') << "the byte that the opener wrote";
    ASSERT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const auto pid = Receive<pid_t>(to_opener_);
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/";
    const int fd = open((path + std::to_string(Receive<int>(to_opener_))).c_str(), O_RDWR);
    auto data = Receive<IpcMemHandle>(to_opener_);
    MemPool pool = nullptr;
    DevicePtr pointer = 0, own = 0;
    ASSERT_OK(CU(cuda, cuMemPoolImportFromShareableHandle)(
        &pool, reinterpret_cast<void*>(intptr_t(fd)), kShareByFileDescriptor, 0));
    close(fd);
    EXPECT_EQ(CU(cuda, cuMemAllocFromPoolAsync)(&own, 1000, pool, nullptr), Result::kInvalidValue);
    ASSERT_OK(CU(cuda, cuMemPoolImportPointer)(&pointer, pool, &data));
    EXPECT_EQ(Used(), 2 * kIpcContext + 50 * kIpcMiB) << "the opener is charged nothing";
    char value = 0;
    ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, pointer + 50 * kIpcMiB - 1, 1));
    EXPECT_EQ(value, 7);
    ASSERT_OK(CU(cuda, cuMemsetD8_v2)(pointer + 1, 'o', 1));
    ASSERT_OK(CU(cuda, cuCtxSynchronize)());
    EXPECT_EQ(CU(cuda, cuIpcCloseMemHandle)(pointer), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuMemPoolDestroy)(pool), Result::kNotSupported) << "a pointer is open";
    EXPECT_OK(CU(cuda, cuMemFreeAsync)(pointer, nullptr));
    EXPECT_EQ(CU(cuda, cuMemFreeAsync)(pointer, nullptr), Result::kInvalidValue);
    EXPECT_OK(CU(cuda, cuMemPoolDestroy)(pool));
    Send(to_exporter_, 'w');
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
  EXPECT_EQ(Used(), 0u);
}

TEST_F(IpcTest, TheImporterIsChargedForExportedMemoryAfterTheExporterHasEnded) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const PhysicalMemoryProperties properties = {
      .type = 1, .handle_types = kShareByFileDescriptor, .location = {kLocationDevice, 0}};
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    PhysicalMemory memory = 0;
    int fd = -1;
    ASSERT_OK(CU(cuda, cuMemCreate)(&memory, 400 * kIpcMiB, &properties, 0));
    ASSERT_OK(CU(cuda, cuMemExportToShareableHandle)(&fd, memory, kShareByFileDescriptor, 0));
    SendDescriptor(sockets[0], fd);
    Receive<char>(to_exporter_);
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const int fd = ReceiveDescriptor(sockets[1]);
    PhysicalMemory memory = 0, more = 0;
    ASSERT_OK(CU(cuda, cuMemImportFromShareableHandle)(
        &memory, reinterpret_cast<void*>(intptr_t(fd)), kShareByFileDescriptor));
    close(fd);
    EXPECT_EQ(Used(), 2 * kIpcContext + 400 * kIpcMiB) << "charged once";
    Send(to_exporter_, 'e');
    const uint64_t without_exporter = kIpcContext + 400 * kIpcMiB;
    for (int i = 0; i < 1000 && Used() != without_exporter; ++i) usleep(10'000);
    EXPECT_EQ(Used(), without_exporter);
    EXPECT_EQ(CU(cuda, cuMemCreate)(&more, 600 * kIpcMiB, &properties, 0), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemRelease)(memory));
    EXPECT_EQ(Used(), kIpcContext);
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
  EXPECT_EQ(Used(), 0u);
  for (int end : sockets) close(end);
}

// Launches the kernel "slow" and records an event after it.
void RecordSlowly(const CudaLibrary& cuda, Event event) {
  constexpr char kSlow[] =
      ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry slow() { ret; }\n";
  Module module = nullptr;
  Function function = nullptr;
  ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, kSlow));
  ASSERT_OK(CU(cuda, cuModuleGetFunction)(&function, module, "slow"));
  ASSERT_OK(CU(cuda, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  ASSERT_OK(CU(cuda, cuEventRecord)(event, nullptr));
}

// Processes that share an event. Their kernel "slow" takes longer than a busy machine pauses them.
class IpcEventTest : public IpcTest {
 protected:
  IpcEventTest() { setenv("SIMGPU_KERNEL_NS", "slow=1500000000", 1); }
  ~IpcEventTest() override { unsetenv("SIMGPU_KERNEL_NS"); }
  Event Create(const CudaLibrary& cuda) {
    Event event = nullptr;
    IpcEventHandle handle = {};
    EXPECT_OK(CU(cuda, cuEventCreate)(&event, kEventNoTiming | kEventInterprocess));
    EXPECT_OK(CU(cuda, cuIpcGetEventHandle)(&handle, event));
    Event again = nullptr;
    EXPECT_EQ(CU(cuda, cuIpcOpenEventHandle)(&again, handle), Result::kInvalidContext);
    Send(to_opener_, handle);
    return event;
  }
  Event Open(const CudaLibrary& cuda) {
    Event event = nullptr;
    EXPECT_OK(CU(cuda, cuIpcOpenEventHandle)(&event, Receive<IpcEventHandle>(to_opener_)));
    return event;
  }
};

TEST_F(IpcEventTest, EachProcessWaitsForRecordsOfTheOther) {
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    const Event event = Create(cuda);
    Receive<char>(to_exporter_);
    RecordSlowly(cuda, event);
    Send(to_opener_, 'r');
    Receive<char>(to_exporter_);
    EXPECT_EQ(CU(cuda, cuEventQuery)(event), Result::kNotReady)
        << "the record of the opener is not done";
    EXPECT_OK(CU(cuda, cuEventSynchronize)(event));
    EXPECT_OK(CU(cuda, cuEventQuery)(event));
    EXPECT_OK(CU(cuda, cuEventDestroy_v2)(event));
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const Event event = Open(cuda);
    EXPECT_OK(CU(cuda, cuEventQuery)(event)) << "the event was never recorded";
    Send(to_exporter_, 'o');
    Receive<char>(to_opener_);
    EXPECT_EQ(CU(cuda, cuEventQuery)(event), Result::kNotReady);
    Stream stream = nullptr;
    ASSERT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
    ASSERT_OK(CU(cuda, cuStreamWaitEvent)(stream, event, 0));
    EXPECT_EQ(CU(cuda, cuStreamQuery)(stream), Result::kNotReady);
    EXPECT_OK(CU(cuda, cuStreamSynchronize)(stream));
    EXPECT_OK(CU(cuda, cuEventQuery)(event)) << "the stream has waited";
    RecordSlowly(cuda, event);
    Send(to_exporter_, 'r');
    EXPECT_EQ(CU(cuda, cuEventQuery)(event), Result::kNotReady);
    EXPECT_OK(CU(cuda, cuEventSynchronize)(event));
    EXPECT_OK(CU(cuda, cuEventDestroy_v2)(event));
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
}

TEST_F(IpcEventTest, AnEventRecordedByADeadProcessIsComplete) {
  const pid_t exporter = Start([&](const CudaLibrary& cuda) {
    const Event event = Create(cuda);
    Receive<char>(to_exporter_);
    RecordSlowly(cuda, event);
    Send(to_opener_, 'r');
    Receive<char>(to_exporter_);  // the process ends
  });
  const pid_t opener = Start([&](const CudaLibrary& cuda) {
    const Event event = Open(cuda);
    Send(to_exporter_, 'o');
    Receive<char>(to_opener_);
    ASSERT_OK(CU(cuda, cuStreamWaitEvent)(nullptr, event, 0));
    Send(to_exporter_, 'w');
    EXPECT_OK(CU(cuda, cuStreamSynchronize)(nullptr));
    EXPECT_OK(CU(cuda, cuEventSynchronize)(event));
  });
  ExpectSuccess(exporter);
  ExpectSuccess(opener);
}

TEST_F(IpcEventTest, OnlyInterprocessEventsHaveHandles) {
  const pid_t program = Start([&](const CudaLibrary& cuda) {
    Event event = nullptr;
    IpcEventHandle handle = {};
    EXPECT_EQ(CU(cuda, cuEventCreate)(&event, kEventInterprocess), Result::kInvalidValue)
        << "an interprocess event measures no time";
    ASSERT_OK(CU(cuda, cuEventCreate)(&event, kEventNoTiming));
    EXPECT_EQ(CU(cuda, cuIpcGetEventHandle)(&handle, event), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuIpcOpenEventHandle)(&event, handle), Result::kInvalidValue);
  });
  ExpectSuccess(program);
}

}  // namespace
}  // namespace tessera::cuda
