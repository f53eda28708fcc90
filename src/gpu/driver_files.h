// SPDX-License-Identifier: Apache-2.0
// Where to read the kernel's files about GPUs. A simulated driver brings its own proc/ and sys/
// below its root; a real one has those of the kernel. Asked anew each time, because a driver comes
// and goes while we run. Threads: any. Blocks for two looks at the file system.
#pragma once

#include <string>

namespace tessera::gpu {

// `driver_root`/proc where that has driver/nvidia, else `otherwise`. An empty root has nothing.
std::string ProcRootOf(const std::string& driver_root, const std::string& otherwise = "/proc");
// `driver_root`/sys where the driver has that and its own proc, else `otherwise`.
std::string SysRootOf(const std::string& driver_root, const std::string& otherwise = "/sys");

}  // namespace tessera::gpu
