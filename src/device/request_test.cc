// SPDX-License-Identifier: Apache-2.0
#include "src/device/request.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::device {
namespace {

ContainerRequest GpuMem(Phase phase, int64_t gib) {
  if (gib == 0) return {.name = "none", .phase = phase};
  return {.name = "c",
          .phase = phase,
          .dialect = Dialect::kGpuMem,
          .count = 1,
          .per_gpu = {.memory = GiB(gib)}};
}

using Stages = std::vector<std::vector<size_t>>;

TEST(RequestTest, MainContainersRunTogether) {
  DeviceRequest request;
  request.containers = {GpuMem(Phase::kMain, 3), GpuMem(Phase::kMain, 0), GpuMem(Phase::kMain, 4)};
  request.one_gpu = true;
  EXPECT_EQ(request.Stages(), (Stages{{0, 2}}));
  EXPECT_EQ(request.OneGpuShare().memory, GiB(7));
}

TEST(RequestTest, InitContainersRunInTurnBesideEarlierSidecars) {
  DeviceRequest request;
  request.containers = {GpuMem(Phase::kInit, 9), GpuMem(Phase::kSidecar, 1),
                        GpuMem(Phase::kInit, 7), GpuMem(Phase::kSidecar, 2),
                        GpuMem(Phase::kInit, 0), GpuMem(Phase::kMain, 4)};
  request.one_gpu = true;
  EXPECT_EQ(request.Stages(), (Stages{{0}, {1, 2}, {1, 3, 5}}));
  EXPECT_EQ(request.OneGpuShare().memory, GiB(9));
  request.containers[2].per_gpu.memory = GiB(20);
  EXPECT_EQ(request.OneGpuShare().memory, GiB(21));
}

TEST(RequestTest, APodWithoutARequestHasNoStages) {
  DeviceRequest request;
  request.containers = {GpuMem(Phase::kInit, 0), GpuMem(Phase::kMain, 0)};
  EXPECT_TRUE(request.Stages().empty());
  EXPECT_FALSE(request.requests_devices());
  EXPECT_EQ(request.OneGpuShare(), Share{});
  // One init container is enough.
  request.containers[0] = GpuMem(Phase::kInit, 1);
  EXPECT_EQ(request.Stages(), Stages{{0}});
}

ContainerRequest Whole(Phase phase, int count) {
  return {.name = "c",
          .phase = phase,
          .dialect = Dialect::kNvidiaGpu,
          .count = count,
          .per_gpu = {kWholeGpu, Bytes(0)},
          .exclusive = true};
}

using Groups = std::vector<std::vector<size_t>>;

TEST(RequestTest, AnInitContainerJoinsTheGroupThatGrowsLeast) {
  DeviceRequest request;
  request.containers = {Whole(Phase::kInit, 2), Whole(Phase::kSidecar, 2), Whole(Phase::kInit, 3),
                        {.name = "none"},       Whole(Phase::kMain, 1),    Whole(Phase::kMain, 2)};
  EXPECT_EQ(request.Groups(), (Groups{{1}, {4}, {5, 0, 2}}));
  request.containers[2] = Whole(Phase::kInit, 1);
  EXPECT_EQ(request.Groups(), (Groups{{1}, {4, 2}, {5, 0}}))
      << "two groups are large enough, and the first is taken";
}

ContainerRequest Vcuda(Phase phase, int milli, int64_t gib) {
  return {.name = "c",
          .phase = phase,
          .dialect = Dialect::kVcuda,
          .count = 1,
          .per_gpu = {MilliGpu(milli), GiB(gib)}};
}

TEST(RequestTest, AnInitContainerAddsTheLeastComputeAndMemory) {
  DeviceRequest request;
  request.containers = {Vcuda(Phase::kInit, 500, 40), Vcuda(Phase::kMain, 500, 10),
                        Vcuda(Phase::kMain, 100, 40)};
  EXPECT_EQ(request.Groups(), (Groups{{1, 0}, {2}})) << "30 GiB are less than 400 thousandths";
  request.containers[1].per_gpu.memory = GiB(1);
  request.containers[2].per_gpu.compute = MilliGpu(200);
  EXPECT_EQ(request.Groups(), (Groups{{1}, {2, 0}})) << "39 GiB are more than 300 thousandths";
}

TEST(RequestTest, AGroupEnlargedForOneInitContainerServesTheNext) {
  DeviceRequest request;
  request.containers = {Vcuda(Phase::kInit, 300, 40), Vcuda(Phase::kInit, 300, 40),
                        Vcuda(Phase::kMain, 300, 20), Vcuda(Phase::kMain, 300, 10)};
  EXPECT_EQ(request.Groups(), (Groups{{2, 0, 1}, {3}}));
}

TEST(RequestTest, AnInitContainerJoinsAGroupEvenIfThatSavesNothing) {
  DeviceRequest request;
  request.containers = {GpuMem(Phase::kInit, 8), Whole(Phase::kMain, 1)};
  EXPECT_EQ(request.Groups(), (Groups{{1, 0}}));
}

TEST(RequestTest, AnInitContainerWithoutAMatchingGroupHasItsOwnGpus) {
  DeviceRequest request;
  request.containers = {Whole(Phase::kInit, 1), Whole(Phase::kInit, 2), Whole(Phase::kSidecar, 1)};
  EXPECT_EQ(request.Groups(), (Groups{{2}, {0, 1}})) << "not the GPUs of a sidecar";
  ContainerRequest slice = Whole(Phase::kMain, 1);
  slice.mig_profile = "1g.10gb";
  request.containers[2] = slice;
  EXPECT_EQ(request.Groups(), (Groups{{2}, {0, 1}})) << "not GPUs of another kind";
}

TEST(RequestTest, ContainersThatShareOneGpuAreOneGroup) {
  DeviceRequest request;
  request.containers = {GpuMem(Phase::kInit, 9), GpuMem(Phase::kSidecar, 1), Whole(Phase::kInit, 1),
                        GpuMem(Phase::kMain, 4)};
  request.one_gpu = true;
  EXPECT_EQ(request.Groups(), (Groups{{0, 1, 3}, {2}}));
}

TEST(RequestTest, OneGpuShareCountsOnlyGpuMem) {
  DeviceRequest request;
  request.containers = {
      GpuMem(Phase::kMain, 3),
      {.name = "v", .dialect = Dialect::kVcuda, .count = 1, .per_gpu = {MilliGpu(300), GiB(5)}}};
  EXPECT_EQ(request.OneGpuShare(), Share{});
  request.one_gpu = true;
  EXPECT_EQ(request.OneGpuShare(), (Share{MilliGpu(0), GiB(3)}));
}

TEST(RequestTest, SumsOfTheLargestPodFitInSixtyFourBits) {
  DeviceRequest request;
  request.containers.assign(kMaxContainers,
                            GpuMem(Phase::kMain, kMaxShareMemory.count() / GiB(1).count()));
  request.one_gpu = true;
  EXPECT_EQ(request.OneGpuShare().memory, kMaxShareMemory * kMaxContainers);
  EXPECT_GT(request.OneGpuShare().memory, Bytes(0));
}

TEST(ConstraintsTest, AllowDevicesByModelAndUuid) {
  const Gpu a100{.uuid = "GPU-a", .model = "NVIDIA A100-SXM4-80GB"};
  const Gpu unknown{.uuid = "GPU-u"};
  EXPECT_TRUE(Constraints{}.Allow(a100));
  EXPECT_TRUE(Constraints{}.Allow(unknown));
  EXPECT_TRUE((Constraints{.models = {"H100", "a100"}}.Allow(a100)));
  EXPECT_FALSE((Constraints{.models = {"H100"}}.Allow(a100)));
  EXPECT_FALSE((Constraints{.models = {"A100"}}.Allow(unknown)));
  EXPECT_TRUE((Constraints{.uuids = {"GPU-a"}}.Allow(a100)));
  EXPECT_FALSE((Constraints{.uuids = {"GPU-b"}}.Allow(a100)));
  EXPECT_FALSE((Constraints{.excluded_uuids = {"GPU-a"}}.Allow(a100)));
}

TEST(ConstraintsTest, ASliceIsAlsoCheckedByItsGpu) {
  const Gpu gpu{.uuid = "GPU-a", .model = "NVIDIA A100-SXM4-80GB"};
  const MigSlice slice{.uuid = "MIG-1"};
  EXPECT_TRUE((Constraints{.models = {"A100"}}.Allow(gpu, slice)));
  EXPECT_TRUE((Constraints{.uuids = {"GPU-a"}}.Allow(gpu, slice)));
  EXPECT_TRUE((Constraints{.uuids = {"MIG-1"}}.Allow(gpu, slice)));
  EXPECT_FALSE((Constraints{.uuids = {"MIG-2"}}.Allow(gpu, slice)));
  EXPECT_FALSE((Constraints{.excluded_uuids = {"GPU-a"}}.Allow(gpu, slice)));
  EXPECT_FALSE((Constraints{.excluded_uuids = {"MIG-1"}}.Allow(gpu, slice)));
  EXPECT_FALSE((Constraints{.models = {"H100"}}.Allow(gpu, slice)));
}

TEST(PolicyTest, IsReadBackFromItsName) {
  for (const PackingPolicy policy : {PackingPolicy::kBinpack, PackingPolicy::kSpread}) {
    EXPECT_EQ(PackingPolicyFromName(NameOf(policy)), policy);
  }
  EXPECT_EQ(PackingPolicyFromName("Binpack"), std::nullopt);
}

TEST(DialectTest, AllNamedDialectsAreListed) {
  size_t listed = 0;
  for (int value = 1; NameOf(Dialect(value)) != "unknown"; ++value, ++listed) {
    EXPECT_EQ(std::ranges::count(kDialects, Dialect(value)), 1) << NameOf(Dialect(value));
  }
  EXPECT_EQ(listed, kDialects.size());
}

TEST(DialectTest, IsReadBackFromItsName) {
  for (const Dialect dialect : kDialects) EXPECT_EQ(DialectFromName(NameOf(dialect)), dialect);
  EXPECT_EQ(DialectFromName("none"), Dialect::kNone);
  EXPECT_EQ(DialectFromName("amd.com/gpu"), std::nullopt);
}

TEST(PhaseTest, IsReadBackFromItsName) {
  for (const Phase phase : {Phase::kInit, Phase::kSidecar, Phase::kMain}) {
    EXPECT_EQ(PhaseFromName(NameOf(phase)), phase);
  }
  EXPECT_EQ(PhaseFromName("Main"), std::nullopt);
}

}  // namespace
}  // namespace tessera::device
