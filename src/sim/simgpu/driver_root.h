// SPDX-License-Identifier: Apache-2.0
// Lays out a simulated driver the way a real installation looks: libraries with their version in
// the name and SONAME links, nvidia-smi, what the kernel module shows in /proc and PCI in /sys, the
// state of the node, and device nodes. What reads a real driver root reads this one.
//
// In a test, one call makes a node: CreateDriverRoot({.root = temp.path() + "/driver", ...}).
// Threads: any, one at a time for a root.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/sim/profile.h"

namespace tessera::sim {

enum class DeviceFiles {
  kNone,
  kNodes,  // character devices 195:<minor> …; wants root
  kPlain,  // empty files, for tests that may not make devices
};

struct DriverRootOptions {
  Profile profile;
  std::string node_name = "node";
  std::string root;
  // Where the simulated libraries and nvidia-smi are; empty: found beside this program.
  std::string library_dir;
  std::string program_dir;
  DeviceFiles device_files = DeviceFiles::kNone;
  std::string dev_root;  // device files go below <dev_root>/dev
};

// Makes or replaces the driver root; device files that the old one had and the new one has not go.
// ALREADY_EXISTS: `root` holds other things than a simulated driver, or a device file's name is
// taken. Missing libraries: NOT_FOUND with the places that were searched.
Status CreateDriverRoot(const DriverRootOptions& options);

// Removes the driver root and the device files that were made with it, wherever; with a `dev_root`
// also those in its dev folder that somebody else made for these GPUs. NOT_FOUND: there is none.
Status DestroyDriverRoot(const std::string& root, const std::string& dev_root);

std::string StateDir(const std::string& root);

}  // namespace tessera::sim
