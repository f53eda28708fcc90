// SPDX-License-Identifier: Apache-2.0
// Makes every NVML call fail in every way, on every GPU, at the start and later. The other GPUs
// must stay allocatable, and all GPUs must be healthy again after the fault.
#include <gtest/gtest.h>

#include "src/gpu/testing/inventory_fixture.h"

namespace tessera::gpu {
namespace {

using std::chrono::seconds;
using testing::FakeDriver;
using testing::Fault;
using testing::InventoryFixture;

constexpr int kGpus = 4;

// Calls about one GPU. If such a call fails, the GPU cannot be offered.
constexpr NvmlCall kIdentityCalls[] = {NvmlCall::kHandleByIndex, NvmlCall::kUuid,
                                       NvmlCall::kMinorNumber};
// Calls that describe one GPU; an unsupported call is not a failure.
constexpr NvmlCall kDescriptionCalls[] = {NvmlCall::kName,           NvmlCall::kPciInfo,
                                          NvmlCall::kMemoryInfo,     NvmlCall::kSupportedEvents,
                                          NvmlCall::kRegisterEvents, NvmlCall::kComputeCapability};
// Calls whose failure makes no GPU unavailable.
constexpr NvmlCall kHarmlessCalls[] = {NvmlCall::kRecoveryAction, NvmlCall::kCommonAncestor,
                                       NvmlCall::kNvLinkState, NvmlCall::kNvLinkRemoteType,
                                       NvmlCall::kNvLinkRemotePciInfo};
constexpr NvmlCall kHarmlessNodeCalls[] = {NvmlCall::kDriverVersion, NvmlCall::kCudaVersion,
                                           NvmlCall::kEventSetCreate, NvmlCall::kEventSetWait};

template <typename... Lists>
std::vector<NvmlCall> AllOf(const Lists&... lists) {
  std::vector<NvmlCall> calls;
  (calls.insert(calls.end(), std::begin(lists), std::end(lists)), ...);
  return calls;
}

std::vector<NvmlCall> EveryCall() {
  std::vector<NvmlCall> calls;
  // Calls after this one are made only for metrics.
  constexpr int kLast = static_cast<int>(NvmlCall::kFabricInfo);
  for (int call = 0; call <= kLast; ++call) calls.push_back(static_cast<NvmlCall>(call));
  return calls;
}

std::string NameOf(const ::testing::TestParamInfo<NvmlCall>& info) {
  return std::string(NvmlCallName(info.param));
}

const std::pair<const char*, Fault> kFaults[] = {
    {"unknown error", {Status(Code::kUnknown, "unknown error")}},
    {"GPU is lost", {Status(Code::kDataLoss, "GPU is lost")}},
    {"uninitialized", {Status(Code::kFailedPrecondition, "NVML is not initialized")}},
    {"not supported", {Status(Code::kUnimplemented, "not supported")}},
    {"no permission", {Status(Code::kPermissionDenied, "no permission")}},
    {"invalid argument", {Status(Code::kInvalidArgument, "invalid argument")}},
    {"timeout", {Status(Code::kDeadlineExceeded, "timeout")}},
    {"out of memory", {Status(Code::kResourceExhausted, "out of memory")}},
    {"hang", {}},
};

void ExpectOthersHealthy(const InventoryFixture& f, int unhealthy) {
  ASSERT_FALSE(f.snapshots.empty());
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    if (gpu == unhealthy) continue;
    EXPECT_EQ(f.ReasonOf(gpu), "") << "GPU " << gpu;
  }
  // The faulty GPU is listed, or counted.
  EXPECT_EQ(f.node().gpus.size() + f.node().unidentified, static_cast<size_t>(kGpus));
}

void ExpectAllHealthyAfterTheFault(InventoryFixture* f) {
  f->driver().faults.clear();
  f->caller.Release();
  f->Advance(seconds(120));
  EXPECT_EQ(f->node().healthy_count(), static_cast<size_t>(kGpus));
  EXPECT_EQ(f->node().gpus.size(), static_cast<size_t>(kGpus));
  EXPECT_EQ(f->node().unidentified, 0);
  EXPECT_EQ(f->node().problem, "");
  EXPECT_EQ(f->inventory->stats().calls_stuck, 0);
}

class FaultOnOneGpu : public ::testing::TestWithParam<NvmlCall> {};
class IdentityFault : public ::testing::TestWithParam<NvmlCall> {};
class FaultOnTheNode : public ::testing::TestWithParam<NvmlCall> {};
class HarmlessFault : public ::testing::TestWithParam<NvmlCall> {};

TEST_P(FaultOnOneGpu, FromTheStartTheOtherGpusAreAllocatable) {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    for (const auto& [name, fault] : kFaults) {
      SCOPED_TRACE(fmt::format("{} on GPU {}: {}", NvmlCallName(GetParam()), gpu, name));
      InventoryFixture f(FakeDriver::WithGpus(kGpus));
      f.driver().faults[{GetParam(), gpu}] = fault;
      f.Start();
      f.Advance(seconds(1));
      ExpectOthersHealthy(f, gpu);
      f.Advance(seconds(100));
      ExpectOthersHealthy(f, gpu);
      ExpectAllHealthyAfterTheFault(&f);
    }
  }
}

