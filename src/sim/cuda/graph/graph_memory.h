// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate and free by nodes.
//
// A node that allocates has an address as long as its graph lives. Its device memory is allocated
// when the graph is uploaded or first launched. A later node reuses memory that an earlier node has
// freed. The memory belongs to the instance, and after its end to the graph pool of the device,
// until the program trims the pool. As with the real driver, a graph with such nodes has one
// instance at a time. Unlike with the real driver, instances that are launched into one stream
// share no memory. Threads: REQUIRES the driver's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "api/cuda_abi.h"
#include "src/sim/cuda/stream/engine.h"

namespace tessera::cuda {

// The device memory of an instance.
struct GraphBacking {
  int device = 0;
  uint64_t bytes = 0;
  bool allocated = false;
  bool has_instance = true;   // false: the instance is destroyed
  unsigned in_use_count = 0;  // allocations that the program must free
  TicketRef last_launch_end;
};

// The allocation of a node.
struct GraphMemory : std::enable_shared_from_this<GraphMemory> {
  GraphMemory() = default;
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  int device = 0;
  DevicePtr base = 0;
  uint64_t bytes = 0;
  bool in_use = false;  // a launch has allocated it, and nothing has freed it since
  std::shared_ptr<GraphBacking> backing;  // null: no instance
};

class GraphPools {
 public:
  struct PoolBytes {
    uint64_t reserved = 0, reserved_high = 0;
    uint64_t idle = 0;  // reserved without an instance
    uint64_t used = 0, used_high = 0;
  };

  explicit GraphPools(Driver* driver) : driver_(driver) {}

  Result Create(int device, uint64_t bytes, std::shared_ptr<GraphMemory>* memory);
  // Null: no node has an allocation at this address.
  std::shared_ptr<GraphMemory> Find(DevicePtr pointer);
  // `backing` stays null for a graph without memory nodes.
  Result Instantiate(const GraphTag& graph, std::shared_ptr<GraphBacking>* backing);
  void EndInstance(GraphBacking* backing);
  // Allocates the memory of an instance. No effect if `backing` is null.
  Result AllocateMemory(const std::shared_ptr<GraphBacking>& backing);
  // Allocates the memory, and marks the allocations that are in use after this launch.
  Result Launch(const GraphTag& graph, const std::shared_ptr<GraphBacking>& backing,
                bool auto_free);
  // Frees an allocation. kInvalidValue: the allocation is not in use.
  Result Free(GraphMemory* memory);
  // Frees memory of the device that no launch and no allocation uses.
  void Trim(int device);
  // Frees all memory of graphs on a device, including allocations that the program has not freed.
  // Called when the device loses its last context.
  void EndDevice(int device);
  PoolBytes& PoolOf(int device) { return pools_[device]; }

 private:
  friend struct GraphMemory;
  void Remove(GraphMemory* memory);
  // Returns the memory to the pool if it is unused.
  void ReturnUnused(GraphBacking* backing);

  Driver* const driver_;
  std::map<int, PoolBytes> pools_;
  std::map<DevicePtr, std::shared_ptr<GraphMemory>> in_use_;
  std::set<std::shared_ptr<GraphBacking>> allocated_;
};

}  // namespace tessera::cuda
