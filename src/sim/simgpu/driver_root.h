// SPDX-License-Identifier: Apache-2.0
// Creates a simulated driver in the layout of a real installation: versioned libraries with SONAME
// links, nvidia-smi, files of the kernel module in /proc and of PCI in /sys, the state of the node,
// and device nodes. Programs that read a real driver root can read this one.
//
// In a test, one call creates a node: CreateDriverRoot({.root = temp.path() + "/driver", ...}).
// Threads: any, one at a time for a root.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/sim/profile.h"

namespace tessera::sim {

enum class DeviceFiles {
  kNone,
  kNodes,  // character devices 195:<minor> …; needs root
  kPlain,  // empty files, for tests without permission to create devices
};

struct DriverRootOptions {
  Profile profile;
  std::string node_name = "node";
  std::string root;
  // Folder of the simulated libraries and nvidia-smi; empty: the folders beside this program.
  std::string library_dir;
  std::string program_dir;
  DeviceFiles device_files = DeviceFiles::kNone;
  std::string dev_root;  // device files are in <dev_root>/dev
};

// Creates or replaces the driver root, and removes device files that only the old root had.
// ALREADY_EXISTS: `root` has other contents, or another file has the name of a device file.
// NOT_FOUND: libraries are missing; the message names the searched folders.
Status CreateDriverRoot(const DriverRootOptions& options);

// Removes the driver root and all device files that were created with it. With a `dev_root`, also
// removes device files of these GPUs in <dev_root>/dev that other programs created. NOT_FOUND: no
// simulated driver at `root`.
Status DestroyDriverRoot(const std::string& root, const std::string& dev_root);

std::string StateDir(const std::string& root);

}  // namespace tessera::sim
