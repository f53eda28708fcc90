// SPDX-License-Identifier: Apache-2.0
// What the kernel module says about GPUs in /proc/driver/nvidia/gpus, for GPUs that do not tell
// NVML who they are. Private to this room.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::gpu {

struct ProcGpu {
  std::string uuid;
  std::string model;
  std::string pci_bus_id;
  std::optional<int> minor;
};

// One "information" file; nothing where it names no valid UUID (a GPU that never woke has
// question marks there).
std::optional<ProcGpu> ParseProcGpu(std::string_view text);

// All of `proc_root`/driver/nvidia/gpus, by PCI address; empty where there is no such folder.
// Blocks.
std::vector<ProcGpu> ReadProcGpus(const std::string& proc_root);

// `sys_root`/bus/pci/devices/<bus id>/numa_node; nothing where it is negative or missing. Blocks.
std::optional<int> ReadNumaNode(const std::string& sys_root, const std::string& pci_bus_id);

}  // namespace tessera::gpu
