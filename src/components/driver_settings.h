// SPDX-License-Identifier: Apache-2.0
// The settings of the driver of a pool of nodes: the section `driver`, with the keys of NVIDIA's
// chart. Only the operator installs drivers.
//
// Threads: settings are values, and each thread may use its own copy; the functions are pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera::components {

enum class KernelModule { kAuto, kOpen, kProprietary };

struct DriverSpec {
  std::string name = "default";  // of the pool
  std::string ns{names::kSystemNamespace};
  std::string repository = "nvcr.io/nvidia";
  std::string image = "driver";
  // "550.163.01"; a branch, "550", with precompiled modules; or a digest, "sha256:…".
  std::string version;
  std::string pull_policy = "IfNotPresent";
  std::vector<std::string> pull_secrets;
  KernelModule kernel_module = KernelModule::kAuto;
  bool precompiled = false;
  bool rdma = false;
  bool use_host_mofed = false;
  bool gds = false;
  bool gdrcopy = false;
  std::string gds_image;      // REPOSITORY/IMAGE:VERSION without the suffix of OsTag
  std::string gdrcopy_image;  // like gds_image
  std::string manager_image = "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.8.1";
  std::vector<std::string> args;
  StringMap env;
  StringMap node_selector;
  // In addition to those of every driver pod: all NoSchedule taints, nvidia.com/gpu and
  // CriticalAddonsOnly.
  Json tolerations = Json::MakeArray();
  Json resources = Json::MakeObject();
  std::string priority_class = "system-node-critical";
  std::string repo_config;    // ConfigMap with package sources; "": none
  std::string cert_config;    // ConfigMap with certificates; "": none
  std::string module_config;  // ConfigMap with nvidia.conf; "": none
  std::string install_dir{names::kDriverContainerRoot};
};

struct DriverSettings {
  bool enabled = false;
  DriverSpec spec;
  // driver.upgradePolicy, which src/operator/driver reads.
  Json upgrade_policy = Json::MakeObject();
};

// Reads a section that the schema has accepted. Without a section (null) no driver is installed.
// `pool`: the name of the pool.
DriverSettings ReadDriver(const Json* section, const std::string& pool);

// INVALID_ARGUMENT names the setting that is missing or contradicts another setting.
Status CheckDriver(const DriverSpec& spec);

}  // namespace tessera::components
