// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/container_limits.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "src/agent/grants/testing/grants_fixture.h"
#include "src/base/file.h"
#include "src/limiter/limits_file.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;

constexpr char kUuid[] = "GPU-00112233-4455-6677-8899-aabbccddeeff";
constexpr int64_t kGiB = 1ll << 30;

ContainerRef Holder(const std::string& uid, const std::string& container) {
  return {Uid(uid), "default", "pod-" + uid, container};
}

std::vector<grant::GrantedDevice> Device(int64_t bytes) {
  return {{.uuid = kUuid, .milli = 300, .bytes = bytes}};
}

uint64_t MemoryIn(const std::string& dir) {
  limiter::LimitsFile file;
  EXPECT_EQ(file.Open((dir + "/limits").c_str()), 0);
  return file.limits().gpu_count == 1 ? file.limits().gpus[0].memory.load() : 0;
}

class ContainerLimitsTest : public ::testing::Test {
 protected:
  TempDir temp_;
  const std::string dir_ = temp_.path() + "/limits";
  ContainerLimits limits_{dir_};
};

TEST_F(ContainerLimitsTest, WritesTheLimitsOfAContainer) {
  const auto dir = limits_.Write(Holder("u1", "main"), Device(5 * kGiB));
  ASSERT_TRUE(dir.ok()) << dir.status().ToString();
  EXPECT_EQ(*dir, dir_ + "/u1/main");
  EXPECT_EQ(MemoryIn(*dir), uint64_t(5 * kGiB));
  struct stat info;
  ASSERT_EQ(::stat(dir_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u) << "no user of the host but root reads or changes it";
}

TEST_F(ContainerLimitsTest, AChangedLimitIsWrittenToTheFileThatTheContainerHasMapped) {
  const std::string dir = limits_.Write(Holder("u1", "main"), Device(5 * kGiB)).value();
  limiter::LimitsFile mapped;
  ASSERT_EQ(mapped.Open((dir + "/limits").c_str()), 0);
  ASSERT_TRUE(limits_.Write(Holder("u1", "main"), Device(3 * kGiB)).ok());
  EXPECT_EQ(mapped.limits().gpus[0].memory, uint64_t(3 * kGiB));
}

TEST_F(ContainerLimitsTest, AContainerWithWholeGpusIsNotLimited) {
  EXPECT_EQ(limits_.Write(Holder("u1", "main"), Device(0)).value(), "");
  EXPECT_FALSE(PathExists(dir_));
}

TEST_F(ContainerLimitsTest, RemovesTheLimitsOfReleasedContainers) {
  const std::string main_dir = limits_.Write(Holder("u1", "main"), Device(kGiB)).value();
  const std::string side = limits_.Write(Holder("u1", "side"), Device(kGiB)).value();
  const std::string gone = limits_.Write(Holder("u2", "main"), Device(kGiB)).value();
  limits_.RemoveExcept({{{Uid("u1"), "main"}, {}}});
  EXPECT_TRUE(PathExists(main_dir));
  EXPECT_FALSE(PathExists(side));
  EXPECT_FALSE(PathExists(dir_ + "/u2"));
  ContainerLimits none(temp_.path() + "/none");
  none.RemoveExcept({});
  EXPECT_FALSE(PathExists(temp_.path() + "/none"));
}

TEST_F(ContainerLimitsTest, RejectsNamesThatLeaveTheDirectory) {
  for (const char* name : {"", "..", ".", "a/b", "../x", ".hidden"}) {
    EXPECT_EQ(limits_.Write(Holder(name, "main"), Device(kGiB)).status().code(),
              Code::kInvalidArgument)
        << name;
    EXPECT_EQ(limits_.Write(Holder("u1", name), Device(kGiB)).status().code(),
              Code::kInvalidArgument)
        << name;
  }
}

TEST_F(ContainerLimitsTest, AFileOfAnotherVersionNamesItsPathAndTheRemedy) {
  const std::string dir = limits_.Write(Holder("u1", "main"), Device(kGiB)).value();
  ASSERT_TRUE(WriteFileAtomically(dir + "/limits", "old", 0644).ok());
  const Status status = limits_.Write(Holder("u1", "main"), Device(kGiB)).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_NE(status.message().find(dir + "/limits was written by another version"),
            std::string::npos);
}

// One GPU, with a UUID as drivers give it.
class LimitedGrantsTest : public GrantsFixture {
 protected:
  LimitedGrantsTest() {
    auto inventory = std::make_shared<device::NodeInventory>();
    inventory->gpus.push_back({.uuid = kUuid, .index = 0, .minor = 0, .memory = GiB(16)});
    inventory->links = device::LinkMatrix(1);
    devices_.Set(std::make_shared<const DeviceSet>(inventory));
    limits_dir_ = temp_.path() + "/limits";
    Restart();
  }
  void AssignShare(const std::string& name) {
    Assign(FakeApiPods::Make(name, {{"main", {{kMem, "6"}}}}), {{"main", {kUuid}}});
  }
  void SetLimit(const std::string& pod, const std::string& text,
                std::string_view annotation = names::kAnnotationMemoryLimit) {
    PodInfo now = *pods_.pods().at(Uid("uid-" + pod));
    now.annotations[std::string(annotation)] = text;
    pods_.Set(std::move(now));
  }

  // Pod "a" starts: container "main" with a share of compute, "side" with a share of memory alone.
  void GrantComputeAndMemoryAlone() {
    pods_.Sync();
    Assign(FakeApiPods::Make("a",
                             {{"main", {{kCore, "30"}, {kBlocks, "20"}}}, {"side", {{kMem, "2"}}}}),
           {{"main", {kUuid}}, {"side", {kUuid}}});
    ASSERT_TRUE(RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 30)}).ok());
    ASSERT_TRUE(RequestGrant("a", {Token(kMem, 2)}, "side").ok());
  }

  TempDir temp_;
};

