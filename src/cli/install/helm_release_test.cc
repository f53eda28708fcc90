// SPDX-License-Identifier: Apache-2.0
// `tessera install` and `uninstall` over an installation by Helm, against a fake API server.
#include "src/cli/install/helm_release.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/cli/install/installer.h"
#include "src/cli/install/inventory.h"
#include "src/cli/testing/command_fixture.h"
#include "src/cli/testing/installed_cluster.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;

class HelmReleaseTest : public testing::CommandFixture {
 protected:
  HelmReleaseTest() { testing::PutDiscovery(server_); }
  void InstallByHelm() {
    testing::PutAll(server_,
                    testing::AsInstalledByHelm(ObjectsToInstall(Json::MakeObject()).value()));
    for (const auto& [name, release] :
         {std::pair("gpus.v1", "gpus"), {"gpus.v2", "gpus"}, {"web.v1", "web"}}) {
      server_.Put(RecordPath(name),
                  ParseYaml(fmt::format("{{metadata: {{name: sh.helm.release.v1.{}, namespace: "
                                        "tessera-system, labels: {{owner: helm, name: {}}}}}}}",
                                        name, release))
                      .value());
    }
  }
  static std::string RecordPath(const std::string& name) {
    return "/api/v1/namespaces/tessera-system/secrets/sh.helm.release.v1." + name;
  }
  void ExpectOnlyTheRecordOfTheOtherRelease() {
    EXPECT_EQ(server_.Find(RecordPath("gpus.v1")), nullptr);
    EXPECT_EQ(server_.Find(RecordPath("gpus.v2")), nullptr);
    EXPECT_NE(server_.Find(RecordPath("web.v1")), nullptr);
  }

  const std::string agents_ = "/apis/apps/v1/namespaces/tessera-system/daemonsets/tessera-agent";
};

TEST_F(HelmReleaseTest, UninstallByForceAlsoRemovesTheRecordOfHelm) {
  InstallByHelm();
  const testing::CommandResult refused = Run({"uninstall"});
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_THAT(refused.err, HasSubstr("helm uninstall gpus"));
  EXPECT_NE(server_.Find(RecordPath("gpus.v1")), nullptr);
  EXPECT_THAT(Run({"uninstall", "--force", "--dry-run"}).out,
              HasSubstr("Secret tessera-system/sh.helm.release.v1.gpus.v2: would be deleted\n"));
  // The fake server starts no pods, so nothing cleans the nodes.
  const testing::CommandResult ran = Run({"uninstall", "--force", "--timeout=1"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  ExpectOnlyTheRecordOfTheOtherRelease();
  EXPECT_EQ(server_.Find(agents_), nullptr);
}

TEST_F(HelmReleaseTest, InstallByForceTakesOverTheObjectsOfHelmWithItsRecord) {
  InstallByHelm();
  EXPECT_EQ(Run({"install"}).exit_code, 78);
  const testing::CommandResult ran = Run({"install", "--force"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("release gpus of Helm: its objects are taken over"));
  ExpectOnlyTheRecordOfTheOtherRelease();
  EXPECT_NE(server_.Find(testing::PathOf(InventoryId())), nullptr);
}

}  // namespace
}  // namespace tessera::cli
