// SPDX-License-Identifier: Apache-2.0
#include "src/cli/cluster_client.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

using namespace std::chrono_literals;

// No request is sent.
TEST(ClusterClientTest, AnAnswerAfterTheLimitDoesNotDelayTheNextWait) {
  ClusterClient api(kube::Config{.server = net::ParseUrl("http://127.0.0.1:1").value()}, 1s);
  std::function<void()> late_done;
  api.AddRequest([&](std::function<void()> done) {
    late_done = std::move(done);
    return kube::Operation();
  });
  api.Wait(10ms);
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

}  // namespace
}  // namespace tessera::cli
