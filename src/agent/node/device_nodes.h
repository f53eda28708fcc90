// SPDX-License-Identifier: Apache-2.0
// Makes the driver's device nodes where they are missing, as nvidia-modprobe does, so that a GPU is
// not lost for want of a file, and takes away those that it made for GPUs that are gone. Nodes that
// are right are not touched; a file of another kind in their place is an error and stays. Not for
// loading kernel modules. Needs CAP_MKNOD. Blocks a little; threads: one.
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
  // As this process sees them. /proc of the driver: driver/nvidia/gpus/*/information tells minors.
  std::string proc_root = "/proc";
  std::string dev_root = "/";
  // Called with the name of a module that has to be loaded; may be empty.
  std::function<void(const std::string& module)> load_module;
};

struct DeviceNodeReport {
  std::vector<std::string> made;  // paths
  std::vector<std::string> removed;
  std::vector<std::string>
      problems;  // for people: what stands in the way, or why a node is skipped
};

class DeviceNodes {
 public:
  // Goes on after a problem with one node. Removes only what this object made, and only while the
  // driver tells the minors of all its GPUs: what somebody else made is theirs.
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
