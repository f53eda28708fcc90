// SPDX-License-Identifier: Apache-2.0
// A node as placement sees it, read from the Node object: allocatable CPU and memory, the GPUs from
// annotation tessera.dev/devices, and the labels that quotas refer to. src/placement has the free
// resources.
//
// Threads: any number, on separate objects. Errors: INVALID_ARGUMENT names the node, the field and
// the value.
#pragma once

#include <string>
#include <string_view>

#include "api/names.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/units.h"
#include "src/device/quantity.h"
#include "src/device/shared_inventory.h"

namespace tessera::device {

struct Node {
  std::string name;
  MilliCpu cpu;               // allocatable
  Bytes memory;               // allocatable
  SharedInventory inventory;  // empty without the annotation
  std::string pool;           // label; empty: none
  // The label. Without a label, the short model (model.h) if all GPUs have the same one; empty if
  // there are no GPUs or several models.
  std::string model;
};

// The parts of a Node object that ParseNode reads.
struct NodeFields {
  std::string name;
  StringMap allocatable;  // status.allocatable: quantities by resource; missing resources are 0
  StringMap labels;
  StringMap annotations;
};

// The labels for pool and model; by default the labels that gpu-manager uses.
struct NodeLabelKeys {
  std::string pool{names::kLabelLegacyGpuPool};
  std::string model{names::kLabelLegacyGpuModel};
};

Result<Node> ParseNode(const NodeFields& object, const NodeLabelKeys& keys = {});

// For users: the short model of the GPUs, "mixed" if they have several, "" without GPUs.
std::string ShortModelOf(const NodeInventory& inventory);

}  // namespace tessera::device
