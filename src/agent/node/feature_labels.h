// SPDX-License-Identifier: Apache-2.0
// The node labels of NVIDIA's GPU feature discovery (gpu-feature-discovery v0.20.0): same names,
// same values, without its DaemonSet and without node feature discovery. The values are those of
// MIG strategy "none", because MIG slices are not offered yet. nvidia.com/gfd.timestamp is left
// out, because it alone would change without a change of the node.
//
// A node with several models gets the labels of its most frequent model. Of equally frequent
// models, the alphabetically first is used. GPU feature discovery takes any of them, and perhaps
// another after a restart.
//
// Pure; any thread.
#pragma once

#include "src/agent/node/node_hardware.h"
#include "src/base/strings.h"
#include "src/device/gpu.h"

namespace tessera::agent {

// Returns every feature label; a label that does not apply has no value. Without a GPU no label has
// a value.
StringChanges FeatureLabels(const device::NodeInventory& inventory, const NodeHardware& hardware);

}  // namespace tessera::agent
