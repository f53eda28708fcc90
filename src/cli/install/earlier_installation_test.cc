// SPDX-License-Identifier: Apache-2.0
// `tessera install` and `uninstall` where Tessera is installed already, and on an old API server,
// against a fake API server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/install/installer.h"
#include "src/cli/testing/command_fixture.h"
#include "src/cli/testing/installed_cluster.h"
#include "src/components/cluster_policy.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

class EarlierInstallationTest : public testing::CommandFixture {
 protected:
  EarlierInstallationTest() {
    testing::PutDiscovery(server_);
    server_.Put("/apis/tessera.dev/v1alpha1",
                ParseJson(R"({"resources":[{"name":"tesseras","namespaced":false,)"
                          R"("kind":"Tessera"}]})")
                    .value());
    server_.OnRequest([this](const net::Request& request) {
      const bool is_lock = request.path().find("/leases") != std::string::npos;
      if (!is_lock && request.method != "GET") ++changes_;
    });
  }
  void PutResource(const std::string& spec) {
    server_.Put(testing::PathOf(TesseraResourceId()),
                components::TesseraResource(ParseYaml(spec).value()));
  }
  int changes_ = 0;  // requests that change objects other than the lock
};

TEST_F(EarlierInstallationTest, NoCommandChangesATooOldCluster) {
  server_.Put("/version", ParseJson(R"({"minor":"31","gitVersion":"v1.31.0"})").value());
  for (const bool has_resource : {false, true}) {
    if (has_resource) PutResource("{}");
    for (const std::vector<std::string>& words : {std::vector<std::string>{"install"},
                                                  {"install", "--force"},
                                                  {"install", "--operator"},
                                                  {"install", "--operator", "--force"},
                                                  {"upgrade"}}) {
      const testing::CommandResult ran = Run(words);
      EXPECT_EQ(ran.exit_code, 78) << ran.err;
      EXPECT_THAT(ran.err, HasSubstr("the cluster has Kubernetes v1.31.0"));
    }
  }
  EXPECT_EQ(changes_, 0);
}

TEST_F(EarlierInstallationTest, ForceChangesNothingWhileTheResourceCannotBeRead) {
  PutResource("{scheduler: {replicas: 3}}");
  const testing::CommandResult refused = Run({"install", "--operator"});
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_THAT(refused.err, HasSubstr("Tessera is installed by its operator"));
  server_.Refuse("tesseras", 403);
  EXPECT_NE(Run({"install", "--operator", "--force"}).exit_code, 0);
  EXPECT_EQ(changes_, 0) << "whether the resource exists is unknown";
}

TEST_F(EarlierInstallationTest, ForceDoesNotAddTheOperatorToAnInstallationWithoutIt) {
  ASSERT_EQ(Run({"install"}).exit_code, 0);
  changes_ = 0;
  const testing::CommandResult refused = Run({"install", "--operator", "--force"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("run \"tessera uninstall\" first"));
  EXPECT_EQ(changes_, 0);
}

TEST_F(EarlierInstallationTest, UninstallContinuesIfANodeIsDeletedMeanwhile) {
  ASSERT_EQ(Run({"install"}).exit_code, 0);
  server_.Put("/api/v1/nodes/n1",
              ParseYaml("metadata: {name: n1, annotations: {tessera.dev/devices: x}}").value());
  bool patched = false;
  server_.OnRequest([&](const net::Request& request) {
    if (request.method != "PATCH" || request.path() != "/api/v1/nodes/n1") return;
    patched = true;
    server_.Remove("/api/v1/nodes/n1");
  });
  // The fake server starts no pods, so nothing cleans the engines.
  const testing::CommandResult ran = Run({"uninstall", "--force", "--timeout=1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_TRUE(patched);
}

}  // namespace
}  // namespace tessera::cli
