// SPDX-License-Identifier: Apache-2.0
// Reads what the processes of one container have of one GPU from `usage`, a file that the container
// can write (src/limiter/region.h). What it gives is a claim; only the sums are bounded.
//
// The lines of the first processes are read in place, because that happens for every container and
// every tick of the compute control. All else is read with pread: further lines, and a file that
// was truncated. A container can make the kernel count pages of the file for the agent when it
// reads them in place; so these are two pages at most.
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

// Sums over all processes of a container, in nanoseconds.
struct ComputeTotals {
  int64_t metered = 0, waited = 0;
};

class ComputeUsageFile {
 public:
  // `gpu`: its index in the file.
  ComputeUsageFile(std::shared_ptr<const Fd> file, uint32_t gpu);

  // Replaces all of `reading` but its id. Nothing: the file is cut.
  std::optional<ComputeTotals> Read(limiter::Arbiter::Reading* reading);

 private:
  bool ReadMore(uint32_t slots, limiter::Arbiter::Reading* reading, ComputeTotals* totals) const;

  const std::shared_ptr<const Fd> file_;
  const off_t offset_;  // of the lines of the GPU
  GuardedMapping mapping_;
};

}  // namespace tessera::agent
