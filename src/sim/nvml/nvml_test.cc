// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "src/sim/nvml/nvml_fixture.h"

namespace tessera::nvml {
namespace {

struct Name {
  const char* text;
  bool is_unimplemented;
};
constexpr Name kNames[] = {
#define NVML_FUNCTION(name, parameters) {#name, false},
#include "api/nvml_functions.inc"
#undef NVML_FUNCTION
#define NVML_UNIMPLEMENTED(name) {#name, true},
#include "src/sim/nvml/unimplemented.inc"
#undef NVML_UNIMPLEMENTED
};

// Has enough arguments for every function; the callee reads as many as it takes.
using AnyFunction = Return (*)(void*, void*, void*, void*, void*, void*);

Return CallWith(const char* name, void* first) {
  return Function<AnyFunction>(name)(first, nullptr, nullptr, nullptr, nullptr, nullptr);
}

bool IsInitOrShutdown(const char* name) {
  return std::strncmp(name, "nvmlInit", 8) == 0 || std::strcmp(name, "nvmlShutdown") == 0;
}

TEST_F(NvmlTest, EveryCallBeforeInitIsUninitialized) {
  for (const Name& name : kNames) {
    if (IsInitOrShutdown(name.text)) continue;
    EXPECT_EQ(CallWith(name.text, nullptr), Return::kUninitialized) << name.text;
  }
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::kUninitialized);
}

TEST_F(NvmlTest, EveryFunctionAcceptsNullArguments) {
  for (const Name& name : kNames) {
    if (IsInitOrShutdown(name.text)) continue;
    const int status = InChild([&name] {
      if (NVML(nvmlInit_v2)() != Return::kSuccess) return 1;
      const Return result = CallWith(name.text, nullptr);
      if (name.is_unimplemented) return result == Return::kNotSupported ? 0 : 2;
      return result == Return::kSuccess ? 3 : 0;
    });
    EXPECT_EQ(status, 0) << name.text;
  }
}

TEST_F(NvmlTest, EveryDeviceFunctionAcceptsAHandleAndNullResults) {
  for (const Name& name : kNames) {
    if (IsInitOrShutdown(name.text) || std::strncmp(name.text, "nvmlDevice", 10) != 0) continue;
    const int status = InChild([&name] {
      Device device = nullptr;
      if (NVML(nvmlInit_v2)() != Return::kSuccess) return 1;
      if (NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device) != Return::kSuccess) return 1;
      CallWith(name.text, device);
      return 0;
    });
    EXPECT_EQ(status, 0) << name.text;
  }
}

TEST_F(NvmlTest, UnimplementedCallsAreRefusedAndCounted) {
  Init();
  EXPECT_EQ(CallWith("nvmlDeviceSetDriverModel", nullptr), Return::kNotSupported);
  EXPECT_EQ(CallWith("nvmlDeviceSetDriverModel", nullptr), Return::kNotSupported);
  std::uint64_t count = 0;
  for (const sim::NamedCounter& counter : node_.state().file().counters) {
    if (std::strcmp(counter.name, "nvmlDeviceSetDriverModel") == 0) count = counter.count;
  }
  EXPECT_EQ(count, 2u);
}

TEST_F(NvmlTest, TheLastShutdownEndsTheLibrary) {
  Init();
  Init();
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::kSuccess);
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetCount_v2)(&count), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlShutdown)(), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlDeviceGetCount_v2)(&count), Return::kUninitialized);
}

// Number of descriptors of this process for that file.
int OpenDescriptors(const std::string& path) {
  const std::string wanted = std::filesystem::canonical(path);
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == wanted) ++count;
  }
  return count;
}

TEST_F(NvmlTest, KeepsTheDriverOpenFromTheFirstInitToTheLastShutdown) {
  const std::string file = node_.state().dir() + "/state";
  EXPECT_EQ(OpenDescriptors(file), 0);
  for (int round = 0; round < 2; ++round) {
    Init();
    Init();
    EXPECT_EQ(OpenDescriptors(file), 1);
    EXPECT_EQ(NVML(nvmlShutdown)(), Return::kSuccess);
    EXPECT_EQ(OpenDescriptors(file), 1);
    EXPECT_EQ(NVML(nvmlShutdown)(), Return::kSuccess);
    EXPECT_EQ(OpenDescriptors(file), 0);
  }
}

