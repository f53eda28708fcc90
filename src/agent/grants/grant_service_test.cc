// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_service.h"

#include <gtest/gtest.h>

#include <optional>

#include "src/agent/kubelet/plugin_answers.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

constexpr const char* kWhole = "nvidia.com/gpu";

// A kubelet that can delay its answers.
class SlowKubelet : public PodResources {
 public:
  void List(Done done) override {
    ++calls;
    if (hold) {
      waiting_calls.push_back(std::move(done));
    } else {
      runner->Post([this, done = std::move(done)] { done(answer); });
    }
  }
  void Admit(const std::string& name, std::vector<std::string> ids) {
    answer->pods.emplace_back("default", name);
    answer->held_devices.push_back({"default", name, "main", kWhole, std::move(ids)});
  }
  void End() { answer = PodDevices(); }

  FakeTaskRunner* runner = nullptr;
  Result<PodDevices> answer = PodDevices();
  bool hold = false;
  std::vector<Done> waiting_calls;
  int calls = 0;
};

class FakeLog : public grant::RecordLog {
 public:
  Status Append(std::string_view) override { return status; }
  Status Replace(const std::vector<std::string>&) override { return status; }
  Status status;
};

class GrantServiceTest : public ::testing::Test {
 protected:
  GrantServiceTest() {
    kubelet_.runner = &runner_;
    SetHealth(0, device::Health::Healthy());
    service_.emplace(&runner_,
                     GrantOptions{.description = {.driver_root = "/drv",
                                                  .dev_root = "/drv/dev",
                                                  .dev_root_ctr_path = "/nonexistent",
                                                  .version = "1"},
                                  .metrics = &metrics_},
                     &devices_, &signer_, &ledger_, &kubelet_, nullptr, nullptr);
  }

  void SetHealth(size_t index, device::Health health) {
    auto inventory = std::make_shared<device::NodeInventory>();
    for (int i = 0; i < 4; ++i) {
      inventory->gpus.push_back({.uuid = "GPU-" + std::to_string(i), .index = i, .minor = i});
    }
    inventory->links = device::LinkMatrix(4);
    inventory->gpus[index].health = std::move(health);
    devices_.Set(std::make_shared<DeviceSet>(inventory));
  }

  std::string Allocate(const std::vector<std::string>& ids) {
    return signer_.Sign(kWhole, ids, runner_.clock().WallNow());
  }

  Result<grant::Grant> RequestGrant(const std::string& pod, const std::string& token,
                                    const std::string& container = "main", const Uid& uid = Uid()) {
    grant::GrantRequest request{.pod_uid = uid.empty() ? Uid("uid-" + pod) : uid,
                                .pod_namespace = "default",
                                .pod_name = pod,
                                .container = container,
                                .tokens = {{grant::TokenVariable(kWhole), token}}};
    auto answer = std::make_shared<std::optional<Result<grant::Grant>>>();
    service_->Handle(request, [answer](Result<grant::Grant> reply) { *answer = std::move(reply); });
    runner_.RunUntilIdle();
    last_answer_ = answer;
    return answer->has_value() ? **answer : Result<grant::Grant>(Status(Code::kAborted, "waits"));
  }

  FakeTaskRunner runner_;
  DeviceSetHolder devices_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  FakeLog log_;
  size_t skipped_ = 0;
  GrantLedger ledger_{&log_, {}, &skipped_};
  SlowKubelet kubelet_;
  GrantMetrics metrics_;
  std::optional<GrantService> service_;
  std::shared_ptr<std::optional<Result<grant::Grant>>> last_answer_;
};

TEST_F(GrantServiceTest, GivesTheGpusOfTheToken) {
  const auto grant = RequestGrant("a", Allocate({"GPU-2", "GPU-1"}));
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  ASSERT_EQ(grant->devices.size(), 2u);
  EXPECT_EQ(grant->devices[0].uuid, "GPU-2");
  EXPECT_EQ(grant->devices[0].minor, 2);
  EXPECT_EQ(grant->devices[0].path, "/dev/nvidia2");
  EXPECT_EQ(grant->devices[0].host_path, "/drv/dev/dev/nvidia2");
  EXPECT_EQ(grant->env.at("NVIDIA_VISIBLE_DEVICES"), "GPU-2,GPU-1");
  EXPECT_EQ(grant->driver_root, "/drv");
  EXPECT_EQ(kubelet_.calls, 0) << "only a conflict needs the kubelet";
}

