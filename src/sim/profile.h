// SPDX-License-Identifier: Apache-2.0
// The profile of a simulated node: model, number, links and slots of its GPUs. Read from YAML (see
// profiles/ for examples, README.md for the fields). MakeState creates the first state of a node
// (state.h) from it.
//
// Errors name file, line and field: "my.yaml:7: gpu.memory_mib: invalid value 0: want 64 to
// 1048576". Threads: any. For simgpu and tests; not linked into the libraries.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/sim/state_layout.h"

namespace tessera::sim {

// Two GPUs with `links` NVLinks between them.
struct LinkPair {
  uint32_t a = 0, b = 0, links = 0;
};

enum class LinkTopology { kNone, kPairs, kQuads, kNvSwitch, kList };

struct Profile {
  std::string name;
  std::string driver_version = "550.163.01";
  uint32_t cuda_version = 12040;
  GpuFacts gpu = {};  // facts that all GPUs share

  uint32_t gpus = 8;
  uint32_t numa_nodes = 1;  // GPUs are split evenly; 0: the platform reports none
  LinkTopology topology = LinkTopology::kNone;
  uint32_t links = 0;               // links of each pair, or of each GPU to the switches
  std::vector<LinkPair> link_list;  // kList
  // NVML topology levels between GPUs 2k and 2k+1, within a half of the node, and between the
  // halves.
  uint32_t pcie_pair = 10, pcie_half = 30, pcie_across = 50;
  // Empty, or at least `gpus` entries.
  std::vector<uint32_t> pci_buses;
  std::vector<std::string> uuids;
};

// Loads a built-in profile by name, or a file if `name_or_file` has a '/' or ends in ".yaml".
// NOT_FOUND names the built-in profiles.
Result<Profile> LoadProfile(const std::string& name_or_file);
// Parses YAML; `file` is its name in messages.
Result<Profile> ParseProfile(std::string_view text, std::string_view file);

// The text of a built-in profile, and the names of all built-in profiles.
Result<std::string> ProfileText(std::string_view name);
std::vector<std::string> ProfileNames();

// Creates the state of a new node. UUIDs that the profile does not give are hashes of `node_name`,
// profile and index. So they differ between nodes and stay the same for one node.
// INVALID_ARGUMENT: lists of the profile are too short, or it gives a GPU more links than the GPU
// has.
Result<std::unique_ptr<StateFile>> MakeState(const Profile& profile, std::string_view node_name);

}  // namespace tessera::sim
