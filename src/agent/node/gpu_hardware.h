// SPDX-License-Identifier: Apache-2.0
// Whether the machine has an NVIDIA GPU by its PCI bus, so that it is known without a driver.
#pragma once

#include <string>

namespace tessera::agent {

// Whether `sys_root`/bus/pci/devices has a display controller of NVIDIA; false without that folder.
// Reads one small file for each PCI device.
bool HasGpuHardware(const std::string& sys_root);

}  // namespace tessera::agent
