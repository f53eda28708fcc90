// SPDX-License-Identifier: Apache-2.0
// Locates the kernel's files about GPUs. A simulated driver has its own proc/ and sys/ below its
// root; a real driver uses the kernel's /proc and /sys. Callers call these functions before each
// use, because a driver may be installed or removed meanwhile.
//
// Threads: any. Blocks for two file system lookups.
#pragma once

#include <string>

namespace tessera::gpu {

// `driver_root`/proc if it contains driver/nvidia, else `fallback`. An empty root contains nothing.
std::string ProcRootOf(const std::string& driver_root, const std::string& fallback = "/proc");
// `driver_root`/sys if it exists and the driver has its own proc there, else `fallback`.
std::string SysRootOf(const std::string& driver_root, const std::string& fallback = "/sys");

}  // namespace tessera::gpu