TEST_F(LimitedGrantsTest, AShareIsGrantedWithLimitsThatAreRemovedWithItsPod) {
  AssignShare("a");
  const auto token = Token(kMem, 6);
  const auto grant = RequestGrant("a", {token});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_EQ(grant->limits_dir, limits_dir_ + "/uid-a/main");
  EXPECT_EQ(MemoryIn(grant->limits_dir), uint64_t(6 * kGiB));
  Restart();
  EXPECT_EQ(RequestGrant("a", {token})->limits_dir, grant->limits_dir)
      << "the same answer, also after a crash";
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(std::chrono::minutes(5));
  ASSERT_TRUE(ledger_->entries().empty());
  EXPECT_FALSE(PathExists(grant->limits_dir));
}

TEST_F(LimitedGrantsTest, AWholeGpuIsNotLimited) {
  Assign(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}}), {{"main", {kUuid}}});
  EXPECT_EQ(RequestGrant("a", {Token(kGpu, 1)})->limits_dir, "");
}

TEST_F(LimitedGrantsTest, TheNodesLabelSwitchesTheLimitsOfGpushareOff) {
  service_->SetIsolationDisabled(true);
  AssignShare("a");
  EXPECT_EQ(RequestGrant("a", {Token(kMem, 6)})->limits_dir, "");
}

TEST_F(LimitedGrantsTest, AnAnnotationLowersTheLimitOfAContainerThatRuns) {
  pods_.Sync();
  AssignShare("a");
  const std::string dir = RequestGrant("a", {Token(kMem, 6)})->limits_dir;
  SetLimit("a", "4Gi");
  EXPECT_EQ(MemoryIn(dir), uint64_t(4 * kGiB));
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitChanged);
  EXPECT_EQ(pods_.events[0].second.message,
            std::string("container main may use 4096 MiB of ") + kUuid);
  SetLimit("a", "1Gi,main=2Gi");
  EXPECT_EQ(MemoryIn(dir), uint64_t(2 * kGiB));
  Restart();
  EXPECT_EQ(MemoryIn(dir), uint64_t(2 * kGiB));
  SetLimit("a", "");
  EXPECT_EQ(MemoryIn(dir), uint64_t(6 * kGiB)) << "without the annotation the grant holds";
}

