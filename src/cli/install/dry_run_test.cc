// SPDX-License-Identifier: Apache-2.0
// `tessera install --dry-run` against a server whose answers the test chooses.
// tests/e2e/installs/commands_test.go shows what a real server rejects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/cli/testing/command_fixture.h"
#include "src/cli/testing/installed_cluster.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DryRunTest : public testing::CommandFixture {
 protected:
  DryRunTest() {
    testing::PutDiscovery(server_);
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      if (request.method != "PATCH") return false;
      EXPECT_THAT(request.target, HasSubstr("dryRun=All"));
      const std::string path(request.path());
      const size_t name = path.rfind('/');
      const auto rejected = rejected_.find(path.substr(path.rfind('/', name - 1) + 1));
      paths_.push_back(path);
      reply(rejected == rejected_.end() ? Answer(200, request.body)
                                        : Answer(rejected->second.first, rejected->second.second));
      return true;
    });
  }
  static net::Response Answer(int status, const std::string& body) {
    net::Response response = net::TextResponse(status, body);
    response.headers.Set("Content-Type", "application/json");
    return response;
  }
  // `object`: "daemonsets/tessera-agent".
  void Reject(const std::string& object, int code, const std::string& reason,
              const std::string& message) {
    rejected_[object] = {code,
                         fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure",)"
                                     R"("message":"{}","reason":"{}","code":{}}})",
                                     message, reason, code)};
  }

  std::map<std::string, std::pair<int, std::string>> rejected_;
  std::vector<std::string> paths_;
};

constexpr const char* kInvalid =
    "is invalid: spec.template.spec.containers[0].env[0].name: Invalid";

TEST_F(DryRunTest, NamesEachObjectAndFieldThatTheServerRejects) {
  Reject("daemonsets/tessera-agent", 422, "Invalid", kInvalid);
  Reject("runtimeclasses/nvidia", 422, "Invalid", "metadata.name: Invalid value");
  for (const char* flag : {"--dry-run", "--dry-run=server"}) {
    const testing::CommandResult ran = Run({"install", flag});
    EXPECT_EQ(ran.exit_code, 64) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_EQ(ran.err,
              fmt::format("tessera: the API server rejects 2 of 39 objects: RuntimeClass nvidia: "
                          "metadata.name: Invalid value (Invalid, HTTP 422); DaemonSet "
                          "tessera-system/tessera-agent: {} (Invalid, HTTP 422)\n",
                          kInvalid));
  }
  EXPECT_EQ(server_.writes(), 0);
}

// The server answers 404 for each object of a namespace that does not exist.
TEST_F(DryRunTest, ANamespaceThatDoesNotExistYetIsNoObstacle) {
  const testing::CommandResult first = Run({"install", "--dry-run=server"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.err, "");
  EXPECT_THAT(first.out, HasSubstr("kind: DaemonSet"));
  EXPECT_THAT(first.out, Not(HasSubstr("namespace: default")));
  EXPECT_THAT(paths_,
              ::testing::Contains("/apis/apps/v1/namespaces/default/daemonsets/tessera-agent"));
  server_.Put("/api/v1/namespaces/tessera-system",
              ParseJson(R"({"metadata":{"name":"tessera-system"}})").value());
  paths_.clear();
  EXPECT_EQ(Run({"install", "--dry-run=server"}).out, first.out);
  EXPECT_THAT(paths_, ::testing::Contains(
                          "/apis/apps/v1/namespaces/tessera-system/daemonsets/tessera-agent"));
}

TEST_F(DryRunTest, WithTheOperatorItsObjectsAreCheckedToo) {
  EXPECT_EQ(Run({"install", "--operator", "--dry-run=server"}).exit_code, 0);
  Reject("daemonsets/tessera-agent", 422, "Invalid", kInvalid);
  Reject("deployments/tessera-operator", 422, "Invalid", "spec.replicas: Invalid value");
  const testing::CommandResult ran = Run({"install", "--operator", "--dry-run=server"});
  EXPECT_EQ(ran.exit_code, 64);
  EXPECT_THAT(ran.err, HasSubstr("Deployment tessera-system/tessera-operator: spec.replicas"));
  EXPECT_THAT(ran.err, HasSubstr("DaemonSet tessera-system/tessera-agent: "));
}

TEST_F(DryRunTest, PrintsUncheckedObjectsUnlessModeIsServer) {
  Reject("daemonsets/tessera-agent", 403, "Forbidden", "cannot patch daemonsets");
  const testing::CommandResult alone = Run({"install", "--dry-run"});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.err, HasSubstr("no API server has checked the objects: "));
  EXPECT_THAT(alone.out, HasSubstr("kind: DaemonSet"));
  EXPECT_EQ(Run({"install", "--dry-run=server"}).exit_code, 77);
  paths_.clear();
  const testing::CommandResult client = Run({"install", "--dry-run=client"});
  EXPECT_EQ(client.out, alone.out);
  EXPECT_EQ(client.err, "");
  EXPECT_TRUE(paths_.empty());
  EXPECT_EQ(Run({"install", "--dry-run=both"}).exit_code, 64);
  // What an upgrade or an uninstall changes depends on the cluster, so they have no mode "client".
  for (const char* verb : {"upgrade", "uninstall"}) {
    EXPECT_EQ(Run({verb, "--dry-run=client"}).exit_code, 64);
    EXPECT_NE(Run({verb, "--dry-run=server"}).exit_code, 64);
  }
}

}  // namespace
}  // namespace tessera::cli