TEST_F(NvmlTest, WithoutStateTheDriverIsNotLoaded) {
  setenv("SIMGPU_STATE_DIR", "/nonexistent", 1);
  EXPECT_EQ(NVML(nvmlInit_v2)(), Return::kDriverNotLoaded);
}

TEST_F(NvmlTest, ShowsOnlyGpusWithADeviceNode) {
  node_.RemoveDeviceNode(1);
  Init();
  unsigned count = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetCount_v2)(&count), Return::kSuccess);
  EXPECT_EQ(count, 3u);
  unsigned minor = 99;
  ASSERT_EQ(NVML(nvmlDeviceGetMinorNumber)(Handle(1), &minor), Return::kSuccess);
  EXPECT_EQ(minor, 2u);
  Device device = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)(node_.image().facts[1].uuid, &device),
            Return::kNotFound);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(3, &device), Return::kInvalidArgument);
}

TEST_F(NvmlTest, HandlesAreTheSameByIndexUuidSerialAndBusId) {
  Init();
  const Device wanted = Handle(2);
  Device device = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)("GPU-12345678-1234-1234-1234-123456780002", &device),
            Return::kSuccess);
  EXPECT_EQ(device, wanted);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleBySerial)("1650522000002", &device), Return::kSuccess);
  EXPECT_EQ(device, wanted);
  for (const char* id : {"00000000:17:00.0", "0000:17:00.0", "0:17:0", "17:00.0"}) {
    device = nullptr;
    EXPECT_EQ(NVML(nvmlDeviceGetHandleByPciBusId_v2)(id, &device), Return::kSuccess) << id;
    EXPECT_EQ(device, wanted) << id;
  }
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByPciBusId_v2)("17", &device), Return::kInvalidArgument);
  NVML(nvmlShutdown)();
  Init();
  EXPECT_EQ(Handle(2), wanted);
}

TEST_F(NvmlTest, TextsNeedRoomForTheirTerminator) {
  Init();
  char text[96];
  const auto size = static_cast<unsigned>(std::strlen("NVIDIA A100-SXM4-80GB"));
  EXPECT_EQ(NVML(nvmlDeviceGetName)(Handle(0), text, size), Return::kInsufficientSize);
  EXPECT_EQ(NVML(nvmlDeviceGetName)(Handle(0), text, size + 1), Return::kSuccess);
  EXPECT_STREQ(text, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(NVML(nvmlDeviceGetBoardPartNumber)(Handle(0), text, 80), Return::kNotSupported);
}

TEST_F(NvmlTest, PciInfoHasBothFormsOfTheBusId) {
  Init();
  PciInfo pci;
  ASSERT_EQ(NVML(nvmlDeviceGetPciInfo_v3)(Handle(1), &pci), Return::kSuccess);
  EXPECT_STREQ(pci.bus_id, "00000000:0F:00.0");
  EXPECT_STREQ(pci.bus_id_legacy, "0000:0F:00.0");
  EXPECT_EQ(pci.pci_device_id, 0x20B210DEu);
}

TEST_F(NvmlTest, UsedMemoryIsTheSumOfLiveProcesses) {
  Init();
  GpuUser user(node_.state().dir(), 1, 3ULL << 30);
  Memory memory;
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryInfo)(Handle(1), &memory), Return::kSuccess);
  EXPECT_EQ(memory.used, (3ULL << 30) + (512ULL << 20));
  EXPECT_EQ(memory.total, memory.used + memory.free);
  MemoryV2 v2{};
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo_v2)(Handle(1), &v2), Return::kArgumentVersionMismatch);
  v2.version = VersionOf<MemoryV2>(2);
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryInfo_v2)(Handle(1), &v2), Return::kSuccess);
  EXPECT_EQ(v2.used, 3ULL << 30);
  EXPECT_EQ(v2.reserved, 512ULL << 20);
  user.Kill();
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryInfo)(Handle(1), &memory), Return::kSuccess);
  EXPECT_EQ(memory.used, 512ULL << 20);
}

