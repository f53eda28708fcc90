// SPDX-License-Identifier: Apache-2.0
// What one container gets, and why: by its grant in Kubernetes, by its environment elsewhere.
// Nothing is changed by deciding. Blocks on the agent for at most Options::grant_timeout. Threads:
// one.
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
  std::string reason;                       // one line, for people
  std::optional<oci::Injection> injection;  // nothing: it gets nothing
  std::optional<oci::Placement> placement;  // with an injection
  // Without one: GPUs that a privileged container of Kubernetes would see. Where there are none the
  // container passes untouched.
  std::vector<oci::DeviceNode> withheld = {};
};

// Whether Decide would look for GPUs at all. Reads nothing but the document.
bool AsksForGpus(const oci::ConfigDocument& document);

// Errors are of the agent (refused, not there), of the driver root, of the image's requirements, or
// of a container that has no place for driver files.
Result<Decision> Decide(const oci::ConfigDocument& document, const Options& options);

}  // namespace tessera::runtime
