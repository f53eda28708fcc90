// SPDX-License-Identifier: Apache-2.0
#include "src/cli/cluster_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

// The test sends no request, so it needs no server.
TEST(ClusterClientTest, AnAnswerAfterTheLimitDoesNotDelayTheNextWait) {
  ClusterClient api(kube::Config{.server = net::ParseUrl("http://127.0.0.1:1").value()}, 1s);
  std::function<void()> late_done;
  api.AddRequest([&](std::function<void()> done) {
    late_done = std::move(done);
    return kube::Operation();
  });
  api.Wait(2s);
  ASSERT_TRUE(late_done);
  late_done();
  bool started = false;
  api.AddRequest([&](const std::function<void()>& done) {
    started = true;
    done();
    return kube::Operation();
  });
  api.Wait(2s);
  EXPECT_TRUE(started);
}

// Reads three nodes in pages of one node.
class ReadListTest : public ::testing::Test {
 protected:
  ReadListTest() {
    for (const char* name : {"n1", "n2", "n3"}) {
      server_.Put(
          std::string("/api/v1/nodes/") + name,
          Json::MakeObject({{"metadata", Json::MakeObject({{"name", Json::String(name)}})}}));
    }
  }
  Result<std::vector<Json>> ReadNodes(size_t max_objects, Duration limit = 10s) {
    Result<std::vector<Json>> nodes = std::vector<Json>();
    std::atomic<bool> ended = false;
    // ClusterClient blocks its thread. The server answers on the thread of the test.
    std::thread reader([&] {
      ClusterClient api(server_.config(), 30s, 5s, max_objects);
      api.ReadList({.type = kube::kNodes, .limit = 1}, &nodes);
      api.Wait(limit);
      ended = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return ended.load(); }, 60s));
    reader.join();
    return nodes;
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
};

TEST_F(ReadListTest, ReturnsTheObjectsOfAllPages) {
  const Result<std::vector<Json>> nodes = ReadNodes(/*max_objects=*/3);
  ASSERT_TRUE(nodes.ok()) << nodes.status().ToString();
  EXPECT_EQ(nodes->size(), 3u);
}

TEST_F(ReadListTest, AListWithoutItsLastPageIsAnError) {
  bool second_page_requested = false;
  server_.SetFault([&](const net::Request& request, const net::HttpServer::Reply&) {
    const bool is_second = request.Query("continue").has_value();
    second_page_requested |= is_second;
    return is_second;  // without an answer
  });
  EXPECT_EQ(ReadNodes(/*max_objects=*/3, 2s).status().code(), Code::kDeadlineExceeded);
  EXPECT_TRUE(second_page_requested);
}

TEST_F(ReadListTest, AListOfTooManyObjectsIsAnError) {
  const Status status = ReadNodes(/*max_objects=*/2).status();
  EXPECT_EQ(status.code(), Code::kOutOfRange);
  EXPECT_EQ(status.message(), "the list has more than 2 objects");
}

}  // namespace
}  // namespace tessera::cli
