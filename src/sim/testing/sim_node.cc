// SPDX-License-Identifier: Apache-2.0
#include "src/sim/testing/sim_node.h"

#include <stdlib.h>

namespace tessera::sim::testing {
namespace {

Profile ProfileOf(const SimNodeOptions& options) {
  const bool is_text = options.profile.find('\n') != std::string::npos;
  auto profile = is_text ? ParseProfile(options.profile, "test") : LoadProfile(options.profile);
  if (!profile.ok()) CheckFailed(__FILE__, __LINE__, profile.status().ToString());
  if (options.gpus != 0) profile->gpus = options.gpus;
  return *profile;
}

}  // namespace

SimNode::SimNode(const SimNodeOptions& options) : dir_("simnode") {
  DriverRootOptions root;
  root.profile = ProfileOf(options);
  root.node_name = options.name;
  root.root = driver_root();
  root.dev_root = dev_root();
  root.device_files = DeviceFiles::kPlain;
  root.library_dir = SIM_LIBRARY_DIR;
  root.program_dir = SIM_PROGRAM_DIR;
  const Status status = CreateDriverRoot(root);
  if (!status.ok()) CheckFailed(__FILE__, __LINE__, status.ToString());
  setenv("SIMGPU_DEV_ROOT", dev_root().c_str(), 1);
  setenv("SIMGPU_STATE_DIR", StateDir(driver_root()).c_str(), 1);
  TESSERA_CHECK(state_.Open(StateDir(driver_root())) == 0);
}

SimNode::~SimNode() {
  unsetenv("SIMGPU_DEV_ROOT");
  unsetenv("SIMGPU_STATE_DIR");
}

}  // namespace tessera::sim::testing