TEST_P(FaultOnOneGpu, LaterTheOtherGpusStayAllocatable) {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    for (const auto& [name, fault] : kFaults) {
      SCOPED_TRACE(fmt::format("{} on GPU {}: {}", NvmlCallName(GetParam()), gpu, name));
      InventoryFixture f(FakeDriver::WithGpus(kGpus));
      f.Start();
      f.driver().faults[{GetParam(), gpu}] = fault;
      // The session may be reopened in between; the other GPUs must stay unaffected throughout.
      const size_t before = f.snapshots.size();
      f.Advance(seconds(100));
      for (size_t i = before; i < f.snapshots.size(); ++i) {
        for (const device::Gpu& other : f.snapshots[i]->gpus) {
          if (other.uuid == f.UuidOf(gpu)) continue;
          EXPECT_EQ(other.health.reason, "");
        }
      }
      ExpectOthersHealthy(f, gpu);
      ExpectAllHealthyAfterTheFault(&f);
    }
  }
}

TEST_P(FaultOnTheNode, IsReportedAndRecoveredFrom) {
  for (const auto& [name, fault] : kFaults) {
    for (const bool from_start : {true, false}) {
      SCOPED_TRACE(fmt::format("{}: {}{}", NvmlCallName(GetParam()), name,
                               from_start ? " from the start" : " later"));
      InventoryFixture f(FakeDriver::WithGpus(kGpus));
      if (from_start) f.driver().faults[{GetParam(), -1}] = fault;
      f.Start();
      f.driver().faults[{GetParam(), -1}] = fault;
      f.Advance(seconds(100));
      ASSERT_FALSE(f.snapshots.empty());
      const bool reported = f.node().healthy_count() == static_cast<size_t>(kGpus) ||
                            !f.node().problem.empty() || f.node().unidentified > 0 ||
                            f.node().healthy_count() < f.node().gpus.size();
      EXPECT_TRUE(reported);
      ExpectAllHealthyAfterTheFault(&f);
    }
  }
}

TEST_P(IdentityFault, MakesTheGpuUnhealthy) {
  for (const auto& [name, fault] : kFaults) {
    SCOPED_TRACE(fmt::format("{}: {}", NvmlCallName(GetParam()), name));
    InventoryFixture f(FakeDriver::WithGpus(kGpus));
    f.driver().faults[{GetParam(), 1}] = fault;
    f.Start();
    f.Advance(seconds(10));
    EXPECT_NE(f.ReasonOf(1), "");
    EXPECT_EQ(f.node().healthy_count(), static_cast<size_t>(kGpus - 1));
  }
}

// Failures of calls that say nothing about a GPU never make it unavailable.
TEST_P(HarmlessFault, MakesNoGpuUnavailable) {
  for (const auto& [name, fault] : kFaults) {
    if (fault.status.ok()) continue;  // a hang in Init's session affects the whole driver
    SCOPED_TRACE(fmt::format("{}: {}", NvmlCallName(GetParam()), name));
    InventoryFixture f(FakeDriver::WithGpus(kGpus));
    f.driver().faults[{GetParam(), -1}] = fault;
    f.Start();
    f.Advance(seconds(100));
    EXPECT_EQ(f.node().healthy_count(), static_cast<size_t>(kGpus));
  }
}

using ::testing::ValuesIn;
INSTANTIATE_TEST_SUITE_P(Calls, FaultOnOneGpu,
                         ValuesIn(AllOf(kIdentityCalls, kDescriptionCalls, kHarmlessCalls)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Calls, IdentityFault, ValuesIn(kIdentityCalls), NameOf);
INSTANTIATE_TEST_SUITE_P(Calls, FaultOnTheNode, ValuesIn(EveryCall()), NameOf);
INSTANTIATE_TEST_SUITE_P(Calls, HarmlessFault, ValuesIn(AllOf(kHarmlessCalls, kHarmlessNodeCalls)),
                         NameOf);

}  // namespace
}  // namespace tessera::gpu
