// SPDX-License-Identifier: Apache-2.0
// Makes missing device nodes of the driver, as nvidia-modprobe does, so that no GPU is lost for
// want of a file, and removes those that it made for GPUs that are gone. Correct nodes stay
// untouched; a file of another kind in their place is an error and stays. Not for loading kernel
// modules (kernel_module.h). Needs CAP_MKNOD. Blocks briefly; threads: one.
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
  std::vector<std::string> made;  // paths
  std::vector<std::string> removed;
  std::vector<std::string> problems;  // for users: files in the way, reasons of skipped nodes
};

class DeviceNodes {
 public:
  // A problem with one node does not stop the others. Removes only nodes that this object made, and
  // only while the driver lists the minors of all its GPUs.
  DeviceNodeReport Update(const DeviceNodeOptions& options);

 private:
  // A node, or the link to one.
  struct Made {
    std::string path;
    dev_t number;
    bool is_link;
  };
  void Record(Made made, DeviceNodeReport* report);

  std::vector<Made> made_;
};

// The major number of one of `names` in the text of /proc/devices, section "Character devices".
std::optional<uint32_t> FindMajor(std::string_view proc_devices,
                                  const std::vector<std::string_view>& names);

}  // namespace tessera::agent
