// SPDX-License-Identifier: Apache-2.0
// The device memory that graphs with allocation nodes (cuGraphAddMemAllocNode) may need.
//
// The driver allocates this memory when such a graph is uploaded or launched into a stream, and
// keeps it for further launches and other graphs. So the limiter uploads the graph before its first
// launch into a stream, and reserves memory for the upload as for any allocation. Afterwards it
// charges the bytes that the driver has allocated (pools.h).
//
// The bytes are known only after the upload, because a node may reuse memory that an earlier node
// has freed. The limiter reserves the sum of all nodes. If the sum exceeds the limit, the limiter
// reserves only the minimum that the nodes need in their order. If the upload then exceeds the
// limit, the graph does not run, and its memory returns to the device.
//
// Threads: any. No lock is held across a driver call.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/cuda_abi.h"
#include "src/limiter/compute/throttle.h"
#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

// Bytes that a graph may need on one GPU.
struct GraphNeed {
  uint64_t max_bytes = 0;  // if nodes share no memory
  uint64_t min_bytes = 0;  // if every node reuses freed memory
  cuda::Device device = 0;
  // The stream of the last upload, and the number of trims before it.
  uintptr_t stream = 0;
  uint32_t trims = 0;
};

// The needs of executable graphs, by graph and GPU.
class GraphNeeds {
 public:
  // False, the usual case: the process has no graph with allocation nodes.
  bool HasEntries() const { return count_.load(std::memory_order_relaxed) != 0; }
  // False: out of host memory.
  bool Add(cuda::GraphExec exec, int gpu, const GraphNeed& need);
  bool Find(cuda::GraphExec exec, int gpu, GraphNeed* need);
  void RecordUpload(cuda::GraphExec exec, int gpu, uintptr_t stream, uint32_t trims);
  void Remove(cuda::GraphExec exec);
  // Removes all entries, in a child after fork.
  void Reset();

 private:
  SpinLock lock_;
  std::atomic<uint32_t> count_{0};
  Table<GraphNeed> needs_ = {};
};

// Called before a launch. Uploads the graph if its memory may be missing. On an error, the caller
// returns the error instead of launching. If another thread trims before the launch, the driver
// allocates again, and RefreshGraphMemory charges the memory.
cuda::Result PrepareGraph(cuda::GraphExec exec, LaunchStream stream);
// Called after a launch: charges memory that the driver has allocated since the upload.
void RefreshGraphMemory(cuda::GraphExec exec);

}  // namespace tessera::limiter
