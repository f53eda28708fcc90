// SPDX-License-Identifier: Apache-2.0
// Chooses GPUs of one node by id for a request of `size` whole GPUs: the answer to
// GetPreferredAllocation. linked_groups.h defines the best choice and its cost. Does not choose
// nodes or parts of GPUs.
//
// Threads: immutable after construction; callable from any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/device/gpu.h"
#include "src/placement/linked_groups.h"

namespace tessera::placement {

// All inputs of a choice except the request. A Chooser stays valid while its topology is unchanged.
struct Topology : NodeLinks {
  std::vector<std::string> ids;  // by position; each once

  static Topology Of(const device::NodeInventory& inventory);
  bool operator==(const Topology&) const = default;
};

class Chooser {
 public:
  // REQUIRES: `topology.ids` and the members of NodeLinks have equal sizes.
  explicit Chooser(Topology topology);

  const Topology& topology() const { return topology_; }

  // Returns the best set of `size` ids that includes `must_include`, sorted by position. As with
  // NVIDIA's plugin, returns no ids if that is impossible: size <= 0, fewer than `size` available,
  // more than `size` in `must_include`, or a `must_include` that is not available. NOT_FOUND for an
  // id that is not in the topology. A repeated id counts once.
  Result<std::vector<std::string>> ChooseDevices(const std::vector<std::string>& available,
                                                 const std::vector<std::string>& must_include,
                                                 int size) const;

 private:
  // Sorted, without repetitions.
  Result<std::vector<size_t>> PositionsOf(const std::vector<std::string>& ids) const;

  Topology topology_;
  std::map<std::string, size_t, std::less<>> positions_;
  std::unique_ptr<const LinkedGroups> groups_;  // null above kMaxLinkedGpus
};

}  // namespace tessera::placement
