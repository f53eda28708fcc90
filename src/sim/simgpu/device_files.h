// SPDX-License-Identifier: Apache-2.0
// Creates, records and removes the device files of a simulated node. A file beside the state
// records the created files with absolute paths. So they are found again even if the working
// folder, the options or the number of GPUs has changed. Files that existed before belong to
// another program, such as a real driver, and are never removed.
//
// Threads: any, one at a time for a node.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/sim/state.h"

namespace tessera::sim {

struct DeviceFile {
  std::string path;
  mode_t type = 0;   // S_IFCHR or S_IFREG
  dev_t number = 0;  // for a character device
  bool operator==(const DeviceFile&) const = default;
};

inline constexpr unsigned kNvidiaMajor = 195;
inline constexpr unsigned kUvmMajor = 510;  // a usual number; the kernel assigns it at run time
// Minor numbers of the capabilities that belong to no instance (src/sim/state.h).
inline constexpr unsigned kMigConfigMinor = 1, kMigMonitorMinor = 2;

// Whether a GPU of the node supports MIG.
bool HasMig(const StateFile& state);

// The device files of a node, in `dev_root`/dev.
std::vector<DeviceFile> DeviceFilesOf(const StateFile& state, const std::string& dev_root,
                                      mode_t type);

// Creates `wanted`, which may be empty, and removes other files that were created for this node.
// ALREADY_EXISTS: another file has one of the names.
Status ReplaceDeviceFiles(const std::string& state_dir, const std::vector<DeviceFile>& wanted);
// Removes `file.path` if it is a device with `file.number`, or, for S_IFREG, an empty file.
void RemoveDeviceFile(const DeviceFile& file);

}  // namespace tessera::sim
