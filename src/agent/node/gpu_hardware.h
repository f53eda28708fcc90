// SPDX-License-Identifier: Apache-2.0
// Whether the machine has an NVIDIA GPU, asked of the PCI bus, so that it is known without a
// driver.
#pragma once

#include <string>

namespace tessera::agent {

// Looks for display controllers of NVIDIA in `sys_root`/bus/pci/devices; false where there is no
// such folder. Reads one small file for each PCI device.
bool HasGpuHardware(const std::string& sys_root);

}  // namespace tessera::agent
