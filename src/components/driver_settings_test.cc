// SPDX-License-Identifier: Apache-2.0
#include "src/components/driver_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/components/objects.h"
#include "src/components/settings.h"
#include "src/formats/yaml.h"

namespace tessera::components {
namespace {

using ::testing::HasSubstr;

Result<Settings> SettingsWith(std::string_view driver) {
  return ParseSettings(ParseYaml(fmt::format("driver: {}", driver)).value());
}

TEST(DriverSettingsTest, KeysAreThoseOfNvidiasChart) {
  const auto settings = SettingsWith(
      "{enabled: true, repository: r.test, image: gpu-driver, version: '550', usePrecompiled: true,"
      " kernelModuleType: open, imagePullSecrets: [s], rdma: {enabled: true, useHostMofed: true},"
      " manager: {repository: m.test, image: mgr, version: v1}, repoConfig: {configMapName: c},"
      " env: [{name: A, value: b}], args: [--x], upgradePolicy: {maxParallelUpgrades: 3}}");
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_TRUE(settings->agent.driver.enabled);
  const DriverSpec& spec = settings->agent.driver.spec;
  EXPECT_EQ(spec.repository + "/" + spec.image + ":" + spec.version, "r.test/gpu-driver:550");
  EXPECT_TRUE(spec.precompiled && spec.rdma && spec.use_host_mofed);
  EXPECT_EQ(spec.kernel_module, KernelModule::kOpen);
  EXPECT_EQ(spec.manager_image, "m.test/mgr:v1");
  EXPECT_EQ(spec.repo_config, "c");
  EXPECT_EQ(spec.env.at("A"), "b");
  EXPECT_EQ(settings->agent.driver.upgrade_policy.IntAt("maxParallelUpgrades").value(), 3);
}

TEST(DriverSettingsTest, APoolHasItsOwnDriver) {
  const auto settings = ParseSettings(
      ParseYaml("driver: {enabled: true, version: '550.1', env: [{name: A}]}\n"
                "daemonsets: {tolerations: [{key: t}]}\n"
                "pools:\n- {name: h, nodeSelector: {a: h}, driver: {version: '570.1'}}\n"
                "- {name: host, nodeSelector: {a: b}, driver: {enabled: false}}\n")
          .value());
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->agent.driver.spec.name, "default");
  const DriverSettings& pool = settings->pools[0].agent.driver;
  EXPECT_TRUE(pool.enabled);
  EXPECT_EQ(pool.spec.name, "h");
  EXPECT_EQ(pool.spec.version, "570.1");
  EXPECT_TRUE(pool.spec.env.contains("A"));
  EXPECT_EQ(pool.spec.tolerations.items().size(), 1u);
  EXPECT_FALSE(settings->pools[1].agent.driver.enabled);
}

TEST(DriverSettingsTest, InvalidSettingsAreRejectedWithTheirNames) {
  const auto error = [](std::string_view driver) {
    return SettingsWith(driver).status().message();
  };
  EXPECT_THAT(error("{enabled: true}"), HasSubstr("driver.version of \"default\" is missing"));
  EXPECT_THAT(error("{enabled: true, verison: '1'}"), HasSubstr("driver.verison: unknown setting"));
  EXPECT_THAT(error("{kernelModuleType: closed}"), HasSubstr("driver.kernelModuleType"));
  EXPECT_THAT(error("{upgradePolicy: {maxUnavailable: many}}"),
              HasSubstr("driver.upgradePolicy.maxUnavailable"));
  EXPECT_THAT(error("{enabled: true, version: '5', gds: {enabled: true}}"),
              HasSubstr("driver.gds.image"));
  EXPECT_EQ(error("{enabled: false}"), "");
}

TEST(DriverSettingsTest, OnlyTheOperatorInstallsDrivers) {
  const auto check = [](std::string_view yaml) {
    return CheckWithoutOperator(ParseYaml(yaml).value()).message();
  };
  EXPECT_EQ(check("driver: {enabled: false}"), "");
  EXPECT_EQ(check(""), "");
  // ParseSettings would report the missing version instead.
  EXPECT_THAT(check("driver: {enabled: true}"), HasSubstr("tessera install --operator"));
  EXPECT_THAT(check("pools: [{name: a, nodeSelector: {b: c}, driver: {enabled: true}}]"),
              HasSubstr("pools: driver.enabled=true: only tessera-operator installs drivers"));
  EXPECT_THAT(check("driver: 5"), HasSubstr("driver: invalid value 5"));
}

TEST(DriverSettingsTest, TheDriversRightsComeOnlyWithADriver) {
  const auto has = [](const Settings& settings) {
    for (const Component& component : RenderComponents(settings)) {
      if (component.name == kDriverComponent) return true;
    }
    return false;
  };
  EXPECT_FALSE(has(*SettingsWith("{enabled: false}")));
  EXPECT_TRUE(has(*SettingsWith("{enabled: true, version: '550.1'}")));
}

}  // namespace
}  // namespace tessera::components
