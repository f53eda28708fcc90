// SPDX-License-Identifier: Apache-2.0
// Reads the node's hardware from the kernel, with or without a driver: NVIDIA's devices on the PCI
// bus, and the name of the machine. Blocks for a few small files. Threads: any.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::agent {

// The vGPU manager on the hypervisor that made this virtual GPU.
struct VgpuHost {
  std::string driver_version;  // "460.16"
  std::string driver_branch;   // "r460_00"
  bool operator==(const VgpuHost&) const = default;
};

struct PciDevice {
  std::string bus_id;     // "0000:07:00.0", as sysfs names it
  std::string pci_class;  // "0x030200", as sysfs writes it: base class, subclass, interface
  // An error: the configuration space could not be read. Nullopt: a physical GPU.
  Result<std::optional<VgpuHost>> vgpu_host = std::optional<VgpuHost>();

  // False for an NVSwitch.
  bool IsGpu() const { return pci_class.starts_with("0x03"); }
};

struct NodeHardware {
  std::string machine;                    // DMI's product name: "DGXA100"; empty if unknown
  std::vector<PciDevice> nvidia_devices;  // sorted by bus ID

  bool HasGpu() const;
  // Returns null if the bus has no such device.
  const PciDevice* Find(std::string_view bus_id) const;
};

// `sys_root`: the path of sysfs, or of a simulated driver's files. `machine_type_file`:
// /sys/class/dmi/id/product_name, or a file with a name that the administrator has chosen.
NodeHardware ReadNodeHardware(const std::string& sys_root, const std::string& machine_type_file);

// The vGPU manager that the configuration space of a PCI device names in its vendor-specific
// capability, as NVIDIA's gpu-feature-discovery v0.20.0 reads it (internal/vgpu). OUT_OF_RANGE
// for less than the 256 bytes that root may read.
Result<std::optional<VgpuHost>> ParseVgpuHost(std::string_view config_space);

}  // namespace tessera::agent
