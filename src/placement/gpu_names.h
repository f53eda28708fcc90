// SPDX-License-Identifier: Apache-2.0
// Numbers the UUIDs of the GPUs and MIG slices of all nodes. A number names one UUID while any node
// has this UUID, and is never used again: a GPU that disappears and returns gets a new number. Only
// nodes create numbers, so pods that list UUIDs cannot use up the numbers.
// Threads: one. Included only in src/placement. Cost: a hash of the UUID; allocates.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/placement/demand.h"

namespace tessera::placement {

class GpuNames {
 public:
  // How many GPUs can still be numbered.
  size_t left() const { return kUnknownGpu - next_; }

  // A GPU or slice of a node. The texts are those of the table, valid until Drop.
  struct Name {
    GpuId id = kNoGpu;
    std::string_view uuid, parent_uuid;
  };
  // Counts one node that has this GPU, or the slice `uuid` of GPU `parent_uuid`, and numbers it;
  // kNoGpu for an empty UUID. REQUIRES: left() > 0.
  Name Add(std::string_view uuid, std::string_view parent_uuid);
  // Reverts one Add. REQUIRES: `name` is from Add.
  void Drop(const Name& name);

  // The GPU or slice of this UUID and the slices of that GPU, ascending.
  std::vector<GpuId> Find(std::string_view uuid) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Entry {
    GpuId own = kNoGpu;         // kNoGpu while nodes list only its slices
    uint32_t uses = 0;          // of `own`
    std::vector<GpuId> slices;  // one for each Add
  };
  using Entries = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;

  Entries::value_type& Of(std::string_view uuid);
  void EraseUnused(Entries::iterator at);

  Entries entries_;
  GpuId next_ = kNoGpu + 1;
};

}  // namespace tessera::placement
