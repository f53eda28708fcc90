// SPDX-License-Identifier: Apache-2.0
// Which GPUs of one node, by id, to take for a request of `size` whole GPUs: the answer to
// GetPreferredAllocation. What is best, and what it costs to make and to ask, is said in
// linked_groups.h. Not for choosing nodes, nor for parts of GPUs.
//
// Threads: immutable after construction; any thread may ask.
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

// What a choice depends on; the chooser stays right for as long as this stays equal.
struct Topology : NodeLinks {
  std::vector<std::string> ids;  // by position; each once

  static Topology Of(const device::NodeInventory& inventory);
  bool operator==(const Topology&) const = default;
};

class Chooser {
 public:
  // REQUIRES: the three members of `topology` are of one size.
  explicit Chooser(Topology topology);

  const Topology& topology() const { return topology_; }

  // The chosen ids by position. Empty, as with NVIDIA's plugin, where there is no such set: size 0
  // or below, fewer available than `size`, more in `must_include` than `size`, or one of them not
  // available. An id that the topology does not have is NOT_FOUND; one given twice counts once.
  Result<std::vector<std::string>> ChooseDevices(const std::vector<std::string>& available,
                                                 const std::vector<std::string>& must_include,
                                                 int size) const;

 private:
  // Sorted, each once.
  Result<std::vector<size_t>> PositionsOf(const std::vector<std::string>& ids) const;

  Topology topology_;
  std::map<std::string, size_t, std::less<>> positions_;
  std::unique_ptr<const LinkedGroups> groups_;  // null above kMaxLinkedGpus
};

}  // namespace tessera::placement
