// SPDX-License-Identifier: Apache-2.0
// Memory that graphs allocate and free by nodes of their own.
//
// A node that allocates has an address as long as its graph lives. The GPU's memory behind it is
// taken when the graph is uploaded or first launched. A later node reuses memory that an earlier
// node has freed. The memory stays with the instance, then in the graph pool of the device, until
// the program trims that pool. As with the real driver, a graph with such nodes has one instance at
// a time. Unlike with the real driver, instances that are launched into one stream share nothing.
// Threads: REQUIRES the driver's mutex.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "api/cuda_abi.h"
#include "src/sim/cuda/engine.h"

namespace tessera::cuda {

// The GPU's memory of an instance of a graph.
struct GraphBacking {
  int device = 0;
  uint64_t bytes = 0;
  bool taken = false;
  bool instance = true;  // which is not destroyed
  unsigned live = 0;     // allocations of it that the program holds after a launch
  TicketRef last;        // the end of its last launch
};

// What a node allocates.
struct GraphMemory : std::enable_shared_from_this<GraphMemory> {
  GraphMemory() = default;
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  int device = 0;
  DevicePtr base = 0;
  uint64_t bytes = 0;
  bool live = false;
  std::shared_ptr<GraphBacking> backing;  // of the instance, once there is one
};

class GraphPools {
 public:
  struct Pool {
    uint64_t reserved = 0, reserved_high = 0;
    uint64_t idle = 0;  // of what is reserved: not of any instance
    uint64_t used = 0, used_high = 0;
  };

  explicit GraphPools(Driver* driver) : driver_(driver) {}

  Result Create(int device, uint64_t bytes, std::shared_ptr<GraphMemory>* memory);
  // Null: no node allocates at this address.
  std::shared_ptr<GraphMemory> Find(DevicePtr pointer);
  // `backing` stays null for a graph without memory nodes.
  Result Instantiate(const GraphTag& graph, std::shared_ptr<GraphBacking>* backing);
  void EndInstance(GraphBacking* backing);
  // Takes the memory; null: nothing to do.
  Result Back(const std::shared_ptr<GraphBacking>& backing);
  // Takes the memory, and decides what is allocated after this launch.
  Result Launch(const GraphTag& graph, const std::shared_ptr<GraphBacking>& backing,
                bool auto_free);
  // The program frees what a launch has left.
  Result Free(GraphMemory* memory);
  void Trim(int device);
  Pool& PoolOf(int device) { return pools_[device]; }

 private:
  friend struct GraphMemory;
  void Forget(GraphMemory* memory);
  // Returns the memory to the pool where nothing needs it any more.
  void Settle(GraphBacking* backing);

  Driver* const driver_;
  std::map<int, Pool> pools_;
  std::map<DevicePtr, std::shared_ptr<GraphMemory>> live_;
  std::set<std::shared_ptr<GraphBacking>> taken_;
};

}  // namespace tessera::cuda
