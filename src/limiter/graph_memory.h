// SPDX-License-Identifier: Apache-2.0
// Graphs with nodes that allocate, and what each may need of the memory that the driver keeps for
// graphs on a device.
//
// The driver takes that memory when such a graph is uploaded or launched into a stream, and keeps
// it for further launches and other graphs. So the first launch into a stream uploads the graph by
// a call of its own, for which memory is reserved as for any allocation. What the driver has taken
// is read afterwards and charged (pools.h).
//
// How much it takes is known only then: nodes share memory where one comes after the node that
// frees it. Reserved is what the nodes need without sharing; where that exceeds the limit, what
// they need in their order at least. A graph that turns out to need more than the limit does not
// run, and what it has taken is given back.
//
// Threads: any. No lock is held across a call of the driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/cuda_abi.h"
#include "src/limiter/spin_lock.h"
#include "src/limiter/table.h"
#include "src/limiter/throttle.h"

namespace tessera::limiter {

// What a graph may need of one GPU.
struct GraphNeed {
  uint64_t most = 0;   // no node gets what another has freed
  uint64_t least = 0;  // every node does
  cuda::Device device = 0;
  // Where it was uploaded last, and how often the memory of graphs had been trimmed before.
  uintptr_t stream = 0;
  uint32_t trims = 0;
};

// By instance and GPU.
class GraphNeeds {
 public:
  // False: no graph with such nodes is known, which is nearly always so.
  bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
  // False: there is no memory to remember it.
  bool Add(cuda::GraphExec exec, int gpu, const GraphNeed& need);
  bool Find(cuda::GraphExec exec, int gpu, GraphNeed* need);
  void SetUploaded(cuda::GraphExec exec, int gpu, uintptr_t stream, uint32_t trims);
  void Remove(cuda::GraphExec exec);
  // Forgets everything, in a child after fork.
  void Reset();

 private:
  static uint32_t Place(uint64_t key) { return uint32_t(key * 0x9e3779b97f4a7c15u >> 32); }

  SpinLock lock_;
  std::atomic<uint32_t> count_{0};
  Table<GraphNeed, Place> needs_ = {};
};

// Before a launch: uploads the graph where its memory may not be there. An error is the answer to
// the launch. Where another thread trims between this and the launch, the driver takes memory
// again, which is only charged afterwards.
cuda::Result PrepareGraph(cuda::GraphExec exec, LaunchStream stream);
// After a launch: charges what the driver has taken beyond that.
void RefreshGraphMemory(cuda::GraphExec exec);

}  // namespace tessera::limiter