TEST_F(NvmlTest, TwoProcessesSeeTheSameMemory) {
  Init();
  const GpuUser user(node_.state().dir(), 0, 1ULL << 30);
  Memory mine;
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryInfo)(Handle(0), &mine), Return::kSuccess);
  EXPECT_EQ(InChild([&mine] {
              Device device = nullptr;
              Memory theirs;
              NVML(nvmlInit_v2)();
              NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device);
              NVML(nvmlDeviceGetMemoryInfo)(device, &theirs);
              return theirs.used == mine.used ? 0 : 1;
            }),
            0);
}

TEST_F(NvmlTest, ListsProcessesInAllThreeForms) {
  Init();
  const GpuUser first(node_.state().dir(), 0, 1 << 20);
  const GpuUser second(node_.state().dir(), 0, 2 << 20);
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(Handle(0), &count, nullptr),
            Return::kInsufficientSize);
  EXPECT_EQ(count, 2u);
  ProcessInfo infos[4];
  count = 4;
  ASSERT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(Handle(0), &count, infos),
            Return::kSuccess);
  ASSERT_EQ(count, 2u);
  EXPECT_EQ((std::set<unsigned>{infos[0].pid, infos[1].pid}),
            (std::set<unsigned>{unsigned(first.pid()), unsigned(second.pid())}));
  EXPECT_EQ(infos[0].used_gpu_memory + infos[1].used_gpu_memory, 3u << 20);
  EXPECT_EQ(infos[0].gpu_instance_id, kNoInstance);
  ProcessInfoV1 old[4];
  count = 4;
  ASSERT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses)(Handle(0), &count, old), Return::kSuccess);
  EXPECT_EQ(old[1].pid, infos[1].pid);
  ProcessDetail details[4];
  ProcessDetailList list{VersionOf<ProcessDetailList>(1), 0, 4, details};
  ASSERT_EQ(NVML(nvmlDeviceGetRunningProcessDetailList)(Handle(0), &list), Return::kSuccess);
  EXPECT_EQ(list.count, 2u);
  char name[256];
  EXPECT_EQ(NVML(nvmlSystemGetProcessName)(infos[0].pid, name, sizeof(name)), Return::kSuccess);
  EXPECT_THAT(name, ::testing::HasSubstr("nvml_test"));
}

TEST_F(NvmlTest, TopologyNamesLinksAndLevels) {
  Init();
  unsigned level = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetTopologyCommonAncestor)(Handle(0), Handle(1), &level),
            Return::kSuccess);
  EXPECT_EQ(level, kTopologyMultiple);
  unsigned active = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetNvLinkState)(Handle(2), 3, &active), Return::kSuccess);
  EXPECT_EQ(active, 1u);
  ASSERT_EQ(NVML(nvmlDeviceGetNvLinkState)(Handle(2), 4, &active), Return::kSuccess);
  EXPECT_EQ(active, 0u);
  EXPECT_EQ(NVML(nvmlDeviceGetNvLinkState)(Handle(2), 12, &active), Return::kInvalidArgument);
  PciInfo remote;
  ASSERT_EQ(NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2)(Handle(2), 0, &remote), Return::kSuccess);
  EXPECT_STREQ(remote.bus_id, "00000000:1F:00.0");
  unsigned count = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetTopologyNearestGpus)(Handle(0), kTopologySystem, &count, nullptr),
            Return::kSuccess);
  EXPECT_EQ(count, 2u);
  unsigned long nodes[1];
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryAffinity)(Handle(3), 1, nodes, 0), Return::kSuccess);
  EXPECT_EQ(nodes[0], 2u);
}

TEST_F(NvmlTest, ALostGpuReturnsOnlyCachedValues) {
  Init();
  const Device device = Handle(1);
  node_.state().gpu_state(1).lost = 1;
  node_.state().gpu_state(1).recovery_action = kRecoveryReboot;
  Memory memory;
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo)(device, &memory), Return::kGpuIsLost);
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo)(Handle(0), &memory), Return::kSuccess);
  Device again = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(1, &again), Return::kGpuIsLost);
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetCount_v2)(&count), Return::kSuccess);
  EXPECT_EQ(count, 4u);
  FieldValue fields[2] = {};
  fields[0].field_id = kFieldRecoveryAction;
  fields[1].field_id = kFieldMemoryTemp;
  EXPECT_EQ(NVML(nvmlDeviceGetFieldValues)(device, 2, fields), Return::kSuccess);
  EXPECT_EQ(fields[0].value.ui, kRecoveryReboot);
  EXPECT_EQ(fields[1].result, Return::kGpuIsLost);
  node_.state().gpu_state(1).lost = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo)(device, &memory), Return::kSuccess);
}

