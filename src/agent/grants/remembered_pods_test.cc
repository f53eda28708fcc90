// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/remembered_pods.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/agent/grants/grant_service.h"
#include "src/agent/grants/start_waits.h"
#include "src/agent/kubelet/testing/four_gpus.h"
#include "src/agent/pods/testing/fake_pods.h"

namespace tessera::agent {
namespace {

const std::string kMem(names::kResourceGpuMem);

// Keeps its records when the agent restarts.
struct Disk {
  std::vector<std::string> records;
  int replaced = 0;
  bool full = false;
};

class DiskLog : public grant::RecordLog {
 public:
  explicit DiskLog(Disk* disk) : disk_(disk) {}
  Status Append(std::string_view record) override {
    if (disk_->full) return Status(Code::kResourceExhausted, "No space left on device");
    disk_->records.emplace_back(record);
    return Status::Ok();
  }
  Status Replace(const std::vector<std::string>& all) override {
    if (disk_->full) return Status(Code::kResourceExhausted, "No space left on device");
    disk_->records = all;
    ++disk_->replaced;
    return Status::Ok();
  }

 private:
  Disk* const disk_;
};

class NoKubelet : public PodResources {
  void List(Done done) override { done(Status(Code::kUnavailable, "no kubelet")); }
};

// An agent's pods and grants, on a disk that survives the agent.
class RememberedPodsTest : public ::testing::Test {
 protected:
  RememberedPodsTest() {
    devices_.Set(FourGpus());
    Restart();
  }

  void Restart() {
    service_.reset();
    auto api = std::make_unique<FakeApiPods>();
    api_ = api.get();
    pods_.emplace(std::move(api), std::make_unique<DiskLog>(&disk_), disk_.records);
    size_t skipped = 0;
    ledger_.emplace(&grants_, grants_disk_.records, &skipped);
    service_.emplace(
        &runner_,
        GrantOptions{.description = {.dev_root_ctr_path = "/nonexistent"}, .metrics = &metrics_},
        &devices_, &signer_, &*ledger_, &kubelet_, &*pods_, nullptr);
    runner_.RunUntilIdle();
  }

  void Assign(const std::string& name, const std::string& gpu, const Uid& uid = Uid()) {
    PodInfo pod = FakeApiPods::Make(name, {{"main", {{kMem, "8"}}}}, uid);
    device::Assignment assignment;
    assignment.containers["main"] = {{.uuid = gpu, .memory = GiB(8)}};
    pod.annotations = *device::AnnotationsFor(*pod.request, assignment, devices_.Get()->inventory(),
                                              {.node = "n"});
    api_->Set(std::move(pod));
  }

  Result<grant::Grant> RequestGrant(const std::string& pod) {
    std::optional<Result<grant::Grant>> answer;
    service_->Handle({.pod_uid = Uid("uid-" + pod),
                      .pod_namespace = "default",
                      .pod_name = pod,
                      .container = "main",
                      .tokens = {{grant::TokenVariable(kMem),
                                  signer_.Sign(kMem, {"m0000", "+7"}, runner_.clock().WallNow())}}},
                     [&](Result<grant::Grant> reply) { answer = std::move(reply); });
    runner_.AdvanceTimeAndRun(kGrantWait);
    return answer ? *answer : Result<grant::Grant>(Status(Code::kAborted, "waits"));
  }

