// SPDX-License-Identifier: Apache-2.0
// Decides which GPUs one container gets: by its grant in Kubernetes, by its environment elsewhere.
// Changes nothing. Blocks on the agent for at most Options::grant_timeout. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/oci/config_document.h"
#include "src/oci/injection.h"
#include "src/runtime/options.h"

namespace tessera::runtime {

struct Decision {
  std::string reason;                             // one line for the operator
  std::optional<oci::Injection> injection;        // nullopt: no GPUs
  std::optional<oci::InjectionTarget> placement;  // set if `injection` is
  // Without an injection: GPUs that a privileged container in Kubernetes would otherwise see. If
  // empty, the bundle is not edited.
  std::vector<oci::DeviceNode> withheld = {};
};

// Whether the container requests GPUs. Reads only the document.
bool RequestsGpus(const oci::ConfigDocument& document);

// Fails if the agent rejects the request or is unreachable, if the driver root is unusable, if the
// image's requirements are not met, or if the container has no place for driver files.
Result<Decision> Decide(const oci::ConfigDocument& document, const Options& options);

}  // namespace tessera::runtime