TEST_F(NvmlTest, EachFieldHasItsOwnResult) {
  Init();
  node_.state().gpu_state(0).ecc_uncorrected_volatile = 7;
  FieldValue fields[3] = {};
  fields[0].field_id = kFieldEccDbeVolatile;
  fields[1].field_id = 9999;
  fields[2].field_id = kFieldNvLinkCount;
  ASSERT_EQ(NVML(nvmlDeviceGetFieldValues)(Handle(0), 3, fields), Return::kSuccess);
  EXPECT_EQ(fields[0].value.ull, 7u);
  EXPECT_EQ(fields[0].value_type, kValueUnsignedLongLong);
  EXPECT_EQ(fields[1].result, Return::kNotSupported);
  EXPECT_EQ(fields[2].value.ui, 12u);
}

TEST_F(NvmlTest, MigIsSupportedAndIsOffByDefault) {
  Init();
  unsigned current = 9;
  unsigned pending = 9;
  EXPECT_EQ(NVML(nvmlDeviceGetMigMode)(Handle(0), &current, &pending), Return::kSuccess);
  EXPECT_EQ(current, 0u);
  Device mig = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(Handle(0), 0, &mig), Return::kNotFound);
  EXPECT_EQ(NVML(nvmlDeviceIsMigDeviceHandle)(Handle(0), &current), Return::kSuccess);
  EXPECT_EQ(current, 0u);
}

TEST_F(NvmlTest, AFaultAppliesToItsFunctionAndGpuAfterSomeCalls) {
  Init();
  const auto error = static_cast<std::uint32_t>(Return::kUnknown);
  ASSERT_EQ(node_.state().AddFault("nvmlDeviceGetUUID", 2, error, false, 1, 1), 0);
  char uuid[96];
  auto get_uuid = [&](unsigned gpu) { return NVML(nvmlDeviceGetUUID)(Handle(gpu), uuid, 96); };
  EXPECT_EQ(get_uuid(2), Return::kSuccess);
  EXPECT_EQ(get_uuid(1), Return::kSuccess);
  EXPECT_EQ(get_uuid(2), Return::kUnknown);
  EXPECT_EQ(get_uuid(2), Return::kSuccess);
}

TEST_F(NvmlTest, AHungCallReturnsWhenTheFaultIsCleared) {
  Init();
  const Device device = Handle(0);
  ASSERT_EQ(node_.state().AddFault("nvmlDeviceGetMemoryInfo", 0, 0, true, 0, 0), 0);
  std::atomic<bool> done = false;
  std::thread caller([&] {
    Memory memory;
    EXPECT_EQ(NVML(nvmlDeviceGetMemoryInfo)(device, &memory), Return::kSuccess);
    done = true;
  });
  unsigned minor = 9;
  EXPECT_EQ(NVML(nvmlDeviceGetMinorNumber)(device, &minor), Return::kSuccess);
  while (node_.state().file().faults[0].calls.load() == 0) std::this_thread::yield();
  EXPECT_FALSE(done);
  node_.state().ClearFaults(nullptr, sim::kAllGpus);
  caller.join();
  EXPECT_TRUE(done);
}

class EventTest : public NvmlTest {
 protected:
  EventSet NewSet(std::vector<unsigned> gpus) {
    EventSet set = nullptr;
    EXPECT_EQ(NVML(nvmlEventSetCreate)(&set), Return::kSuccess);
    for (unsigned gpu : gpus) {
      EXPECT_EQ(NVML(nvmlDeviceRegisterEvents)(Handle(gpu), kEventXid, set), Return::kSuccess);
    }
    return set;
  }
};