TEST_F(LimitedGrantsTest, AMemoryAnnotationAndARestartDoNotChangeTheComputeLimit) {
  pods_.Sync();
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}), {{"main", {kUuid}}});
  const auto grant = RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 30)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  limiter::LimitsFile file;
  ASSERT_EQ(file.Open((grant->limits_dir + "/limits").c_str()), 0);
  const limiter::ComputeLimit& compute = file.limits().compute[0];
  const auto share = static_cast<uint32_t>(0.3 * limiter::kOne);
  EXPECT_EQ(compute.floor, share);
  EXPECT_NE(compute.epoch, 0u);
  SetLimit("a", "4Gi");
  EXPECT_EQ(compute.floor, share);
  EXPECT_NE(compute.epoch, 0u) << "0 is not limited";
  Restart();
  EXPECT_EQ(compute.floor, share);
  EXPECT_NE(compute.epoch, 0u);
}

TEST_F(LimitedGrantsTest, ComputeIsLoweredWhileAPodRuns) {
  pods_.Sync();
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}), {{"main", {kUuid}}});
  const auto grant = RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 30)});
  limiter::LimitsFile file;
  ASSERT_EQ(file.Open((grant->limits_dir + "/limits").c_str()), 0);
  const auto& floor = file.limits().compute[0].floor;
  SetLimit("a", "main=10", names::kAnnotationComputeLimit);
  EXPECT_EQ(floor, static_cast<uint32_t>(0.1 * limiter::kOne));
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.message,
            std::string("container main may use 5120 MiB and 10 hundredths of ") + kUuid);
  SetLimit("a", "50", names::kAnnotationComputeLimit);
  EXPECT_EQ(floor, static_cast<uint32_t>(0.1 * limiter::kOne)) << "a rejected text changes nothing";
  const auto in_force = service_->PodsWithAcceptedLimits().at(Uid("uid-a"));
  EXPECT_EQ(in_force->annotations.find(names::kAnnotationComputeLimit)->second, "main=10");
  EXPECT_EQ(pods_.events[1].second.reason, names::kReasonLimitRejected);
  EXPECT_NE(pods_.events[1].second.message.find("was granted 30 hundredths"), std::string::npos)
      << pods_.events[1].second.message;
  SetLimit("a", "", names::kAnnotationComputeLimit);
  EXPECT_EQ(floor, static_cast<uint32_t>(0.3 * limiter::kOne));
}

TEST_F(LimitedGrantsTest, EventsNameElasticLimitsAndClasses) {
  pods_.Sync();
  PodInfo pod = FakeApiPods::Make("a", {{"main", {{kCore, "20"}, {kBlocks, "20"}}}});
  pod.request->elastic_limit = MilliGpu(1000);
  Assign(pod, {{"main", {kUuid}}});
  ASSERT_TRUE(RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 20)}).ok());
  SetLimit("a", "low", names::kAnnotationComputeClass);
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.message,
            std::string("container main may use 5120 MiB and 20 hundredths (up to 100 while others "
                        "leave it idle) of ") +
                kUuid + ", in class low");
  SetLimit("a", "bogus", names::kAnnotationComputeClass);
  SetLimit("a", "worse", names::kAnnotationComputeClass);
  ASSERT_EQ(pods_.events.size(), 3u);
  EXPECT_EQ(pods_.events[2].second.reason, names::kReasonLimitRejected)
      << "no change if one invalid class replaces another";
}

TEST_F(LimitedGrantsTest, AChangeWhileNoAgentRunsIsRecordedAtTheNextStart) {
  pods_.Sync();
  AssignShare("a");
  const std::string dir = RequestGrant("a", {Token(kMem, 6)})->limits_dir;
  const auto restart = [&] {
    Restart();
    pods_.Set(PodInfo(*pods_.pods().at(Uid("uid-a"))));
  };
  restart();
  EXPECT_TRUE(pods_.events.empty()) << "nothing has changed";
  limiter::LimitsFile file;
  ASSERT_EQ(file.Open((dir + "/limits").c_str()), 0);
  ASSERT_EQ(file.SetMemory(kUuid, uint64_t(2 * kGiB)), 0);
  restart();
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.message,
            std::string("container main may use 6144 MiB of ") + kUuid);
}

