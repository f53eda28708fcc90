// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>
#include <vector>

#include "src/sim/nvml/nvml_fixture.h"

namespace tessera::nvml {
namespace {

constexpr unsigned k1g = 19, k1gMedia = 20, k2g = 14, k3g = 9, k4g = 5, k7g = 0;

class MigTest : public NvmlTest {
 protected:
  void SetUp() override {
    Init();
    Return activation = Return::kUnknown;
    ASSERT_EQ(NVML(nvmlDeviceSetMigMode)(Handle(0), kFeatureEnabled, &activation),
              Return::kSuccess);
    ASSERT_EQ(activation, Return::kSuccess);
  }
  GpuInstance Create(unsigned profile) {
    GpuInstance instance = nullptr;
    EXPECT_EQ(NVML(nvmlDeviceCreateGpuInstance)(Handle(0), profile, &instance), Return::kSuccess)
        << profile;
    return instance;
  }
  ComputeInstance CreateCompute(GpuInstance instance, unsigned profile) {
    ComputeInstance compute = nullptr;
    EXPECT_EQ(NVML(nvmlGpuInstanceCreateComputeInstance)(instance, profile, &compute),
              Return::kSuccess);
    return compute;
  }
  GpuInstanceInfo Info(GpuInstance instance) {
    GpuInstanceInfo info{};
    EXPECT_EQ(NVML(nvmlGpuInstanceGetInfo)(instance, &info), Return::kSuccess);
    return info;
  }
  unsigned RemainingCapacity(unsigned profile) {
    unsigned count = 99;
    EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceRemainingCapacity)(Handle(0), profile, &count),
              Return::kSuccess);
    return count;
  }
  Device Mig(unsigned index) {
    Device mig = nullptr;
    EXPECT_EQ(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(Handle(0), index, &mig), Return::kSuccess);
    return mig;
  }
  std::string Uuid(Device device) {
    char text[96] = "";
    EXPECT_EQ(NVML(nvmlDeviceGetUUID)(device, text, sizeof(text)), Return::kSuccess);
    return text;
  }
};

TEST_F(MigTest, InstancesTakeTheDriversPlacementsAndIds) {
  // The example of NVIDIA's user guide: a small, a medium and a large instance.
  const GpuInstanceInfo small = Info(Create(k1g));
  const GpuInstanceInfo medium = Info(Create(k2g));
  const GpuInstanceInfo large = Info(Create(k4g));
  EXPECT_EQ(small.id, 13u);
  EXPECT_EQ(small.placement.start, 6u);
  EXPECT_EQ(medium.id, 5u);
  EXPECT_EQ(medium.placement.start, 4u);
  EXPECT_EQ(large.id, 1u);
  EXPECT_EQ(large.placement.start, 0u);
  EXPECT_EQ(large.placement.size, 4u);
  EXPECT_EQ(RemainingCapacity(k1g), 0u);
}

TEST_F(MigTest, SevenSmallInstancesFillAGpuAndAnEighthIsRefused) {
  for (int i = 0; i < 7; ++i) CreateCompute(Create(k1g), 0);
  GpuInstance instance = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceCreateGpuInstance)(Handle(0), k1g, &instance),
            Return::kInsufficientResources);
  unsigned previous = 0;
  for (unsigned i = 0; i < 7; ++i) {
    unsigned id = 0, index = 99;
    EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceId)(Mig(i), &id), Return::kSuccess);
    EXPECT_GT(id, previous) << "MIG devices are in the order of instances";
    previous = id;
    EXPECT_EQ(NVML(nvmlDeviceGetIndex)(Mig(i), &index), Return::kSuccess);
    EXPECT_EQ(index, i);
  }
  Device mig = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(Handle(0), 7, &mig), Return::kNotFound);
}

TEST_F(MigTest, OneInstanceHasTheMediaEngines) {
  Create(k1gMedia);
  EXPECT_EQ(RemainingCapacity(k1gMedia), 0u);
  EXPECT_EQ(RemainingCapacity(k1g), 6u);
  EXPECT_EQ(RemainingCapacity(k7g), 0u);
}

TEST_F(MigTest, AnOccupiedOrImpossiblePlacementIsRefused) {
  GpuInstance instance = nullptr;
  const auto create = [&](unsigned start) {
    const Placement placement{start, 4};
    return NVML(nvmlDeviceCreateGpuInstanceWithPlacement)(Handle(0), k3g, &placement, &instance);
  };
  EXPECT_EQ(create(4), Return::kSuccess);
  EXPECT_EQ(create(4), Return::kInsufficientResources);
  EXPECT_EQ(create(1), Return::kInvalidArgument);
  EXPECT_EQ(create(0), Return::kSuccess);
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstancePossiblePlacements_v2)(Handle(0), k3g, nullptr, &count),
            Return::kSuccess);
  EXPECT_EQ(count, 2u) << "possible placements do not depend on instances";
}

