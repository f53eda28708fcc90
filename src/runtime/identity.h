// SPDX-License-Identifier: Apache-2.0
// The pod and name of a container in Kubernetes, from config.json. containerd and CRI-O write these
// annotations after the pod's own, so a tenant cannot forge them. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/base/uid.h"
#include "src/oci/config_document.h"

namespace tessera::runtime {

struct Identity {
  bool is_sandbox = false;  // the pod's sandbox (pause) container
  Uid pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
};

// nullopt if the container is not from Kubernetes. Members that the engine does not write stay
// empty.
std::optional<Identity> FindIdentity(const oci::ConfigDocument& document);

}  // namespace tessera::runtime