TEST_F(LimitedGrantsTest, ALimitThatIsRejectedAtEachStartIsReportedOnce) {
  pods_.Sync();
  AssignShare("a");
  ASSERT_TRUE(RequestGrant("a", {Token(kMem, 6)}).ok());
  PodInfo pod(*pods_.pods().at(Uid("uid-a")));
  pod.annotations[std::string(names::kAnnotationMemoryLimit)] = "much\nmemory";
  for (int start = 0; start < 2; ++start) {
    pods_.Unsync();
    Restart();
    pods_.Set(pod);
    pods_.Sync();
    ASSERT_EQ(pods_.events.size(), 1u);
  }
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitRejected);
}

TEST_F(LimitedGrantsTest, AChangeOfComputeWhileNoAgentRunsIsRecordedAtTheNextStart) {
  pods_.Sync();
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}), {{"main", {kUuid}}});
  ASSERT_TRUE(RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 30)}).ok());
  SetLimit("a", "20", names::kAnnotationComputeLimit);
  pods_.events.clear();
  PodInfo pod(*pods_.pods().at(Uid("uid-a")));
  pod.annotations[std::string(names::kAnnotationComputeLimit)] = "10";
  for (int start = 0; start < 2; ++start) {
    Restart();
    pods_.Set(pod);
    ASSERT_EQ(pods_.events.size(), 1u);
  }
  EXPECT_NE(pods_.events[0].second.message.find("10 hundredths"), std::string::npos)
      << pods_.events[0].second.message;
}

TEST_F(LimitedGrantsTest, AComputeLimitForAGpuSkipsContainersThatRequestOnlyMemory) {
  GrantComputeAndMemoryAlone();
  SetLimit("a", std::string(kUuid) + "=10", names::kAnnotationComputeLimit);
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitChanged)
      << pods_.events[0].second.message;
}

TEST_F(LimitedGrantsTest, AnEventNamesOnlyContainersWhoseLimitChanged) {
  GrantComputeAndMemoryAlone();
  PodInfo pod = *pods_.pods().at(Uid("uid-a"));
  pod.annotations[std::string(names::kAnnotationMemoryLimit)] = "side=1Gi";
  pod.annotations[std::string(names::kAnnotationComputeLimit)] = "nonsense";
  pods_.Set(std::move(pod));
  ASSERT_EQ(pods_.events.size(), 2u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitRejected);
  EXPECT_EQ(pods_.events[1].second.message,
            std::string("container side may use 1024 MiB of ") + kUuid);
  SetLimit("a", "side=1024Mi");
  EXPECT_EQ(pods_.events.back().second.reason, names::kReasonLimitRejected)
      << "another text with the same limits: " << pods_.events.back().second.message;
}

TEST_F(LimitedGrantsTest, TheEventForAMemoryShareNamesItsComputeClass) {
  pods_.Sync();
  AssignShare("a");
  ASSERT_TRUE(RequestGrant("a", {Token(kMem, 6)}).ok());
  SetLimit("a", "low", names::kAnnotationComputeClass);
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_NE(pods_.events[0].second.message.find("MiB of " + std::string(kUuid) + ", in class low"),
            std::string::npos)
      << pods_.events[0].second.message;
}

TEST_F(LimitedGrantsTest, AnUnknownComputeClassIsReported) {
  pods_.Sync();
  AssignShare("a");
  SetLimit("a", "low", names::kAnnotationComputeClass);
  EXPECT_TRUE(pods_.events.empty());
  SetLimit("a", "urgent", names::kAnnotationComputeClass);
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(
      pods_.events[0].second.message,
      "annotation tessera.dev/compute-class: \"urgent\" is none of high, normal, low: the pod "
      "stays in class low");
}

TEST_F(LimitedGrantsTest, AComputeLimitIsRejectedForAContainerWithoutAComputeShare) {
  pods_.Sync();
  AssignShare("a");
  ASSERT_TRUE(RequestGrant("a", {Token(kMem, 6)}).ok());
  SetLimit("a", "50", names::kAnnotationComputeLimit);
  ASSERT_FALSE(pods_.events.empty());
  EXPECT_NE(pods_.events[0].second.message.find("container main has no share of the compute of"),
            std::string::npos)
      << pods_.events[0].second.message;
}

