// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/deploy_labels.h"

#include <gtest/gtest.h>

namespace tessera::driver {
namespace {

const std::vector<std::string> kComponents = {"driver", "device-plugin"};

TEST(DeployLabelsTest, ANodeWithGpusIsMarked) {
  EXPECT_EQ(DeployLabelChanges({}, true, kComponents),
            (StringChanges{{"nvidia.com/gpu.present", "true"},
                           {"nvidia.com/gpu.deploy.driver", "true"},
                           {"nvidia.com/gpu.deploy.device-plugin", "true"}}));
}

TEST(DeployLabelsTest, ValuesOfAdministratorsAndPausesStay) {
  const StringMap labels = {{"nvidia.com/gpu.present", "true"},
                            {"nvidia.com/gpu.deploy.driver", "false"},
                            {"nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade"}};
  EXPECT_TRUE(DeployLabelChanges(labels, true, kComponents).empty());
  EXPECT_FALSE(IsDeployed(labels, "driver"));
  EXPECT_FALSE(IsDeployed(labels, "device-plugin"));
}

TEST(DeployLabelsTest, OneLabelTurnsAllOff) {
  const StringMap labels = {{"nvidia.com/gpu.present", "true"},
                            {"nvidia.com/gpu.deploy.operands", "false"},
                            {"nvidia.com/gpu.deploy.driver", "true"}};
  EXPECT_EQ(DeployLabelChanges(labels, true, kComponents),
            (StringChanges{{"nvidia.com/gpu.deploy.driver", std::nullopt}}));
}

TEST(DeployLabelsTest, ANodeThatLostItsGpusKeepsOnlyTheLabelThatSaysSo) {
  const StringMap labels = {{"nvidia.com/gpu.present", "true"},
                            {"nvidia.com/gpu.deploy.driver", "true"}};
  EXPECT_EQ(DeployLabelChanges(labels, false, kComponents),
            (StringChanges{{"nvidia.com/gpu.present", "false"},
                           {"nvidia.com/gpu.deploy.driver", std::nullopt}}));
  EXPECT_TRUE(DeployLabelChanges({{"zone", "a"}}, false, kComponents).empty());
  EXPECT_TRUE(
      DeployLabelChanges({{"nvidia.com/gpu.present", "false"}}, false, kComponents).empty());
}

}  // namespace
}  // namespace tessera::driver
