// SPDX-License-Identifier: Apache-2.0
// Applies the rendered DaemonSets to a real API server, without storing them, because it rejects
// unknown fields and invalid values (kube/testing/real_api_server.h).
#include "src/components/driver_daemonset.h"
#include "src/kube/testing/real_api_server.h"

namespace tessera::operators {
namespace {

using components::DriverHost;
using components::DriverSpec;
using components::KernelModule;
using components::PinnedDriverDaemonSet;
using components::RenderDriverDaemonSet;

class DriverDaemonSetServerTest : public kube::testing::RealApiServerTest {
 protected:
  Status Apply(const Json& set) {
    const std::string name = *set.Find("metadata")->StringAt("name");
    return Wait([&](auto on_done) {
             return client_->Patch({kube::kDaemonSets, name, "default", ""},
                                   kube::PatchKind::kApply, set,
                                   {.field_manager = "tessera-test", .dry_run = true}, on_done);
           })
        .status();
  }
};

TEST_F(DriverDaemonSetServerTest, AcceptsEveryFormOfTheDaemonSet) {
  DriverSpec plain{.ns = "default", .version = "550.163.01"};
  DriverSpec full = plain;
  full.kernel_module = KernelModule::kOpen;
  full.rdma = full.use_host_mofed = full.gds = full.gdrcopy = true;
  full.gds_image = "nvcr.io/nvidia/cloud-native/nvidia-fs:2.20.5";
  full.gdrcopy_image = "nvcr.io/nvidia/cloud-native/gdrdrv:v2.4.1";
  full.pull_secrets = {"mine"};
  full.args = {"--accept-license"};
  full.env = {{"HTTPS_PROXY", "http://proxy"}};
  full.repo_config = full.cert_config = full.module_config = "settings";
  full.resources = *ParseJson(R"({"limits":{"memory":"2Gi"}})");
  full.tolerations = *ParseJson(R"([{"key":"a","operator":"Exists"}])");
  DriverSpec precompiled = plain;
  precompiled.precompiled = true;
  precompiled.version = "550";
  const DriverHost ubuntu{"ubuntu", "22.04", "5.15.0-113-generic"};
  const DriverHost sles{"sles", "15.5", "5.14.21-150500.55.49-default"};
  for (const DriverSpec& spec : {plain, full, precompiled}) {
    for (const DriverHost& host : {ubuntu, sles}) {
      for (const bool pinned : {false, true}) {
        const Result<Json> set = RenderDriverDaemonSet(spec, host);
        ASSERT_TRUE(set.ok()) << set.status().ToString();
        const Status applied = Apply(pinned ? PinnedDriverDaemonSet(*set) : *set);
        EXPECT_TRUE(applied.ok()) << applied.ToString() << "\n" << set->Pretty();
      }
    }
  }
  Json broken = *RenderDriverDaemonSet(plain, ubuntu);
  broken.Find("spec")->Set("unknown", Json::Bool(true));
  EXPECT_FALSE(Apply(broken).ok()) << "the server accepts an unknown field";
}

}  // namespace
}  // namespace tessera::operators