TEST_F(LimitedGrantsTest, ARejectedLimitChangesNothing) {
  pods_.Sync();
  AssignShare("a");
  const auto token = Token(kMem, 6);
  const std::string dir = RequestGrant("a", {token})->limits_dir;
  SetLimit("a", "4Gi");
  for (const auto& [text, reason] : std::initializer_list<std::pair<const char*, const char*>>{
           {"7", "want at least 2Mi"},
           {"nonsense", "nonsense"},
           {"0", "want at least 2Mi"},
           {"7Gi", "container main was granted 6144 MiB of GPU-"},
           {"main=100Gi", "create the pod again with a larger request"},
           {"nosuch=1Gi", "the pod has no container \"nosuch\""},
           {"2Gi,nosuch=1Gi", "the pod has no container \"nosuch\""}}) {
    pods_.events.clear();
    SetLimit("a", text);
    EXPECT_EQ(MemoryIn(dir), uint64_t(4 * kGiB)) << text;
    ASSERT_EQ(pods_.events.size(), 1u) << text;
    EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitRejected) << text;
    EXPECT_NE(pods_.events[0].second.message.find(reason), std::string::npos)
        << pods_.events[0].second.message;
    EXPECT_NE(pods_.events[0].second.message.find("the limits stay as they are"),
              std::string::npos);
  }
  ASSERT_TRUE(RequestGrant("a", {token}).ok());
  EXPECT_EQ(MemoryIn(dir), uint64_t(4 * kGiB)) << "a container that starts again";
  Restart();
  pods_.Set(PodInfo(*pods_.pods().at(Uid("uid-a"))));
  EXPECT_EQ(MemoryIn(dir), uint64_t(4 * kGiB)) << "an agent that starts again";
  SetLimit("a", "worse");
  ASSERT_TRUE(RequestGrant("a", {token}).ok());
  EXPECT_EQ(MemoryIn(dir), uint64_t(4 * kGiB)) << "both start again";
  SetLimit("a", "");
  EXPECT_EQ(MemoryIn(dir), uint64_t(6 * kGiB));
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(std::chrono::minutes(5));
  EXPECT_FALSE(PathExists(limits_dir_ + "/uid-a"));
}

TEST_F(LimitedGrantsTest, ALimitThatIsSetBeforeTheGrantAppliesFromTheStart) {
  pods_.Sync();
  AssignShare("a");
  SetLimit("a", "3Gi");
  const auto token = Token(kMem, 6);
  const std::string dir = RequestGrant("a", {token})->limits_dir;
  EXPECT_EQ(MemoryIn(dir), uint64_t(3 * kGiB));
  ASSERT_TRUE(RequestGrant("a", {token}).ok());
  EXPECT_EQ(MemoryIn(dir), uint64_t(3 * kGiB)) << "a container that starts again";
  EXPECT_TRUE(pods_.events.empty());
  AssignShare("b");
  SetLimit("b", "7Gi");
  EXPECT_EQ(MemoryIn(RequestGrant("b", {Token(kMem, 6)})->limits_dir), uint64_t(6 * kGiB));
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitRejected);
}

TEST_F(LimitedGrantsTest, AContainerLowersItsLimitsByVariables) {
  pods_.Sync();
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}), {{"main", {kUuid}}});
  variables_ = {{"CUDA_DEVICE_MEMORY_LIMIT_0", "3g"},
                {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                {"CUDA_DEVICE_SM_LIMIT", "10"}};
  const auto grant = RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 30)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_FALSE(grant->env.contains("CUDA_DEVICE_ORDER"));
  limiter::LimitsFile file;
  ASSERT_EQ(file.Open((grant->limits_dir + "/limits").c_str()), 0);
  const auto& floor = file.limits().compute[0].floor;
  EXPECT_EQ(MemoryIn(grant->limits_dir), uint64_t(3 * kGiB));
  EXPECT_EQ(floor, static_cast<uint32_t>(0.1 * limiter::kOne));
  SetLimit("a", "4Gi");
  EXPECT_EQ(MemoryIn(grant->limits_dir), uint64_t(3 * kGiB)) << "the lowest limit counts";
  SetLimit("a", "1Gi");
  EXPECT_EQ(MemoryIn(grant->limits_dir), uint64_t(1 * kGiB));
  Restart();
  SetLimit("a", "");
  EXPECT_EQ(MemoryIn(grant->limits_dir), uint64_t(3 * kGiB)) << "they are in the journal";
  EXPECT_EQ(floor, static_cast<uint32_t>(0.1 * limiter::kOne));
}

