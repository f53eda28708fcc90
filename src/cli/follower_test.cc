// SPDX-License-Identifier: Apache-2.0
#include "src/cli/follower.h"

#include <gtest/gtest.h>

#include "src/kube/testing/fake_api_server.h"
#include "src/kube/testing/samples.h"
#include "src/ledger/testing/objects.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli {
namespace {

using kube::testing::MessageOf;

class FollowerTest : public ::testing::Test {
 protected:
  FollowerTest() {
    SetNodes({"n1"});
    Follow(std::chrono::milliseconds(500));
  }
  void Follow(Duration probe_interval) {
    std::optional<Status> ready;
    follower_ = std::make_unique<Follower>(
        io_, runner_,
        SessionOptions{.config = config_, .follow = true, .probe_interval = probe_interval},
        [this] { return Load(); }, [&](const Status& status) { ready = status; });
    EXPECT_TRUE(runner_.RunUntil([&] { return ready.has_value(); }));
    EXPECT_EQ(ready->ToString(), "OK");
  }
  Result<kube::Config> Load() {
    ++loads_;
    return config_;
  }
  void SetNodes(const std::vector<std::string>& names) {
    std::vector<std::string> messages;
    for (const std::string& name : names) {
      kube::NodeObject node = ledger::testing::GpuNode(name, 2);
      node.meta.resource_version = fmt::format("{}", 1);
      messages.push_back(MessageOf(node));
    }
    server_.SetCollection("nodes", "Node", messages);
  }
  bool Until(const std::function<bool()>& done) {
    return runner_.RunUntil(done, std::chrono::seconds(20));
  }
  bool Stale() { return !follower_->StaleLine().empty(); }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  kube::Config config_{.server = server_.url()};
  int loads_ = 0;
  std::unique_ptr<Follower> follower_;
};

// A probe times out after the probe interval, so the interval is longer than in the other tests.
TEST_F(FollowerTest, ReportsNothingWhileItFollows) {
  Follow(std::chrono::seconds(2));
  runner_.RunFor(std::chrono::milliseconds(300));
  server_.EndWatches();
  runner_.RunFor(std::chrono::seconds(2));
  EXPECT_EQ(follower_->StaleLine(), "");
  EXPECT_EQ(loads_, 0);
}

TEST_F(FollowerTest, ReportsAnOutageAndItsEnd) {
  server_.Refuse("nodes", 503);
  ASSERT_TRUE(Until([&] {
    server_.EndWatches();
    return Stale();
  }));
  EXPECT_TRUE(follower_->StaleLine().starts_with("stale since 20")) << follower_->StaleLine();
  EXPECT_NE(follower_->StaleLine().find(server_.url().ToString() + " does not answer"),
            std::string::npos)
      << follower_->StaleLine();
  server_.Allow("nodes");
  EXPECT_TRUE(Until([&] {
    server_.EndWatches();  // a real server answers a watch at once
    return !Stale();
  }));
  EXPECT_EQ(loads_, 0);
}

TEST_F(FollowerTest, ReportsAHangingServerAndItsReturn) {
  bool hangs = true;
  std::vector<net::HttpServer::Reply> held;
  server_.SetFault([&](const net::Request&, const net::HttpServer::Reply& reply) {
    if (hangs) held.push_back(reply);
    return hangs;
  });
  ASSERT_TRUE(Until([&] { return Stale(); }));
  EXPECT_NE(follower_->StaleLine().find("does not answer"), std::string::npos)
      << follower_->StaleLine();
  EXPECT_NE(follower_->StaleLine().find("/version"), std::string::npos) << follower_->StaleLine();
  hangs = false;
  EXPECT_TRUE(Until([&] { return !Stale(); }));
}

TEST_F(FollowerTest, NotifiesOncePerOutage) {
  server_.Refuse("nodes", 503);
  std::vector<std::string> lines;
  std::vector<std::string> notices;
  const auto note = [&] {
    server_.EndWatches();
    const std::string line = follower_->StaleLine();
    if (lines.empty() || line != lines.back()) lines.push_back(line);
    const std::string notice = follower_->StaleNotice();
    if (!notice.empty()) notices.push_back(notice);
  };
  ASSERT_TRUE(Until([&] {
    note();
    return Stale();
  }));
  server_.Refuse("nodes", 500);
  const size_t lines_before = lines.size();
  ASSERT_TRUE(Until([&] {
    note();
    return lines.size() > lines_before;
  }));
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_TRUE(notices[0].starts_with("stale since ")) << notices[0];
  server_.Allow("nodes");
  ASSERT_TRUE(Until([&] {
    note();
    return notices.size() > 1;
  }));
  EXPECT_EQ(notices[1], "follows the cluster again");
}

TEST_F(FollowerTest, LoginInAnotherTerminalTakesEffect) {
  server_.RequireToken("new");
  SetNodes({"n1", "n2"});
  ASSERT_TRUE(Until([&] {
    server_.EndWatches();
    return Stale();
  }));
  EXPECT_NE(follower_->StaleLine().find("log in again"), std::string::npos);
  EXPECT_EQ(follower_->session().ledger().nodes().size(), 1u);
  // The reloaded configuration still has no credentials that the server accepts.
  ASSERT_TRUE(Until([&] { return loads_ > 0; }));
  EXPECT_TRUE(Stale());
  config_.token = std::string("new");
  EXPECT_TRUE(Until([&] { return !Stale(); }));
  EXPECT_EQ(follower_->session().ledger().nodes().size(), 2u);
}

}  // namespace
}  // namespace tessera::cli
