// SPDX-License-Identifier: Apache-2.0
// Reads the time of one GPU that the processes of one container used, from `usage`, a file that the
// container can write (src/limiter/region.h). The container can write any number, so the numbers
// cannot be trusted. The reader clamps each number, so that their sum does not overflow.
//
// The slots of the first processes are read through a mapping, because every tick of the arbiter
// reads them for every container. Further slots, and a file that was truncated, are read with
// pread. The kernel may charge mapped pages of the container's tmpfs to the agent, so the mapping
// has two pages at most.
//
// Threads: one for each ComputeUsageFile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "src/agent/limits/guarded_mapping.h"
#include "src/base/file.h"
#include "src/limiter/compute/arbiter.h"

namespace tessera::agent {

// In nanoseconds, over all processes of a container.
struct ComputeTotals {
  int64_t gpu_time_ns = 0;   // GPU time of work that has ended
  int64_t wait_time_ns = 0;  // time that threads waited before launches
};

class ComputeUsageFile {
 public:
  // `gpu`: the index of the GPU in the file.
  ComputeUsageFile(std::shared_ptr<const Fd> file, uint32_t gpu);

  // Replaces all of `reading` except its id. Returns nullopt if the file is too short; `reading` is
  // then undefined.
  std::optional<ComputeTotals> Read(limiter::Arbiter::ContainerReading* reading);

 private:
  bool ReadMore(uint32_t slot_count, limiter::Arbiter::ContainerReading* reading,
                ComputeTotals* totals) const;

  const std::shared_ptr<const Fd> file_;
  const off_t offset_;  // position of the GPU's slots in the file
  GuardedMapping mapping_;
};

}  // namespace tessera::agent