TEST_F(MigTest, AMigDeviceHasItsPartOfTheGpu) {
  const GpuInstance instance = Create(k3g);
  CreateCompute(instance, 0);
  CreateCompute(instance, 1);
  DeviceAttributes attributes{};
  ASSERT_EQ(NVML(nvmlDeviceGetAttributes_v2)(Mig(1), &attributes), Return::kSuccess);
  EXPECT_EQ(attributes.multiprocessor_count, 28u);
  EXPECT_EQ(attributes.gpu_instance_slices, 3u);
  EXPECT_EQ(attributes.compute_instance_slices, 2u);
  EXPECT_EQ(attributes.memory_mb, 40192u);
  char name[96];
  ASSERT_EQ(NVML(nvmlDeviceGetName)(Mig(0), name, sizeof(name)), Return::kSuccess);
  EXPECT_STREQ(name, "NVIDIA A100-SXM4-80GB MIG 1c.3g.40gb");
  Memory memory{};
  ASSERT_EQ(NVML(nvmlDeviceGetMemoryInfo)(Mig(0), &memory), Return::kSuccess);
  EXPECT_EQ(memory.total >> 20, 40192u);
  unsigned value = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetPowerUsage)(Mig(0), &value), Return::kNotSupported);
  ASSERT_EQ(NVML(nvmlDeviceIsMigDeviceHandle)(Mig(0), &value), Return::kSuccess);
  EXPECT_EQ(value, 1u);
  Device parent = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(Mig(0), &parent), Return::kSuccess);
  EXPECT_EQ(parent, Handle(0));
  EXPECT_EQ(NVML(nvmlDeviceGetAttributes_v2)(Handle(0), &attributes), Return::kInvalidArgument);
}

TEST_F(MigTest, AUuidFindsItsDeviceAndPassesToANewInstanceInItsPlace) {
  const GpuInstance instance = Create(k2g);
  const ComputeInstance compute = CreateCompute(instance, 1);
  const std::string uuid = Uuid(Mig(0));
  EXPECT_EQ(uuid.rfind("MIG-", 0), 0u);
  Device found = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetHandleByUUID)(uuid.c_str(), &found), Return::kSuccess);
  EXPECT_EQ(found, Mig(0));
  ASSERT_EQ(NVML(nvmlComputeInstanceDestroy)(compute), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)(uuid.c_str(), &found), Return::kNotFound);
  unsigned id = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetComputeInstanceId)(found, &id), Return::kInvalidArgument);
  CreateCompute(instance, 1);
  EXPECT_EQ(Uuid(Mig(0)), uuid);
}

TEST_F(MigTest, InstancesAndMigModeInUseCannotBeChanged) {
  const GpuInstance instance = Create(k1g);
  const ComputeInstance compute = CreateCompute(instance, 0);
  EXPECT_EQ(NVML(nvmlGpuInstanceDestroy)(instance), Return::kInUse);
  Return activation = Return::kUnknown;
  EXPECT_EQ(NVML(nvmlDeviceSetMigMode)(Handle(0), kFeatureDisabled, &activation), Return::kSuccess);
  EXPECT_EQ(activation, Return::kInUse);
  unsigned current = 9, pending = 9;
  EXPECT_EQ(NVML(nvmlDeviceGetMigMode)(Handle(0), &current, &pending), Return::kSuccess);
  EXPECT_EQ(current, 1u);
  EXPECT_EQ(pending, 0u);
  EXPECT_EQ(NVML(nvmlComputeInstanceDestroy)(compute), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlGpuInstanceDestroy)(instance), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlGpuInstanceDestroy)(instance), Return::kInvalidArgument);
  EXPECT_EQ(NVML(nvmlDeviceSetMigMode)(Handle(0), kFeatureDisabled, &activation), Return::kSuccess);
  EXPECT_EQ(activation, Return::kSuccess);
  GpuInstance none = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceCreateGpuInstance)(Handle(0), k1g, &none), Return::kNotSupported);
}

TEST_F(MigTest, ProfilesHaveNameIdAndSize) {
  GpuInstanceProfileInfoV3 info{};
  info.version = VersionOf<GpuInstanceProfileInfoV3>(3);
  auto* argument = reinterpret_cast<GpuInstanceProfileInfoV2*>(&info);
  ASSERT_EQ(NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(Handle(0), 7, argument), Return::kSuccess);
  EXPECT_STREQ(info.name, "MIG 1g.10gb+me");
  EXPECT_EQ(info.id, k1gMedia);
  EXPECT_EQ(info.instances, 1u);
  info.version = 5;
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceProfileInfoV)(Handle(0), 7, argument),
            Return::kArgumentVersionMismatch);
  GpuInstanceProfileInfo old{};
  EXPECT_EQ(NVML(nvmlDeviceGetGpuInstanceProfileInfo)(Handle(0), 6, &old), Return::kNotSupported);
}

// A container that has the device files of one instance sees only this instance.
TEST_F(MigTest, DevicesWithoutCapabilityFilesAreHidden) {
  for (int i = 0; i < 2; ++i) CreateCompute(Create(k1g), 0);
  const std::string hidden = Uuid(Mig(0)), shown = Uuid(Mig(1));
  unsigned gi = 0, ci = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetGpuInstanceId)(Mig(0), &gi), Return::kSuccess);
  ASSERT_EQ(NVML(nvmlDeviceGetComputeInstanceId)(Mig(0), &ci), Return::kSuccess);
  const sim::MigCapability capability{0, gi, static_cast<int>(ci)};
  ASSERT_EQ(std::remove(sim::State::DevicePath(capability.device().c_str()).c_str()), 0);
  EXPECT_EQ(Uuid(Mig(0)), shown);
  Device device = nullptr;
  EXPECT_EQ(NVML(nvmlDeviceGetMigDeviceHandleByIndex)(Handle(0), 1, &device), Return::kNotFound);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)(hidden.c_str(), &device), Return::kNotFound);
  EXPECT_EQ(NVML(nvmlDeviceGetHandleByUUID)(shown.c_str(), &device), Return::kSuccess);
}

TEST_F(MigTest, UtilizationIsNotSupportedInMigMode) {
  Utilization use{};
  EXPECT_EQ(NVML(nvmlDeviceGetUtilizationRates)(Handle(0), &use), Return::kNotSupported);
  EXPECT_EQ(NVML(nvmlDeviceGetUtilizationRates)(Handle(1), &use), Return::kSuccess);
}

}  // namespace
}  // namespace tessera::nvml