TEST_F(LimitedGrantsTest, AVariableNeverRaisesALimitAndAnInvalidVariableIsReported) {
  pods_.Sync();
  AssignShare("a");
  variables_ = {{"CUDA_DEVICE_MEMORY_LIMIT", "100g"}};
  const auto grant = RequestGrant("a", {Token(kMem, 6)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_EQ(MemoryIn(grant->limits_dir), uint64_t(6 * kGiB));
  EXPECT_TRUE(pods_.events.empty());
  AssignShare("b");
  variables_ = {{"CUDA_DEVICE_MEMORY_LIMIT", "lots"}};
  ASSERT_TRUE(RequestGrant("b", {Token(kMem, 6)}).ok());
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitRejected);
  EXPECT_EQ(pods_.events[0].second.message,
            "container main: variable CUDA_DEVICE_MEMORY_LIMIT=lots: want bytes, or a number with "
            "k, m or g, such as 3g: the variable has no effect");
}

TEST_F(LimitedGrantsTest, ALimitOfAContainerThatIsNotLimitedIsReported) {
  limits_dir_.clear();
  Restart();
  pods_.Sync();
  AssignShare("a");
  ASSERT_TRUE(RequestGrant("a", {Token(kMem, 6)}).ok());
  SetLimit("a", "4Gi");
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimitRejected);
  EXPECT_EQ(pods_.events[0].second.message,
            "annotation tessera.dev/memory-limit: nothing limits container main: isolation was off "
            "on its node when it started (see tessera-agent --limits-dir and node label "
            "cgpu.disable.isolation), or its limits could not be written and --limits-fail-open "
            "has its namespace");
}

TEST_F(LimitedGrantsTest, WithoutALimitsDirNoContainerIsLimited) {
  limits_dir_ = "";
  Restart();
  AssignShare("a");
  EXPECT_EQ(RequestGrant("a", {Token(kMem, 6)})->limits_dir, "");
}

TEST_F(LimitedGrantsTest, WhereTheLimitsCannotBeWrittenNothingIsGranted) {
  ASSERT_TRUE(WriteFileAtomically(limits_dir_, "a file in its place", 0644).ok());
  AssignShare("a");
  const auto grant = RequestGrant("a", {Token(kMem, 6)});
  EXPECT_NE(grant.status().message().find(limits_dir_), std::string::npos)
      << grant.status().ToString();
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(LimitedGrantsTest, ContainersOfANamespaceThatFailsOpenStartWithoutLimits) {
  ASSERT_TRUE(WriteFileAtomically(limits_dir_, "a file in its place", 0644).ok());
  AssignShare("a");
  limits_fail_open_ = {"another"};
  Restart();
  EXPECT_FALSE(RequestGrant("a", {Token(kMem, 6)}).ok());
  EXPECT_TRUE(pods_.events.empty());
  limits_fail_open_ = {"default"};
  Restart();
  const auto grant = RequestGrant("a", {Token(kMem, 6)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_EQ(grant->limits_dir, "");
  ASSERT_EQ(pods_.events.size(), 1u);
  EXPECT_EQ(pods_.events[0].second.reason, names::kReasonLimiterBypassed);
  EXPECT_NE(pods_.events[0].second.message.find("container main starts without a limit"),
            std::string::npos);
}

TEST_F(LimitedGrantsTest, TheLimitsContainTheFailOpenFlag) {
  const auto fails_open = [&] {
    Restart();
    const auto grant = RequestGrant("a", {Token(kMem, 6)});
    limiter::LimitsFile file;
    EXPECT_EQ(file.Open((grant->limits_dir + "/limits").c_str()), 0);
    return file.limits().flags.load() == limiter::kFailOpen;
  };
  AssignShare("a");
  EXPECT_FALSE(fails_open());
  limits_fail_open_ = {"*"};
  EXPECT_TRUE(fails_open());
}

}  // namespace
}  // namespace tessera::agent
