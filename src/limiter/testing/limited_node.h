// SPDX-License-Identifier: Apache-2.0
// For tests: a simulated node, and the files of a limited container at /run/tessera. The test
// process enters a mount namespace with its own /run. Needs root.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/limiter/limits_file.h"
#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::limiter::testing {

class LimitedNode {
 public:
  // False: the process may not mount.
  static bool Possible();

  // Limits the device memory of the first GPUs of the node; 0: not limited.
  explicit LimitedNode(const std::vector<uint64_t>& memory, const std::string& profile = "");

  void SetMemory(uint32_t gpu, uint64_t bytes);
  // Sets the memory that the agent reports as unaccounted.
  void SetUnaccounted(uint32_t gpu, uint64_t bytes);
  void SetFailOpen() { limits_.SetFailOpen(true); }
  // A hard limit of the GPU's time, which needs no agent; 0: none.
  void SetCompute(uint32_t gpu, double share);
  // Bytes in use, as the simulated device counts them.
  uint64_t DeviceBytes(uint32_t gpu) { return node_.state().UsedBytesConsistent(gpu); }
  // Bytes that the container's processes hold, as the limiter counts them.
  uint64_t Held(uint32_t gpu);
  const GpuUsage& usage(uint32_t gpu);
  const ComputeUsage& compute(uint32_t gpu) { return usage_->compute[gpu]; }
  // Waits until the first process of the container has no work in flight on the GPU. False: the
  // process still has work after ten seconds.
  bool WaitUntilSettled(uint32_t gpu);
  sim::testing::SimNode& node() { return node_; }
  // Clears the slots of dead processes, as the next process of the container would.
  void Sweep();

  // Starts a process of the container, with the limiter loaded as its libcuda. The process ends
  // when `body` returns, with 0 unless an expectation failed in it.
  using Body = std::function<void(const cuda::CudaLibrary&)>;
  int Start(const Body& body);
  // Starts a process and waits for it. True: no expectation failed.
  bool Run(const Body& body);

 private:
  sim::testing::SimNode node_;
  LimitsFile limits_;
  Usage* usage_ = nullptr;
};

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr char kContainerDir[] = "/run/tessera";

}  // namespace tessera::limiter::testing