  FakeTaskRunner runner_;
  DeviceSetHolder devices_;
  grant::TokenSigner signer_{std::string(32, 'k')};
  Disk disk_, grants_disk_;
  DiskLog grants_{&grants_disk_};
  NoKubelet kubelet_;
  GrantMetrics metrics_;
  FakeApiPods* api_ = nullptr;
  std::optional<RememberedPods> pods_;
  std::optional<GrantLedger> ledger_;
  std::optional<GrantService> service_;
};

TEST_F(RememberedPodsTest, PodThatWasSeenStartsAfterARestartWithoutTheApiServer) {
  Assign("a", "GPU-2");
  Assign("b", "GPU-1");
  Restart();
  ASSERT_FALSE(pods_->synced());
  const auto grant = RequestGrant("a");
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_EQ(grant->env.at("NVIDIA_VISIBLE_DEVICES"), "GPU-2");
  EXPECT_EQ(RequestGrant("never-seen").status().code(), Code::kUnavailable);
}

TEST_F(RememberedPodsTest, APodOfTheSameNameIsAnotherPod) {
  Assign("web-0", "GPU-2", Uid("uid-old"));
  Restart();
  EXPECT_EQ(RequestGrant("web-0").status().code(), Code::kUnavailable);
}

TEST_F(RememberedPodsTest, TheServersStateWinsAndUnlistedPodsAreForgotten) {
  Assign("a", "GPU-2");
  Assign("b", "GPU-1");
  Restart();
  EXPECT_EQ(pods_->pods().size(), 2u);
  Assign("b", "GPU-3");
  api_->Sync();
  EXPECT_EQ(pods_->pods().size(), 1u);
  EXPECT_EQ(RequestGrant("b")->env.at("NVIDIA_VISIBLE_DEVICES"), "GPU-3");
  EXPECT_EQ(RequestGrant("a").status().code(), Code::kUnavailable);
  Restart();
  EXPECT_EQ(pods_->pods().size(), 1u);
}

TEST_F(RememberedPodsTest, RecordsEachLivePodThatRequestsDevicesOnce) {
  api_->Set(FakeApiPods::Make("cpu", {{"main", {}}}));
  EXPECT_TRUE(disk_.records.empty());
  Assign("a", "GPU-2");
  Assign("a", "GPU-2");
  EXPECT_EQ(disk_.records.size(), 1u);
  PodInfo ended = FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}});
  ended.ended = true;
  api_->Set(ended);
  api_->Remove(Uid("uid-a"));
  EXPECT_EQ(disk_.records.size(), 2u);
  Restart();
  EXPECT_TRUE(pods_->pods().empty());
}

TEST_F(RememberedPodsTest, HistoryDoesNotGrowForEver) {
  for (int i = 0; i < 6000; ++i) {
    Assign("a", "GPU-1");
    api_->Remove(Uid("uid-a"));
  }
  Assign("b", "GPU-1");
  EXPECT_GE(disk_.replaced, 1);
  EXPECT_LT(disk_.records.size(), 6000u);
  Restart();
  EXPECT_EQ(pods_->pods().size(), 1u);
}

TEST_F(RememberedPodsTest, AfterAFullDiskAllPodsAreWrittenAgain) {
  disk_.full = true;
  Assign("a", "GPU-1");
  Assign("b", "GPU-2");
  disk_.full = false;
  Assign("c", "GPU-3");
  Restart();
  EXPECT_EQ(pods_->pods().size(), 3u);
}

TEST(PodRecordTest, ADecodedRecordHasTheWholeRequest) {
  PodInfo pod = FakeApiPods::Make(
      "a",
      {{"init", {{std::string(names::kResourceGpu), "2"}}}, {"main", {{kMem, "8"}}}, {"none", {}}});
  pod.request->constraints = {{"A100"}, {"GPU-1"}, {"GPU-2", "GPU-3"}};
  pod.request->elastic_limit = MilliGpu(700);
  pod.annotations = {{"tessera.dev/assignment", "{\"x\":\"é\"}"}};
  pod.created = WallTime(std::chrono::seconds(1'800'000'000));
  const auto read = DecodePod(EncodePod(pod));
  ASSERT_NE(read, nullptr);
  EXPECT_EQ(*read->request, *pod.request);
  EXPECT_EQ(read->annotations, pod.annotations);
  EXPECT_EQ(read->created, pod.created);
  EXPECT_EQ(read->Text(), "default/a");
}

TEST(PodRecordTest, DecodingAnInvalidRecordGivesNoPod) {
  for (const std::string text : {"", "[]", "{}", R"({"do":"pod"})", R"({"do":"pod","uid":"a"})",
                                 R"({"do":"pod","uid":"a","request":{"containers":[1]}})",
                                 R"({"do":"pod","request":{"containers":[]}})"}) {
    EXPECT_EQ(DecodePod(text), nullptr) << text;
  }
}

}  // namespace
}  // namespace tessera::agent