TEST_F(EventTest, EverySetGetsAnEventOnce) {
  Init();
  const EventSet first = NewSet({0, 1});
  const EventSet second = NewSet({1});
  node_.state().PostEvent(1, kEventXid, 79);
  for (EventSet set : {first, second}) {
    EventData data{};
    ASSERT_EQ(NVML(nvmlEventSetWait_v2)(set, &data, 1000), Return::kSuccess);
    EXPECT_EQ(data.device, Handle(1));
    EXPECT_EQ(data.event_data, 79u);
    EXPECT_EQ(data.gpu_instance_id, kNoInstance);
    EXPECT_EQ(NVML(nvmlEventSetWait_v2)(set, &data, 0), Return::kTimeout);
    EXPECT_EQ(NVML(nvmlEventSetFree)(set), Return::kSuccess);
  }
}

TEST_F(EventTest, ReturnsNeitherOldNorUnregisteredEvents) {
  Init();
  node_.state().PostEvent(0, kEventXid, 31);
  const EventSet set = NewSet({0});
  node_.state().PostEvent(2, kEventXid, 48);
  node_.state().PostEvent(0, kEventSingleBitEcc, 0);
  node_.state().PostEvent(0, kEventXid, 63);
  EventData data{};
  ASSERT_EQ(NVML(nvmlEventSetWait_v2)(set, &data, 0), Return::kSuccess);
  EXPECT_EQ(data.event_data, 63u);
  EXPECT_EQ(NVML(nvmlDeviceRegisterEvents)(Handle(0), kEventMigConfig, set), Return::kNotSupported);
  NVML(nvmlEventSetFree)(set);
}

TEST_F(EventTest, WaitingTakesNoProcessorAndWakesAtOnce) {
  Init();
  const EventSet set = NewSet({0});
  std::atomic<std::uint64_t> woken_ns = 0;
  std::atomic<std::uint64_t> cpu_ns = 0;
  std::atomic<bool> started = false;
  std::thread waiter([&] {
    EventData data{};
    timespec before;
    timespec after;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    started = true;
    EXPECT_EQ(NVML(nvmlEventSetWait_v2)(set, &data, 60000), Return::kSuccess);
    woken_ns = sim::MonotonicNs();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    cpu_ns = std::uint64_t(after.tv_sec - before.tv_sec) * 1000000000 +
             std::uint64_t(after.tv_nsec) - std::uint64_t(before.tv_nsec);
  });
  while (!started) std::this_thread::yield();
  // This wait lets the other thread reach its wait, and tests the timeout.
  const EventSet idle = NewSet({1});
  EventData data{};
  const std::uint64_t start = sim::MonotonicNs();
  EXPECT_EQ(NVML(nvmlEventSetWait_v2)(idle, &data, 300), Return::kTimeout);
  EXPECT_GE(sim::MonotonicNs() - start, 300u * 1000000);
  const std::uint64_t posted = sim::MonotonicNs();
  node_.state().PostEvent(0, kEventXid, 94);
  waiter.join();
  RecordProperty("wake_us", int((woken_ns - posted) / 1000));
  EXPECT_LT(woken_ns - posted, 10'000'000'000u)
      << "the event ends the wait, not the timeout of 60 s";
  EXPECT_LT(cpu_ns, 20u * 1000000);
  NVML(nvmlEventSetFree)(set);
  NVML(nvmlEventSetFree)(idle);
}

TEST_F(EventTest, EveryWaitingProcessIsWoken) {
  Init();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const EventSet set = NewSet({3});
      EventData data{};
      if (write(ready[1], "x", 1) != 1) _exit(3);
      if (NVML(nvmlEventSetWait_v2)(set, &data, 20000) != Return::kSuccess) _exit(1);
      _exit(data.event_data == 74 ? 0 : 2);
    }
    children.push_back(pid);
  }
  char bytes[3];
  for (int got = 0; got < 3;) got += int(read(ready[0], bytes, sizeof(bytes)));
  node_.state().PostEvent(3, kEventXid, 74);
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  close(ready[0]);
  close(ready[1]);
}

TEST(NvmlLibraryTest, ExportsOnlyItsOwnNames) {
  FILE* names = popen("nm -D --defined-only " SIM_NVML_LIBRARY, "r");
  ASSERT_NE(names, nullptr);
  char line[512];
  size_t count = 0;
  while (fgets(line, sizeof(line), names) != nullptr) {
    EXPECT_THAT(line, ::testing::HasSubstr(" nvml"));
    ++count;
  }
  pclose(names);
  EXPECT_EQ(count, std::size(kNames) + 1);  // plus nvmlErrorString
}

}  // namespace
}  // namespace tessera::nvml