TEST_F(GrantServiceTest, RepeatsTheGrantOfARepeatedRequest) {
  const std::string token = Allocate({"GPU-1"});
  const auto first = RequestGrant("a", token);
  const auto second = RequestGrant("a", token);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
}

TEST_F(GrantServiceTest, ForgedTokenIsDenied) {
  const std::string forged =
      grant::TokenSigner(std::string(32, 'x')).Sign(kWhole, {"GPU-1"}, runner_.clock().WallNow());
  EXPECT_EQ(RequestGrant("a", forged).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(RequestGrant("a", "v1:00:00:GPU-1").status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(ledger_.entries().empty());
}

TEST_F(GrantServiceTest, ReplayedTokenIsDenied) {
  const std::string token = Allocate({"GPU-1"});
  ASSERT_TRUE(RequestGrant("a", token).ok());
  EXPECT_EQ(RequestGrant("b", token).status().code(), Code::kPermissionDenied);
  EXPECT_EQ(RequestGrant("a", token, "sidecar").status().code(), Code::kPermissionDenied);
  EXPECT_EQ(RequestGrant("a", token, "main", Uid("another-uid")).status().code(),
            Code::kPermissionDenied);
}

TEST_F(GrantServiceTest, VariableThatAllocateDidNotReturnIsRejected) {
  grant::GrantRequest request{.pod_uid = Uid("u"),
                              .pod_namespace = "n",
                              .pod_name = "p",
                              .container = "c",
                              .tokens = {{"TESSERA_GRANT_ACME_COM_GPU", Allocate({"GPU-1"})}}};
  Status status;
  service_->Handle(request, [&](const Result<grant::Grant>& reply) { status = reply.status(); });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  request.tokens = {{grant::TokenVariable(kWhole), Allocate({"GPU-1"})},
                    {grant::TokenVariable(kWhole), Allocate({"GPU-2"})}};
  service_->Handle(request, [&](const Result<grant::Grant>& reply) { status = reply.status(); });
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

TEST_F(GrantServiceTest, RejectsAnUnhealthyGpuAndRecordsNoHolder) {
  SetHealth(1, device::Health::Unhealthy("XID 79: GPU has fallen off the bus"));
  const auto grant = RequestGrant("a", Allocate({"GPU-0", "GPU-1"}));
  EXPECT_EQ(grant.status().code(), Code::kUnavailable);
  EXPECT_NE(grant.status().message().find("XID 79"), std::string::npos);
  EXPECT_TRUE(ledger_.entries().empty());
}

TEST_F(GrantServiceTest, GpuThatIsGoneIsRejected) {
  EXPECT_EQ(RequestGrant("a", Allocate({"GPU-9"})).status().code(), Code::kNotFound);
}

TEST_F(GrantServiceTest, GpuOfAPodThatLivesIsRejectedWithItsName) {
  ASSERT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
  kubelet_.Admit("a", {"GPU-1"});
  kubelet_.Admit("b", {"GPU-1"});
  const auto grant = RequestGrant("b", Allocate({"GPU-1"}));
  EXPECT_EQ(grant.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(grant.status().message().find("default/a"), std::string::npos);
}

TEST_F(GrantServiceTest, GpuOfAPodThatIsGoneIsGrantedToAnotherPod) {
  ASSERT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
  kubelet_.Admit("b", {"GPU-1"});
  EXPECT_TRUE(RequestGrant("b", Allocate({"GPU-1"})).ok());
  EXPECT_EQ(ledger_.entries().size(), 1u);
  EXPECT_EQ(ledger_.spent_count(), 1u);
}

TEST_F(GrantServiceTest, ARecreatedPodGetsTheGpuOfItsPredecessor) {
  ASSERT_TRUE(RequestGrant("web-0", Allocate({"GPU-1"})).ok());
  kubelet_.Admit("web-0", {"GPU-1"});
  EXPECT_TRUE(RequestGrant("web-0", Allocate({"GPU-1"}), "main", Uid("uid-of-the-second")).ok());
}

TEST_F(GrantServiceTest, ANamesakeOnAnotherGpuDoesNotHoldTheGpu) {
  ASSERT_TRUE(RequestGrant("web-0", Allocate({"GPU-1"})).ok());
  kubelet_.Admit("web-0", {"GPU-2"});
  kubelet_.Admit("b", {"GPU-1"});
  EXPECT_TRUE(RequestGrant("b", Allocate({"GPU-1"})).ok());
}

TEST_F(GrantServiceTest, ANamesakeWithTheIdOfAnotherResourceDoesNotHoldTheGpu) {
  ASSERT_TRUE(RequestGrant("web-0", Allocate({"GPU-1"})).ok());
  kubelet_.answer->pods.emplace_back("default", "web-0");
  kubelet_.answer->held_devices.push_back({"default", "web-0", "main", "acme.com/gpu", {"GPU-1"}});
  kubelet_.Admit("b", {"GPU-1"});
  EXPECT_TRUE(RequestGrant("b", Allocate({"GPU-1"})).ok());
}

TEST_F(GrantServiceTest, DoesNotTrustAKubeletThatListsNoPod) {
  ASSERT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
  EXPECT_EQ(RequestGrant("b", Allocate({"GPU-1"})).status().code(), Code::kUnavailable);
  EXPECT_EQ(ledger_.entries().size(), 1u);
}

TEST_F(GrantServiceTest, RejectsAHeldGpuWhileTheKubeletIsUnreachable) {
  ASSERT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
  kubelet_.answer = Status(Code::kUnavailable, "connection refused");
  const auto grant = RequestGrant("b", Allocate({"GPU-1"}));
  EXPECT_EQ(grant.status().code(), Code::kUnavailable);
  EXPECT_NE(grant.status().message().find("connection refused"), std::string::npos);
}

TEST_F(GrantServiceTest, RejectsAGrantThatAFullDiskCannotRecord) {
  log_.status = Status(Code::kResourceExhausted, "No space left on device");
  EXPECT_EQ(RequestGrant("a", Allocate({"GPU-1"})).status().code(), Code::kResourceExhausted);
  log_.status = Status::Ok();
  EXPECT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
}

TEST_F(GrantServiceTest, RequestsThatNeedTheKubeletWaitForAFreshList) {
  ASSERT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
  kubelet_.hold = true;
  (void)RequestGrant("b", Allocate({"GPU-1"}));
  const auto b = last_answer_;
  (void)RequestGrant("c", Allocate({"GPU-1"}));
  const auto c = last_answer_;
  EXPECT_EQ(kubelet_.calls, 1);
  PodDevices before;
  before.pods = {{"default", "b"}};
  std::exchange(kubelet_.waiting_calls, {})[0](before);
  ASSERT_TRUE(b->has_value());
  EXPECT_TRUE((*b)->ok());
  EXPECT_FALSE(c->has_value()) << "this list began before c requested its grant";
  EXPECT_EQ(kubelet_.calls, 2);
  PodDevices after;
  after.pods = {{"default", "b"}, {"default", "c"}};
  after.held_devices = {{"default", "b", "main", kWhole, {"GPU-1"}}};
  std::exchange(kubelet_.waiting_calls, {})[0](after);
  ASSERT_TRUE(c->has_value());
  EXPECT_EQ((*c)->status().code(), Code::kFailedPrecondition);
}

TEST_F(GrantServiceTest, TheGpusOfAPodAreReleasedAfterTwoListsWithoutIt) {
  ASSERT_TRUE(RequestGrant("a", Allocate({"GPU-1"})).ok());
  kubelet_.Admit("a", {"GPU-1"});
  runner_.AdvanceTimeAndRun(10 * EndedPods::kPruneInterval);
  EXPECT_EQ(ledger_.entries().size(), 1u);
  kubelet_.End();
  runner_.AdvanceTimeAndRun(EndedPods::kPruneInterval);
  EXPECT_EQ(ledger_.entries().size(), 1u);
  runner_.AdvanceTimeAndRun(EndedPods::kPruneInterval);
  EXPECT_EQ(ledger_.entries().size(), 0u);
}

TEST_F(GrantServiceTest, DoesNotCallTheKubeletWithoutGrants) {
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(kubelet_.calls, 0);
}

}  // namespace
}  // namespace tessera::agent
