// SPDX-License-Identifier: Apache-2.0
// Renders the DaemonSet of NVIDIA's driver container for one pool of nodes: nodes with the same
// driver specification, operating system and, for precompiled modules, kernel. Image tags, programs
// and environment are those that NVIDIA's images expect.
//
// The DaemonSet replaces its pods only when they are deleted; src/operator/driver decides when. The
// pod label tessera.dev/driver-revision is a hash of all settings that determine the driver: image,
// modules, environment, and the pool. Changes of labels, limits or tolerations do not change the
// revision, so they replace no pod.
//
// Before the old driver is unloaded, the agent of the node closes it (init container
// release-driver). The agent opens the new driver when the driver container is ready.
//
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "src/base/status.h"
#include "src/components/driver_settings.h"
#include "src/formats/json.h"

namespace tessera::components {

// The facts of a node that determine its driver image.
struct DriverHost {
  std::string os_id;       // "ubuntu"
  std::string os_version;  // "22.04"
  std::string kernel;      // "5.15.0-113-generic"; used for precompiled modules
  bool operator==(const DriverHost&) const = default;
};

// From a Node's nodeInfo.osImage and kernelVersion: "Ubuntu 22.04.4 LTS". UNIMPLEMENTED names a
// system for which NVIDIA has no driver image.
Result<DriverHost> DriverHostOf(std::string_view os_image, std::string_view kernel);

// "ubuntu22.04"; for Red Hat's family only the major version: "rhel9".
std::string OsTag(const DriverHost& host);

// "nvcr.io/nvidia/driver:550.163.01-ubuntu22.04"; with precompiled modules
// "…/driver:550-5.15.0-113-generic-ubuntu22.04"; by digest "…/driver@sha256:…". INVALID_ARGUMENT as
// for CheckDriver, or if precompiled modules are wanted and `host` has no kernel.
Result<std::string> DriverImage(const DriverSpec& spec, const DriverHost& host);

// The value of the node label tessera.dev/driver-pool by which the DaemonSet selects nodes like
// `host`: "default-ubuntu22-04". The kernel is part of the name only if modules are precompiled.
std::string DriverPoolName(const DriverSpec& spec, const DriverHost& host);

// The revision of the driver: 16 hexadecimal digits.
Result<std::string> DriverRevision(const DriverSpec& spec, const DriverHost& host);

// The version of the driver that this DaemonSet installs, as shown to users: "550.163.01", or
// "sha256:" and twelve digits for an image without a version.
std::string DriverVersionOf(const Json& set);

// The DaemonSet excludes nodes that a rollback has pinned by the label tessera.dev/driver-revision.
// Errors as for DriverImage.
Result<Json> RenderDriverDaemonSet(const DriverSpec& spec, const DriverHost& host);

// The DaemonSet that keeps nodes on an earlier driver after a rollback. `set`: the pool's earlier
// DaemonSet with this driver. Selects nodes whose label tessera.dev/driver-revision has the
// revision of `set`.
Json PinnedDriverDaemonSet(const Json& set);

}  // namespace tessera::components
