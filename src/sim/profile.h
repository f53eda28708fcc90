// SPDX-License-Identifier: Apache-2.0
// What a simulated node is made of: one model of GPU, how many, how they are linked and where they
// are plugged in. Read from YAML (see profiles/ for examples, README.md for the fields). Not for
// the state of a node that runs; MakeState makes its beginning.
//
// Errors name file, line and field: "my.yaml:7: gpu.memory_mib: 0 is not in 64..1048576".
// Threads: values. For simgpu and tests; not linked into the libraries.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/sim/state_layout.h"

namespace tessera::sim {

// `links` NVLinks between two GPUs.
struct LinkPair {
  uint32_t a = 0, b = 0, links = 0;
};

enum class LinkTopology { kNone, kPairs, kQuads, kNvSwitch, kList };

struct Profile {
  std::string name;
  std::string driver_version = "550.163.01";
  uint32_t cuda_version = 12040;
  GpuFacts gpu = {};  // of every GPU; what differs by GPU is below

  uint32_t gpus = 8;
  uint32_t numa_nodes = 1;  // GPUs are split evenly; 0: the platform does not say
  LinkTopology topology = LinkTopology::kNone;
  uint32_t links = 0;               // of each pair, or of each GPU to the switches
  std::vector<LinkPair> link_list;  // kList
  // NVML topology levels: GPUs 2k and 2k+1; the same half of the node; the rest.
  uint32_t pcie_pair = 10, pcie_half = 30, pcie_across = 50;
  // Where given, at least as many as `gpus`.
  std::vector<uint32_t> pci_buses;
  std::vector<std::string> uuids;
};

// A built-in profile by name, or one from a file if `name_or_file` has a '/' or ends in ".yaml".
// NOT_FOUND names the profiles that there are.
Result<Profile> LoadProfile(const std::string& name_or_file);
// `file` is for messages.
Result<Profile> ParseProfile(std::string_view text, std::string_view file);

// Text of a built-in profile; the names of all.
Result<std::string> ProfileText(std::string_view name);
std::vector<std::string> ProfileNames();

// The state of a fresh node. UUIDs follow from `node_name`, profile and index where the profile
// does not give them, so that nodes differ and the same node comes back the same. INVALID_ARGUMENT
// where the lists of the profile are too short, or its links more than the GPU has.
Result<std::unique_ptr<StateFile>> MakeState(const Profile& profile, std::string_view node_name);

}  // namespace tessera::sim
