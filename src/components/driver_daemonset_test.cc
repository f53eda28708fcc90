// SPDX-License-Identifier: Apache-2.0
#include "src/components/driver_daemonset.h"

#include <gtest/gtest.h>

namespace tessera::components {
namespace {

const DriverHost kUbuntu{"ubuntu", "22.04", "5.15.0-113-generic"};

DriverSpec Spec() { return {.version = "550.163.01"}; }

// A member by a path of names and positions: At(json, "spec", "0", "name").
template <typename... Keys>
const Json& At(const Json& json, Keys... keys) {
  static const Json none;
  const Json* at = &json;
  for (const std::string& key : {std::string(keys)...}) {
    if (at == nullptr) return none;
    const bool in_array = at->is_array();
    if (in_array && std::stoul(key) >= at->items().size()) return none;
    at = in_array ? &at->items()[std::stoul(key)] : at->Find(key);
  }
  return at != nullptr ? *at : none;
}

std::string EnvAt(const Json& container, std::string_view name) {
  for (const Json& each : At(container, "env").items()) {
    if (each.StringAt("name").value_or("") == name) return each.StringAt("value").value_or("");
  }
  return "-";
}

Json Render(const DriverSpec& spec, const DriverHost& host = kUbuntu, bool pinned = false) {
  Result<Json> json = RenderDriverDaemonSet(spec, host);
  EXPECT_TRUE(json.ok()) << json.status().ToString();
  if (!json.ok()) return {};
  return pinned ? PinnedDriverDaemonSet(*json) : *json;
}

TEST(DriverHostTest, TheOperatingSystemIsReadFromTheOsImageOfTheNode) {
  const auto tag = [](std::string_view os_image) {
    const Result<DriverHost> host = DriverHostOf(os_image, "6.1");
    return host.ok() ? OsTag(*host) : host.status().message();
  };
  EXPECT_EQ(tag("Ubuntu 22.04.4 LTS"), "ubuntu22.04");
  EXPECT_EQ(tag("Red Hat Enterprise Linux 9.4 (Plow)"), "rhel9");
  EXPECT_EQ(tag("Rocky Linux 8.10 (Green Obsidian)"), "rocky8");
  EXPECT_EQ(tag("Oracle Linux Server 8.9"), "ol8");
  EXPECT_EQ(tag("Red Hat Enterprise Linux CoreOS 418.94.202410090804-0"), "rhcos418.94");
  EXPECT_EQ(tag("SUSE Linux Enterprise Server 15 SP5"), "sles15.5");
  EXPECT_EQ(tag("Debian GNU/Linux 12 (bookworm)"), "debian12");
  EXPECT_NE(tag("Flatcar Container Linux 3815").find("install the driver on the host"),
            std::string::npos);
}

TEST(DriverImageTest, TagsAreThoseOfNvidiasImages) {
  DriverSpec spec = Spec();
  EXPECT_EQ(*DriverImage(spec, kUbuntu), "nvcr.io/nvidia/driver:550.163.01-ubuntu22.04");
  spec.precompiled = true;
  spec.version = "550";
  EXPECT_EQ(*DriverImage(spec, kUbuntu),
            "nvcr.io/nvidia/driver:550-5.15.0-113-generic-ubuntu22.04");
  EXPECT_FALSE(DriverImage(spec, {"ubuntu", "22.04", ""}).ok());
  spec.version = "sha256:abc";
  EXPECT_EQ(*DriverImage(spec, kUbuntu), "nvcr.io/nvidia/driver@sha256:abc");
  spec.version.clear();
  EXPECT_NE(DriverImage(spec, kUbuntu).status().message().find("driver.version"),
            std::string::npos);
}

TEST(DriverPoolTest, DriverPoolsAreSplitByKernelOnlyForPrecompiledModules) {
  DriverSpec spec = Spec();
  const DriverHost other{"ubuntu", "22.04", "6.8.0-45-generic"};
  EXPECT_EQ(DriverPoolName(spec, kUbuntu), "default-ubuntu22-04");
  EXPECT_EQ(DriverPoolName(spec, kUbuntu), DriverPoolName(spec, other));
  spec.precompiled = true;
  EXPECT_NE(DriverPoolName(spec, kUbuntu), DriverPoolName(spec, other));
  spec.name = std::string(80, 'x');
  EXPECT_LE(DriverPoolName(spec, kUbuntu).size(), 30u);
  EXPECT_NE(DriverPoolName(spec, kUbuntu), DriverPoolName(spec, other));
}

TEST(DriverDaemonSetTest, TheModuleTypeIsOpenProprietaryOrAuto) {
  DriverSpec spec = Spec();
  const auto main = [&] { return At(Render(spec), "spec", "template", "spec", "containers", "0"); };
  EXPECT_EQ(EnvAt(main(), "KERNEL_MODULE_TYPE"), "auto");
  EXPECT_EQ(EnvAt(main(), "OPEN_KERNEL_MODULES_ENABLED"), "-");
  spec.kernel_module = KernelModule::kOpen;
  EXPECT_EQ(EnvAt(main(), "KERNEL_MODULE_TYPE"), "open");
  EXPECT_EQ(EnvAt(main(), "OPEN_KERNEL_MODULES_ENABLED"), "true");
  spec.kernel_module = KernelModule::kProprietary;
  EXPECT_EQ(EnvAt(main(), "KERNEL_MODULE_TYPE"), "proprietary");
  spec.gds = true;
  spec.gds_image = "nvcr.io/nvidia/cloud-native/nvidia-fs:2.20.5";
  EXPECT_NE(RenderDriverDaemonSet(spec, kUbuntu).status().message().find("open kernel"),
            std::string::npos);
}

TEST(DriverDaemonSetTest, PodsAreLikeThoseOfNvidiasOperator) {
  DriverSpec spec = Spec();
  spec.rdma = spec.use_host_mofed = spec.gds = spec.gdrcopy = true;
  spec.gds_image = "nvcr.io/nvidia/cloud-native/nvidia-fs:2.20.5";
  spec.gdrcopy_image = "nvcr.io/nvidia/cloud-native/gdrdrv:v2.4.1";
  const Json set = Render(spec);
  const Json& pod = At(set, "spec", "template", "spec");
  EXPECT_EQ(At(set, "spec", "updateStrategy", "type").string_value(), "OnDelete");
  EXPECT_EQ(At(pod, "nodeSelector", "nvidia.com/gpu.deploy.driver").string_value(), "true");
  EXPECT_EQ(At(pod, "nodeSelector", "tessera.dev/driver-pool").string_value(),
            "default-ubuntu22-04");
  EXPECT_EQ(At(set, "spec", "template", "metadata", "labels", "app.kubernetes.io/component")
                .string_value(),
            "nvidia-driver");
  const Json& main = At(pod, "containers", "0");
  EXPECT_EQ(At(main, "command").Serialize(), R"(["nvidia-driver"])");
  EXPECT_EQ(At(main, "args").Serialize(), R"(["init"])");
  for (const char* name :
       {"GPU_DIRECT_RDMA_ENABLED", "USE_HOST_MOFED", "GDS_ENABLED", "GDRCOPY_ENABLED"})
    EXPECT_EQ(EnvAt(main, name), "true") << name;
  EXPECT_EQ(At(pod, "containers", "1", "command").Serialize(),
            R"(["nvidia-driver","reload_nvidia_peermem"])");
  EXPECT_EQ(At(pod, "containers", "2", "image").string_value(), spec.gds_image + "-ubuntu22.04");
  EXPECT_EQ(At(pod, "containers", "3", "command").Serialize(),
            R"(["nvidia-gdrcopy-driver","install"])");
  EXPECT_EQ(At(pod, "initContainers", "1", "args").Serialize(), R"(["uninstall_driver"])");
  bool propagates = false;
  for (const Json& mount : At(main, "volumeMounts").items()) {
    propagates |= mount.StringAt("mountPath").value_or("") == "/run/nvidia" &&
                  mount.StringAt("mountPropagation").value_or("") == "Bidirectional";
  }
  EXPECT_TRUE(propagates) << "the host must see the driver's root";
}

TEST(DriverDaemonSetTest, OnlyChangesOfTheDriverChangeTheRevision) {
  const std::string revision = *DriverRevision(Spec(), kUbuntu);
  DriverSpec spec = Spec();
  spec.priority_class = "low";
  spec.node_selector["zone"] = "a";
  spec.pull_secrets = {"mine"};
  spec.resources = Json::MakeObject({{"limits", Json::MakeObject({{"cpu", Json::String("1")}})}});
  spec.tolerations.Append(Json::MakeObject({{"operator", Json::String("Exists")}}));
  EXPECT_EQ(*DriverRevision(spec, kUbuntu), revision) << "cosmetic changes restart no driver";
  spec.env["HTTPS_PROXY"] = "http://proxy";
  EXPECT_NE(*DriverRevision(spec, kUbuntu), revision);
  spec = Spec();
  spec.kernel_module = KernelModule::kOpen;
  EXPECT_NE(*DriverRevision(spec, kUbuntu), revision);
  spec = Spec();
  spec.version = "570.86.15";
  EXPECT_NE(*DriverRevision(spec, kUbuntu), revision);
  const Json set = Render(Spec());
  EXPECT_EQ(EnvAt(At(set, "spec", "template", "spec", "containers", "0"), "DRIVER_CONFIG_DIGEST"),
            revision);
}

TEST(DriverDaemonSetTest, EqualDriversOfTwoPoolsHaveTwoRevisions) {
  DriverSpec other = Spec();
  other.name = "other";
  EXPECT_NE(*DriverRevision(other, kUbuntu), *DriverRevision(Spec(), kUbuntu))
      << "a rollback would move a node to the DaemonSet of the other pool";
}

TEST(DriverDaemonSetTest, ANodeThatWasRolledBackBelongsToTheDaemonSetOfItsRevision) {
  const std::string revision = *DriverRevision(Spec(), kUbuntu);
  const Json pinned = Render(Spec(), kUbuntu, true);
  EXPECT_EQ(At(pinned, "spec", "template", "spec", "nodeSelector", "tessera.dev/driver-revision")
                .string_value(),
            revision);
  EXPECT_NE(At(pinned, "metadata", "name"), At(Render(Spec()), "metadata", "name"));
  EXPECT_NE(Render(Spec()).Serialize().find(
                R"({"key":"tessera.dev/driver-revision","operator":"DoesNotExist"})"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::components
