// SPDX-License-Identifier: Apache-2.0
// Makes missing device nodes of the driver, as nvidia-modprobe does, so that no GPU is unusable
// because a file is missing. Removes nodes that it made for GPUs that no longer exist. Correct
// nodes stay untouched; a file of another kind in their place is an error and stays. Loads kernel
// modules with modprobe. Needs CAP_MKNOD, CAP_SYS_MODULE and CAP_SYS_CHROOT. Blocks briefly, or
// until the module is loaded; threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::agent {

struct DeviceNodeOptions {
  // Paths in this process. The minors are in driver/nvidia/gpus/*/information of /proc.
  std::string proc_root = "/proc";
  std::string dev_root = "/";
  // Called with the name of a module to load; may be null.
  std::function<void(const std::string& module)> load_module;
};

struct DeviceNodeReport {
  std::vector<std::string> made_paths;
  std::vector<std::string> removed_paths;
  std::vector<std::string> problems;  // for users: files in the way, reasons of skipped nodes
};

class DeviceNodes {
 public:
  // A problem with one node does not stop the others. Removes only nodes that this object made, and
  // only while the driver lists the minors of all its GPUs.
  DeviceNodeReport Update(const DeviceNodeOptions& options);

 private:
  // A device node, or a link to a device node.
  struct CreatedNode {
    std::string path;
    dev_t number;
    bool is_link;
  };
  void Record(CreatedNode node, DeviceNodeReport* report);

  std::vector<CreatedNode> created_nodes_;
};

// The major number of the first of `names` in the text of /proc/devices, section "Character
// devices".
std::optional<uint32_t> FindMajor(std::string_view proc_devices,
                                  const std::vector<std::string_view>& names);

// Runs the modprobe of the root file system that holds the module's files. OK also if the module is
// loaded already. NOT_FOUND: no modprobe below `root`.
// FAILED_PRECONDITION: modprobe failed; the message has its exit code and what to do.
Status LoadKernelModule(const std::string& root, const std::string& module);

}  // namespace tessera::agent
