// SPDX-License-Identifier: Apache-2.0
// The node labels by which NVIDIA's GPU operator selects the nodes of its components:
// nvidia.com/gpu.deploy.<component>=true on nodes with GPUs. DaemonSets select nodes by these
// labels, so a label can turn off or pause a component on a node. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/strings.h"

namespace tessera::driver {

// The changes that a node's labels need. `components`: those that Tessera manages, for example
// "driver". On a node with GPUs each component gets its label. An existing value stays: "false"
// turns a component off, "paused-…" pauses it.
//
// nvidia.com/gpu.deploy.operands=false turns all components off: their labels are removed. On a
// node that lost its GPUs, gpu.present becomes "false" and the components' labels are removed. A
// node that never had GPUs is not changed.
StringChanges DeployLabelChanges(const StringMap& labels, bool has_gpu,
                                 const std::vector<std::string>& components);

// Whether a component is to run on a node with these labels.
bool IsDeployed(const StringMap& labels, std::string_view component);

}  // namespace tessera::driver
