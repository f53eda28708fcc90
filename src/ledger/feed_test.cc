// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/feed.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/net/testing/loopback.h"

namespace tessera::ledger {
namespace {

class FeedTest : public ::testing::Test, public ClusterFeed::Delegate {
 protected:
  FeedTest() {
    server_.SetCollection("nodes", "Node", {});
    server_.SetCollection("pods", "Pod", {});
    server_.SetCollection("configmaps", "ConfigMap", {});
    ledger_ = ClusterLedger::Make({}, &runner_.clock()).value();
  }
  void SetQuota(const std::string& text) {
    server_.SetCollection(
        "configmaps", "ConfigMap",
        {kube::testing::MessageOf(kube::ConfigMapObject{
            .meta = {.name = "gpuquota", .ns = "kube-system", .resource_version = "3"},
            .data = {{"gpu_quota", text}}})});
  }
  void Start() { feed_ = std::make_unique<ClusterFeed>(client_, *ledger_, FeedOptions{}, *this); }
  void OnSynced() override {}
  void OnQuota() override { ++quota_reports_; }
  void OnError(std::string_view, const Status&) override { ++errors_; }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  kube::Client client_{io_, runner_, server_.config(), {}};
  std::unique_ptr<ClusterLedger> ledger_;
  int quota_reports_ = 0, errors_ = 0;
  std::unique_ptr<ClusterFeed> feed_;
};

// A program shows the error of the first attempt until OnQuota.
TEST_F(FeedTest, AnErrorOfTheQuotaEndsEvenIfThereIsNoConfigMap) {
  server_.Refuse("configmaps", 500);
  Start();
  ASSERT_TRUE(runner_.RunUntil([&] { return errors_ > 0; }));
  EXPECT_EQ(quota_reports_, 0);
  server_.Allow("configmaps");
  ASSERT_TRUE(runner_.RunUntil([&] { return feed_->synced(); }));
  EXPECT_EQ(quota_reports_, 1);
  EXPECT_TRUE(ledger_->quota().config().empty());
}

TEST_F(FeedTest, AQuotaIsReportedOnceAndAnInvalidQuotaIsAnError) {
  SetQuota(R"({"ns":{"quota":{"A100":1}}})");
  Start();
  ASSERT_TRUE(runner_.RunUntil([&] { return feed_->synced(); }));
  EXPECT_EQ(quota_reports_, 1);
  EXPECT_EQ(errors_, 0);
  SetQuota("{");
  Start();
  ASSERT_TRUE(runner_.RunUntil([&] { return feed_->synced(); }));
  EXPECT_EQ(quota_reports_, 1);
  EXPECT_EQ(errors_, 1);
}

}  // namespace
}  // namespace tessera::ledger
