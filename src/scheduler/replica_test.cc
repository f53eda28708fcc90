// SPDX-License-Identifier: Apache-2.0
// Tests one whole replica from its election to its end: the responses of its pages and verbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/kube/times.h"
#include "src/ledger/testing/objects.h"
#include "src/net/http_client.h"
#include "src/net/testing/loopback.h"
#include "src/scheduler/scheduler.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr char kLease[] = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/tessera-scheduler";
constexpr char kSlice[] =
    "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/tessera-scheduler";

class ReplicaTest : public ::testing::Test {
 protected:
  ReplicaTest() {
    server_.SetCollection("nodes", "Node",
                          {kube::testing::MessageOf(ledger::testing::GpuNode("n1", 2))});
    options_.plain_http = true;
    options_.election.identity = "self";
    options_.address = "127.0.0.1:0";
    options_.kubeconfig = dir_.path() + "/kubeconfig";
  }

  void Start() {
    ASSERT_TRUE(WriteFileAtomically(options_.kubeconfig, server_.Kubeconfig("ns"), 0600).ok());
    scheduler_ = std::make_unique<Scheduler>(&runner_, &io_, options_);
    const Status status = scheduler_->Start();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  net::Response Send(const std::string& method, const std::string& target,
                     const std::string& body = "") {
    net::HttpClient client(io_, runner_, {.server = {.address = scheduler_->address()}});
    std::optional<net::Response> answer;
    const net::HttpCall call =
        client.Send({.method = method, .target = target, .body = body}, {},
                    [&](Result<net::Response> r) { answer = *std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(net::Response());
  }
  net::Response Filter() {
    return Send(
        "POST", "/v1/extender/filter",
        R"({"Pod":{"metadata":{"name":"a","namespace":"ns","uid":"u"},"spec":{"containers":)"
        R"([{"name":"m","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}},)"
        R"("NodeNames":["n1"]})");
  }
  // Waits until /readyz responds with this status and text.
  bool ReadyzBecomes(int status, const std::string& text) {
    for (int i = 0; i < 1500; ++i) {
      const net::Response answer = Send("GET", "/readyz");
      if (answer.status == status && answer.body == text + "\n") return true;
      runner_.RunFor(std::chrono::milliseconds(20));
    }
    return false;
  }
  std::string Holder() const {
    const Json* lease = server_.Find(kLease);
    return lease == nullptr ? "no Lease"
                            : lease->Find("spec")->StringAt("holderIdentity").value_or("");
  }
  void PutLease(const std::string& holder) {
    const std::string now = kube::Rfc3339Micros(runner_.clock().WallNow());
    server_.Put(kLease,
                ParseJson(fmt::format(R"({{"metadata":{{"name":"tessera-scheduler"}},"spec":{{)"
                                      R"("holderIdentity":"{}","leaseDurationSeconds":15,)"
                                      R"("acquireTime":"{}","renewTime":"{}"}}}})",
                                      holder, now, now))
                    .value());
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  TempDir dir_;
  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(ReplicaTest, ALeaderDecidesOnceItKnowsTheCluster) {
  options_.advertise_address = "10.1.2.3";
  server_.Refuse("nodes", 503);
  Start();
  EXPECT_TRUE(ReadyzBecomes(503, "the cluster has not been read yet"));
  EXPECT_EQ(Filter().status, 503);
  std::string page = Send("GET", "/metrics").body;
  EXPECT_THAT(page, HasSubstr("tessera_scheduler_leading 1\n"));
  EXPECT_THAT(page, HasSubstr("tessera_scheduler_synced 0\n"));
  EXPECT_EQ(server_.Find(kSlice), nullptr);
  server_.Allow("nodes");
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
  EXPECT_THAT(Filter().body, HasSubstr(R"("NodeNames":["n1"])"));
  page = Send("GET", "/metrics").body;
  EXPECT_THAT(page, HasSubstr("tessera_scheduler_synced 1\n"));
  EXPECT_THAT(page, HasSubstr("tessera_scheduler_gpu_nodes 1\n"));
  EXPECT_EQ(Holder(), "self");
  ASSERT_TRUE(runner_.RunUntil([&] { return server_.Find(kSlice) != nullptr; }));
  EXPECT_THAT(server_.Find(kSlice)->Serialize(), HasSubstr(R"("addresses":["10.1.2.3"])"));
}

TEST_F(ReplicaTest, AStandbyIsReadyAndNamesTheLeader) {
  PutLease("other");
  Start();
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
  const net::Response answer = Filter();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.body, "not the leader: other leads\n");
  EXPECT_THAT(Send("GET", "/metrics").body, HasSubstr("tessera_scheduler_leading 0\n"));
}

TEST_F(ReplicaTest, AHolderThatCannotRenewTheLeaseReportsIt) {
  options_.election.lease_duration = std::chrono::seconds(60);
  options_.election.renew_deadline = std::chrono::milliseconds(500);
  options_.election.retry_period = std::chrono::milliseconds(100);
  Start();
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
  for (const char* resource : {"leases", "endpointslices"}) server_.Refuse(resource, 503);
  ASSERT_TRUE(runner_.RunUntil([&] { return Send("GET", "/readyz").status == 503; }));
  EXPECT_THAT(Send("GET", "/readyz").body,
              ::testing::MatchesRegex(
                  "this replica holds the Lease but cannot act until the Lease is renewed: .+\n"));
  for (const char* resource : {"leases", "endpointslices"}) server_.Allow(resource);
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
}

TEST_F(ReplicaTest, WithoutElectionItDecidesAndWritesNoLease) {
  options_.leader_elect = false;
  Start();
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
  EXPECT_EQ(Filter().status, 200);
  EXPECT_THAT(Send("GET", "/metrics").body, HasSubstr("tessera_scheduler_leading 1\n"));
  EXPECT_EQ(Holder(), "no Lease");
  EXPECT_EQ(server_.Find(kSlice), nullptr);
  bool stopped = false;
  scheduler_->Stop([&] { stopped = true; });
  EXPECT_TRUE(runner_.RunUntil([&] { return stopped; }));
}

TEST_F(ReplicaTest, AStoppingReplicaWithdrawsItsEndpointAndReleasesTheLease) {
  options_.advertise_address = "10.1.2.3";
  Start();
  ASSERT_TRUE(runner_.RunUntil([&] { return server_.Find(kSlice) != nullptr; }));
  bool stopped = false;
  scheduler_->Stop([&] { stopped = true; });
  EXPECT_EQ(Send("GET", "/readyz").body, "this replica is stopping\n");
  EXPECT_TRUE(runner_.RunUntil([&] { return stopped; }));
  EXPECT_EQ(Holder(), "");
  EXPECT_THAT(server_.Find(kSlice)->Serialize(), HasSubstr(R"("endpoints":[])"));
}

TEST_F(ReplicaTest, AStoppingStandbyLeavesTheLeaseUnchanged) {
  PutLease("other");
  Start();
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
  bool stopped = false;
  scheduler_->Stop([&] { stopped = true; });
  EXPECT_EQ(Send("GET", "/readyz").body, "this replica is stopping\n");
  EXPECT_TRUE(runner_.RunUntil([&] { return stopped; }));
  EXPECT_EQ(Holder(), "other");
}

TEST_F(ReplicaTest, AnInvalidQuotaIsLoggedAsAnInvalidObject) {
  kube::ConfigMapObject quota;
  quota.meta.ns = "kube-system";
  quota.meta.name = "gpuquota";
  quota.data["gpu_quota"] = R"({"ml":{"quota":)";
  server_.SetCollection("configmaps", "ConfigMap", {kube::testing::MessageOf(quota)});
  ::testing::internal::CaptureStderr();
  Start();
  EXPECT_TRUE(ReadyzBecomes(200, "ok"));
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("an invalid object is ignored until it is corrected"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("cannot watch the API server")));
  EXPECT_THAT(Send("GET", "/metrics").body,
              HasSubstr("tessera_scheduler_feed_troubles_total{what=\"quota\"} 1\n"));
}

}  // namespace
}  // namespace tessera::scheduler
