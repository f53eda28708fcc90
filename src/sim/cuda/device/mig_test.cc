// SPDX-License-Identifier: Apache-2.0
// Programs on MIG devices, each in its own process, because the choice of the device is final.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;
constexpr int kMultiprocessors = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT

class MigCudaTest : public ::testing::Test {
 protected:
  MigCudaTest() : node_({.profile = "a100-sxm4-80gb", .gpus = 2}) {
    EXPECT_EQ(node_.state().SetMigMode(0, true), 0);
  }
  // The UUID of a new compute instance with all slices of a new GPU instance.
  std::string NewDevice(const std::string& profile) {
    uint32_t index = 0, parent = 0, instance = 0;
    sim::State& state = node_.state();
    while (profile != state.facts(0).mig_profiles[index].name) ++index;
    EXPECT_EQ(state.CreateGpuInstance(0, index, sim::State::kAnyStart, &parent), 0);
    EXPECT_EQ(state.CreateComputeInstance(0, parent, state.ProfileOf(0, parent).slices,
                                          sim::State::kAnyStart, &instance),
              0);
    return state.InstanceUuid(0, instance);
  }
  // Runs `body` in a child with CUDA_VISIBLE_DEVICES (null: not set). Returns its exit status.
  int Run(const char* visible, const std::function<int(const CudaLibrary&)>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      if (visible != nullptr)
        setenv("CUDA_VISIBLE_DEVICES", visible, 1);
      else
        unsetenv("CUDA_VISIBLE_DEVICES");
      _exit(body(CudaLibrary(node_.library("libcuda.so.1"))));
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // The number of devices, or 100 + the error of cuInit.
  int CountDevices(const char* visible) {
    return Run(visible, [](const CudaLibrary& cuda) {
      const Result result = CU(cuda, cuInit)(0);
      int count = 0;
      if (result != Result::kSuccess || CU(cuda, cuDeviceGetCount)(&count) != Result::kSuccess) {
        return 100 + int(result);
      }
      return count;
    });
  }

  sim::testing::SimNode node_;
};

TEST_F(MigCudaTest, ADeviceHasTheSizeOfItsInstance) {
  const std::string uuid = NewDevice("2g.20gb");
  NewDevice("3g.40gb");
  EXPECT_EQ(Run(uuid.c_str(),
                [](const CudaLibrary& cuda) {
                  char name[128] = "";
                  int count = 0, multiprocessors = 0;
                  size_t bytes = 0, free = 0, total = 0;
                  Context context = nullptr;
                  DevicePtr pointer = 0;
                  if (CU(cuda, cuInit)(0) != Result::kSuccess) return 1;
                  if (CU(cuda, cuDeviceGetCount)(&count) != Result::kSuccess || count != 1)
                    return 2;
                  CU(cuda, cuDeviceGetName)(name, sizeof(name), 0);
                  if (std::string(name) != "NVIDIA A100-SXM4-80GB MIG 2g.20gb") return 3;
                  CU(cuda, cuDeviceGetAttribute)(&multiprocessors, kMultiprocessors, 0);
                  if (multiprocessors != 28) return 4;
                  CU(cuda, cuDeviceTotalMem_v2)(&bytes, 0);
                  if (bytes != 19968ULL << 20) return 5;
                  if (CU(cuda, cuCtxCreate_v2)(&context, 0, 0) != Result::kSuccess) return 6;
                  if (CU(cuda, cuMemAlloc_v2)(&pointer, 15 * kGiB) != Result::kSuccess) return 7;
                  if (CU(cuda, cuMemAlloc_v2)(&pointer, 5 * kGiB) != Result::kOutOfMemory) return 8;
                  CU(cuda, cuMemGetInfo_v2)(&free, &total);
                  return total == bytes && free < 5 * kGiB && free > 3 * kGiB ? 0 : 9;
                }),
            0);
}

TEST_F(MigCudaTest, AProcessSeesOneInstanceOrTheOtherGpus) {
  EXPECT_EQ(CountDevices(nullptr), 1) << "a GPU in MIG mode without instances is no device";
  EXPECT_EQ(CountDevices(node_.state().facts(0).uuid), 200)
      << "a GPU in MIG mode without instances is no device";
  const std::string uuid = NewDevice("1g.10gb");
  NewDevice("1g.10gb");
  EXPECT_EQ(CountDevices(nullptr), 1) << "the first instance, and no other device";
  EXPECT_EQ(CountDevices(uuid.c_str()), 1);
  EXPECT_EQ(CountDevices("MIG-00000000-0000-5000-8000-000000000000"), 200);
  EXPECT_EQ(CountDevices("1"), 1) << "the GPU without MIG";
  const std::string old = std::string("MIG-") + node_.state().facts(0).uuid + "/13/0";
  EXPECT_EQ(CountDevices(old.c_str()), 1);
}

// A container gets the device files of its instance only.
TEST_F(MigCudaTest, AProcessNeedsTheCapabilityFilesOfItsInstance) {
  const std::string first = NewDevice("1g.10gb"), second = NewDevice("1g.10gb");
  const sim::SimGpuState& gpu_state = node_.state().gpu_state(0);
  const auto remove = [&](const sim::MigCapability& capability) {
    EXPECT_EQ(unlink((node_.dev_root() + "/dev/" + capability.device()).c_str()), 0);
  };
  const uint32_t instance = node_.state().InstanceByRank(0, 0);
  const uint32_t gi =
      gpu_state.gpu_instances[gpu_state.compute_instances[instance].gpu_instance.load()].id.load();
  const bool is_first = node_.state().InstanceUuid(0, instance) == first;
  const std::string& uuid = is_first ? first : second;
  remove({0, gi, 0});
  EXPECT_EQ(CountDevices(uuid.c_str()), 200) << "the file of the compute instance is missing";
  EXPECT_EQ(CountDevices((is_first ? second : first).c_str()), 1);
  EXPECT_EQ(CountDevices("0"), 1) << "the other instance is the first that the process may use";
  EXPECT_NE(node_.state().InstanceByRank(0, 0), instance);
  EXPECT_EQ(node_.state().InstanceByRank(0, 1), sim::kMaxInstances);
  EXPECT_EQ(node_.state().InstanceByRank(0, 0, sim::State::InstanceFilter::kAll), instance);
}

}  // namespace
}  // namespace tessera::cuda
