// SPDX-License-Identifier: Apache-2.0
// Decides which GPUs one container gets: by its grant in Kubernetes, by its environment elsewhere.
// Changes nothing. Blocks on the agent for at most Options::grant_timeout. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/oci/config_document.h"
#include "src/oci/injection.h"
#include "src/runtime/options.h"

namespace tessera::runtime {

struct Decision {
  std::string reason;                          // one line for the administrator
  std::optional<oci::Injection> injection;     // nullopt: no GPUs
  std::optional<oci::InjectionTarget> target;  // set if `injection` is
  // Without an injection: GPUs to deny to a container in Kubernetes that may open any device. If
  // empty, the bundle is not edited.
  std::vector<oci::DeviceNode> denied_gpus = {};
};

// Whether the container requests GPUs. Reads only the document.
bool RequestsGpus(const oci::ConfigDocument& document);

// Fails if the agent rejects the request or is unreachable, if the driver root is unusable, if the
// image's requirements are not met, or if the container has no place for driver files.
Result<Decision> Decide(const oci::ConfigDocument& document, const Options& options);

// The pod and name of a container in Kubernetes, from config.json. containerd and CRI-O write these
// annotations after the pod's own, so a tenant cannot forge them.
struct ContainerIdentity {
  bool is_sandbox = false;  // the pod's sandbox (pause) container
  Uid pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
};

// nullopt if the container is not from Kubernetes. Members that the engine does not write stay
// empty.
std::optional<ContainerIdentity> FindContainerIdentity(const oci::ConfigDocument& document);

}  // namespace tessera::runtime
