// SPDX-License-Identifier: Apache-2.0
// Numbers for the UUIDs of GPUs and MIG slices that nodes have. A number names one UUID for as long
// as a node has it, and is not given to another afterwards; a GPU that was gone and returns gets a
// new one. Only nodes are given numbers: what pods name can use up none of them.
//
// Threads: one. Private to this room (Cluster). Cost: a hash of the UUID; allocates.
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

  // A node has this GPU, or the slice `uuid` of GPU `cut_from`; once more for each node that says
  // so. kNoGpu for an empty UUID. REQUIRES: left() > 0.
  GpuId Add(std::string_view uuid, std::string_view cut_from);
  // Takes one Add back. REQUIRES: it was added with these names.
  void Drop(std::string_view uuid, std::string_view cut_from);

  // The GPU or slice of this UUID and the slices that were cut from it, ascending.
  std::vector<GpuId> Find(std::string_view uuid) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Entry {
    GpuId own = kNoGpu;         // kNoGpu while only its slices are there
    size_t uses = 0;            // of `own`
    std::vector<GpuId> slices;  // one for each Add
  };
  using Entries = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;

  Entry& Of(std::string_view uuid);
  void EraseUnused(Entries::iterator at);

  Entries entries_;
  GpuId next_ = kNoGpu + 1;
};

}  // namespace tessera::placement
