// SPDX-License-Identifier: Apache-2.0
// A fixture for tests against a real API server. TESSERA_TEST_KUBECONFIG names the kubeconfig of a
// test cluster, such as `testcluster up` prints; tests are skipped without it.
//
// Threads: the test's, which runs tasks while it waits.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "src/kube/client.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube::testing {

class RealApiServerTest : public ::testing::Test {
 protected:
  // A derived SetUp must return if `client_` is null after this call.
  void SetUp() override {
    const char* path = std::getenv("TESSERA_TEST_KUBECONFIG");
    if (path == nullptr) GTEST_SKIP() << "TESSERA_TEST_KUBECONFIG is not set";
    auto config = LoadKubeconfig(path);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    client_ = std::make_unique<Client>(io_, runner_, *std::move(config), ClientOptions{});
  }

  // Waits for the answer to one operation, for example
  //   Wait([&](auto on_done) { return client_->Get(object, on_done); })
  Result<Json> Wait(const std::function<Operation(Client::OnObject)>& start) {
    std::optional<Result<Json>> answer;
    const Operation operation = start([&](Result<Json> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }, std::chrono::minutes(1)));
    return answer ? *answer : Result<Json>(Error(Code::kUnknown, "no answer"));
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;  // posts to the runner until it is destroyed
  std::unique_ptr<Client> client_;
};

}  // namespace tessera::kube::testing
