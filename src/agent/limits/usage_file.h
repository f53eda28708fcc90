// SPDX-License-Identifier: Apache-2.0
// Reads `usage` of a container (src/limiter/region.h), a file that the container can write. Reads
// with pread, because the container may truncate the file, which would end a program that reads a
// mapping. container_region.h finds the file.
//
// The numbers are not verified: processes of the container wrote them, and the reader only clamps
// them, so that sums do not overflow. Threads: any. Cost for a container of a few processes: about
// 2 µs per GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::agent {

// The use of one GPU by the processes of a container.
struct UsageReading {
  Bytes held;  // sum over the slots of running processes
  Bytes peak;
  uint64_t refused = 0;  // number of refused allocations since the container started
  Bytes refused_bytes;   // size of the last refused allocation
  int processes = 0;     // processes that hold memory
  bool operator==(const UsageReading&) const = default;
};

// Reads the first `gpus` GPUs of the file. FAILED_PRECONDITION: the file is too short, or has
// another type or version.
Result<std::vector<UsageReading>> ReadUsage(int fd, size_t gpus);

// Reads the pids, in their own PID namespaces, of the running processes that have a limiter.
// Errors: see ReadUsage.
Result<std::vector<int>> ReadPids(int fd);

}  // namespace tessera::agent
