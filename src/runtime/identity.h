// SPDX-License-Identifier: Apache-2.0
// Who a container is in Kubernetes, from what the engine wrote into config.json. containerd and
// CRI-O write these annotations after the pod's own, so a tenant cannot forge them. Pure; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/oci/config_document.h"

namespace tessera::runtime {

struct Identity {
  bool is_sandbox = false;  // the pod's own container; it gets nothing
  std::string pod_uid;
  std::string pod_namespace;
  std::string pod_name;
  std::string container;
};

// Nothing where the container is not of Kubernetes. Members that the engine does not tell are
// empty.
std::optional<Identity> FindIdentity(const oci::ConfigDocument& document);

}  // namespace tessera::runtime
