// SPDX-License-Identifier: Apache-2.0
// The device files of a simulated node: made, remembered and removed. What was made stands in a
// file beside the state, with absolute paths, so that it is found again whatever the folder, the
// options or the number of GPUs are then. What was there before belongs to somebody else, a real
// driver for one, and is never removed.
//
// Threads: any, one at a time for a node.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/sim/state_layout.h"

namespace tessera::sim {

struct DeviceFile {
  std::string path;
  mode_t type = 0;   // S_IFCHR or S_IFREG
  dev_t number = 0;  // of a character device
  bool operator==(const DeviceFile&) const = default;
};

inline constexpr unsigned kNvidiaMajor = 195;
inline constexpr unsigned kUvmMajor = 510;  // the kernel gives it out at run time; a usual one

// Those of a node, below `dev_root`/dev.
std::vector<DeviceFile> DeviceFilesOf(const StateFile& state, const std::string& dev_root,
                                      mode_t type);

// Makes `wanted` and removes what was made for this node before and is not wanted any more.
// ALREADY_EXISTS: there is something else of that name.
Status MakeDeviceFiles(const std::string& state_dir, const std::vector<DeviceFile>& wanted);
// Removes what was made for this node.
Status RemoveDeviceFiles(const std::string& state_dir);
// Removes the file if it is what `file` says: that device, or an empty file.
void RemoveDeviceFile(const DeviceFile& file);

}  // namespace tessera::sim
