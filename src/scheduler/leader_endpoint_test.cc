// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/leader_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::scheduler {
namespace {

using std::chrono::milliseconds;

constexpr char kLease[] = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/svc";
constexpr char kSlice[] = "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/svc";

class LeaderEndpointTest : public ::testing::Test {
 protected:
  std::unique_ptr<LeaderEndpoint> Lead(const char* ip, Duration period = std::chrono::hours(1),
                                       const char* identity = "") {
    return std::make_unique<LeaderEndpoint>(client_,
                                            LeaderEndpointOptions{.ns = "ns",
                                                                  .service = "svc",
                                                                  .ip = ip,
                                                                  .port = 9410,
                                                                  .period = period,
                                                                  .lease_ns = "ns",
                                                                  .lease = "svc",
                                                                  .identity = identity},
                                            [this](const Status& status) { error_ = status; });
  }
  // The addresses of the EndpointSlice, separated by blanks; "-" if there is none.
  std::string Addresses() const {
    const Json* slice = store_.Find(kSlice);
    if (slice == nullptr) return "-";
    std::string text;
    for (const Json& endpoint : slice->Find("endpoints")->items()) {
      if (!text.empty()) text += ' ';
      text += endpoint.Find("addresses")->items().at(0).string_value();
    }
    return text;
  }
  void SetHolder(const char* identity) {
    store_.Put(
        kLease,
        ParseJson(fmt::format(R"({{"metadata":{{}},"spec":{{"holderIdentity":"{}"}}}})", identity))
            .value());
  }
  bool WaitForAddresses(const std::string& addresses) {
    return runner_.RunUntil([&] { return Addresses() == addresses; });
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer store_{io_, runner_};
  kube::Client client_{io_, runner_, store_.config(), {.max_attempts = 1}};
  Status error_;
};

TEST_F(LeaderEndpointTest, PublishesTheLeaderAndThenWithdrawsIt) {
  auto endpoint = Lead("10.1.2.3");
  ASSERT_TRUE(WaitForAddresses("10.1.2.3"));
  const Json slice = *store_.Find(kSlice);
  EXPECT_EQ(slice.StringAt("addressType").value(), "IPv4");
  EXPECT_EQ(slice.Find("metadata")->Find("labels")->StringAt("kubernetes.io/service-name").value(),
            "svc");
  EXPECT_EQ(slice.Find("ports")->items().at(0).Serialize(),
            R"({"name":"extender","port":9410,"protocol":"TCP"})");
  bool done = false;
  endpoint->Withdraw([&] { done = true; });
  ASSERT_TRUE(runner_.RunUntil([&] { return done; }));
  EXPECT_EQ(Addresses(), "");
}

TEST_F(LeaderEndpointTest, AWithdrawnEndpointIsNotPublishedAgain) {
  const auto endpoint = Lead("10.1.2.3", milliseconds(60));
  ASSERT_TRUE(WaitForAddresses("10.1.2.3"));
  runner_.RunFor(milliseconds(20));  // the response has arrived, and the next write is scheduled
  bool done = false;
  endpoint->Withdraw([&] { done = true; });
  ASSERT_TRUE(runner_.RunUntil([&] { return done; }));
  runner_.RunFor(milliseconds(100));
  EXPECT_EQ(Addresses(), "");
}

TEST_F(LeaderEndpointTest, TheNextLeaderOverwritesAFormerLeader) {
  auto first = Lead("10.1.2.3", milliseconds(5));
  ASSERT_TRUE(WaitForAddresses("10.1.2.3"));
  first.reset();
  const auto second = Lead("fd00::2");
  ASSERT_TRUE(WaitForAddresses("fd00::2"));
  EXPECT_EQ(store_.Find(kSlice)->StringAt("addressType").value(), "IPv6");
  runner_.RunFor(milliseconds(50));
  EXPECT_EQ(Addresses(), "fd00::2");
}

// Acts like a process that was suspended for a minute: its timer is due, and its clock says that it
// leads.
TEST_F(LeaderEndpointTest, AFormerLeaderDoesNotOverwriteItsSuccessor) {
  SetHolder("old");
  const auto former = Lead("10.1.2.3", milliseconds(5), "old");
  ASSERT_TRUE(WaitForAddresses("10.1.2.3"));
  SetHolder("new");
  const auto successor = Lead("10.4.5.6", std::chrono::hours(1), "new");
  ASSERT_TRUE(WaitForAddresses("10.4.5.6"));
  ASSERT_TRUE(runner_.RunUntil([&] { return !error_.ok(); }));
  EXPECT_EQ(error_.code(), Code::kFailedPrecondition);
  EXPECT_NE(error_.message().find("replica \"new\" holds"), std::string::npos) << error_.message();
  EXPECT_EQ(Addresses(), "10.4.5.6");
  // The former leader does not withdraw its successor's EndpointSlice either.
  bool done = false;
  former->Withdraw([&] { done = true; });
  ASSERT_TRUE(runner_.RunUntil([&] { return done; }));
  EXPECT_EQ(Addresses(), "10.4.5.6");
}

// The Lease changes its holder after it was read, and the successor writes before the old request
// arrives.
TEST_F(LeaderEndpointTest, AWriteThatComesTooLateConflicts) {
  SetHolder("old");
  auto former = Lead("10.1.2.3", std::chrono::hours(1), "old");
  ASSERT_TRUE(WaitForAddresses("10.1.2.3"));
  former.reset();
  int overtaken = 0;
  store_.OnRequest([&](const net::Request& request) {
    if (request.method != "PATCH" || overtaken > 0) return;
    ++overtaken;
    Json slice = *store_.Find(kSlice);
    slice.Set("endpoints", ParseJson(R"([{"addresses":["10.4.5.6"]}])").value());
    store_.Put(kSlice, std::move(slice));
    SetHolder("new");
  });
  former = Lead("10.1.2.3", std::chrono::hours(1), "old");
  ASSERT_TRUE(runner_.RunUntil([&] { return error_.code() == Code::kFailedPrecondition; }));
  EXPECT_EQ(overtaken, 1);
  EXPECT_EQ(Addresses(), "10.4.5.6");
}

TEST_F(LeaderEndpointTest, RestoresAnEditedEndpointSlice) {
  const auto endpoint = Lead("10.1.2.3", milliseconds(20));
  ASSERT_TRUE(WaitForAddresses("10.1.2.3"));
  store_.Remove(kSlice);
  EXPECT_TRUE(WaitForAddresses("10.1.2.3"));
}

TEST(LeaderEndpointAddressTest, IsAnIpAddress) {
  EXPECT_TRUE(CheckIp("10.0.0.1").ok() && CheckIp("fd00::1").ok());
  for (const char* wrong : {"", "somewhere", "10.0.0", "10.0.0.1:9410", "[fd00::1]"}) {
    EXPECT_EQ(CheckIp(wrong).code(), Code::kInvalidArgument) << wrong;
  }
}

}  // namespace
}  // namespace tessera::scheduler
