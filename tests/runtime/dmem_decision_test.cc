// SPDX-License-Identifier: Apache-2.0
// The kernel's limit of device memory (the dmem controller), as decided for a container. No kernel
// on our test machines has the controller, so the test makes its files in the format of the
// kernel's documentation.
#include <gtest/gtest.h>

#include "src/limiter/limits_file.h"
#include "src/oci/testing/fake_driver.h"
#include "src/runtime/decision.h"
#include "tests/runtime/one_answer.h"

namespace tessera::runtime {
namespace {

constexpr const char* kConfig = R"({
  "ociVersion": "1.0.2",
  "process": {"args": ["/init"], "env": ["TESSERA_GRANT_NVIDIA_COM_GPU=v1:00:00:GPU-2"]},
  "root": {"path": "rootfs"},
  "mounts": [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}],
  "annotations": {"io.kubernetes.cri.container-type": "container",
                  "io.kubernetes.cri.sandbox-uid": "0f5a1c86-1c4f-4d0e-9b3c-0d6f6a9b1a11",
                  "io.kubernetes.cri.sandbox-namespace": "team",
                  "io.kubernetes.cri.sandbox-name": "trainer",
                  "io.kubernetes.cri.container-name": "main"}
})";

class DmemDecisionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const oci::FakeDriverOptions driver = oci::TwoGpus();
    ASSERT_TRUE(oci::MakeFakeDriver(path("driver"), driver).ok());
    const Status nodes = oci::MakeFakeNodes(path("driver"), driver);
    if (!nodes.ok()) GTEST_SKIP() << "device nodes cannot be made here: " << nodes.message();
    ASSERT_TRUE(MakeDirs(path("bundle/rootfs/dev")).ok());
    ASSERT_TRUE(MakeDirs(path("limits")).ok());
    limiter::LimitsFile limits;
    ASSERT_EQ(limits.Open(path("limits/limits").c_str()), 0);
    Write("cgroup.controllers", "cpu memory dmem\n");
    Write("cgroup.subtree_control", "cpu memory dmem\n");
    std::string capacity = "drm/0000:ff:00.0/vram0 85899345920\n";
    for (const oci::FakeGpu& gpu : driver.gpus) {
      capacity += fmt::format("drm/{}/vram0 85899345920\n", gpu.bus_id);
      if (gpu.minor == 0) granted_bus_ = gpu.bus_id;
    }
    Write("dmem.capacity", capacity);
    options_.driver_tree_dir = "";
    options_.grant_socket = path("grant.sock");
    options_.cgroup_root = path("cgroup");
  }

  std::string path(const std::string& name) const { return JoinPath(folder_.path(), name); }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(MakeDirs(path("cgroup")).ok());
    ASSERT_TRUE(WriteFileAtomically(path("cgroup/" + name), text, 0644).ok());
  }

  // Returns dmem.max of a container that has 5 GiB of the GPU with minor 0, or all of that GPU.
  std::string DmemMax(bool is_share) {
    grant::Grant grant = GrantOfSecondGpu(path("driver"));
    grant.devices[0].bytes = int64_t{5} << 30;
    if (is_share) grant.limits_dir = path("limits");
    const OneAnswer agent(options_.grant_socket, grant);
    const auto document = oci::ConfigDocument::Parse(kConfig, path("bundle"));
    EXPECT_TRUE(document.ok());
    const auto decision = Decide(*document, options_);
    EXPECT_TRUE(decision.ok() && decision->injection) << decision.status().ToString();
    return decision.ok() && decision->injection ? decision->injection->dmem_max : "?";
  }

  TempDir folder_{"tessera-dmem-test"};
  Options options_;
  std::string granted_bus_;
};

TEST_F(DmemDecisionTest, AShareIsLimitedByTheKernelOnItsGpuAlone) {
  EXPECT_EQ(DmemMax(true), fmt::format("drm/{}/vram0 {}", granted_bus_, int64_t{9} << 30));
}

TEST_F(DmemDecisionTest, AWholeGpuIsNotLimitedByTheKernel) { EXPECT_EQ(DmemMax(false), ""); }

TEST_F(DmemDecisionTest, AKernelWhoseContainersLackTheControllerLimitsNothing) {
  Write("cgroup.subtree_control", "cpu memory\n");
  EXPECT_EQ(DmemMax(true), "");
}

}  // namespace
}  // namespace tessera::runtime
