// SPDX-License-Identifier: Apache-2.0
// Numbers the UUIDs of the GPUs and MIG slices of all nodes. A number names one UUID while any node
// has this UUID, and is never used again: a GPU that disappears and returns gets a new number. Only
// nodes create numbers, so pods that list UUIDs cannot use up the numbers.
// Threads: one. Included only in src/placement. Cost: a hash of the UUID; allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/uuid_text.h"
#include "src/placement/demand.h"

namespace tessera::placement {

class GpuNames {
  struct NumberedGpu {
    GpuId id = kNoGpu;
    uint32_t uses = 0;  // nodes that have the GPU
  };
  using Numbers = std::unordered_map<UuidText, NumberedGpu>;
  // Numbers of slices, by the UUID of their GPU; one for each Add.
  using Slices = std::unordered_map<UuidText, std::vector<GpuId>>;

 public:
  // How many GPUs can still be numbered.
  size_t left() const { return kUnknownGpu - next_id_; }

  // A GPU or slice of a node.
  class Name {
   public:
    GpuId id() const { return number_ == nullptr ? kNoGpu : number_->second.id; }
    // Empty for a GPU without UUID.
    UuidText uuid() const { return number_ == nullptr ? UuidText() : number_->first; }
    // Empty for a GPU.
    UuidText parent_uuid() const { return parent_ == nullptr ? UuidText() : parent_->first; }

   private:
    friend GpuNames;
    const Numbers::value_type* number_ = nullptr;
    const Slices::value_type* parent_ = nullptr;
  };
  // Counts one node that has this GPU, or the slice `uuid` of GPU `parent_uuid`, and numbers it,
  // unless the UUID is empty. REQUIRES: left() > 0.
  Name Add(std::string_view uuid, std::string_view parent_uuid);
  // Reverts one Add. REQUIRES: `name` is from Add.
  void Drop(const Name& name);

  // Numbers of the GPU or slice with this UUID, and of the slices of this GPU; ascending.
  std::vector<GpuId> Find(std::string_view uuid) const;

 private:
  Numbers numbers_;
  Slices slices_;
  GpuId next_id_ = kNoGpu + 1;
};

}  // namespace tessera::placement
