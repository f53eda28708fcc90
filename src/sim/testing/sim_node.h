// SPDX-License-Identifier: Apache-2.0
// A simulated node for a test: a driver root and device files in a temporary folder, which the
// destructor removes. Environment variables make libraries and programs of the test use it.
//
//   sim::testing::SimNode node({.profile = "a100-sxm4-40gb", .gpus = 8});
//   NvmlLibraryLoader loader(node.driver_root());
//
// Threads: create it before other threads start, because it sets environment variables.
#pragma once

#include <string>

#include "src/base/file.h"
#include "src/base/machine.h"
#include "src/sim/simgpu/driver_root.h"
#include "src/sim/state.h"

namespace tessera::sim::testing {

struct SimNodeOptions {
  std::string profile = "a100-sxm4-80gb";  // or a YAML file, or its text
  uint32_t gpus = 0;                       // 0: as in the profile
  std::string name = "node";
};

class SimNode {
 public:
  explicit SimNode(const SimNodeOptions& options = {});
  ~SimNode();
  SimNode(const SimNode&) = delete;
  SimNode& operator=(const SimNode&) = delete;

  // <temp>/driver, and <temp>, where dev/nvidia0 … are plain files.
  std::string driver_root() const { return dir_.path() + "/driver"; }
  std::string dev_root() const { return dir_.path(); }
  std::string library(const std::string& name) const {
    return driver_root() + "/usr/lib/" TESSERA_MULTIARCH "/" + name;
  }
  State& state() { return state_; }

 private:
  TempDir dir_;
  State state_;
};

}  // namespace tessera::sim::testing
