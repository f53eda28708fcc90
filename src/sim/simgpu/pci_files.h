// SPDX-License-Identifier: Apache-2.0
// Writes the kernel's files of GPUs in /sys: the folder of each PCI device with its numbers,
// configuration space and memory regions, its driver, and its IOMMU group. driver_root.h has the
// files in /proc/driver/nvidia, which the driver writes.
//
// The agent, GPU feature discovery (to recognize a vGPU), go-nvlib and node feature discovery read
// these files. Threads: any, one at a time for a root.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/sim/state_layout.h"

namespace tessera::sim {

// "0000:07:00.0", as the kernel names the device.
std::string PciAddressText(const PciAddress& address);

// The 4096 bytes of the configuration space: header, power management, MSI, PCI Express, the empty
// vendor-specific capability that distinguishes a physical GPU from a vGPU, MSI-X. Addresses of
// memory regions derive from `gpu_index`, the index of the GPU in its node.
std::string PciConfigSpace(const GpuFacts& gpu, uint32_t gpu_index);

// The 13 lines of the file `resource`: start, end and flags of each region in PciConfigSpace.
std::string PciResources(const GpuFacts& gpu, uint32_t gpu_index);

// Writes <root>/sys for all GPUs of the node.
Status WritePciFiles(const std::string& root, const StateFile& state);

}  // namespace tessera::sim
