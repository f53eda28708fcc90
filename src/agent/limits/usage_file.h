// SPDX-License-Identifier: Apache-2.0
// Reads `usage` of a container (src/limiter/region.h), a file that the container can write. By
// pread: the container may truncate the file, which would end a program that has it mapped. Not for
// finding the file (container_region.h).
//
// What it gives is a claim. Each number is one that some process wrote; nothing else is checked,
// but that no sum overflows. Threads: any. Cost for a container of a few processes: some 2 µs a
// GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"

namespace tessera::agent {

// What the processes of a container have of one GPU.
struct UsageReading {
  Bytes held;  // by the slots of processes that live
  Bytes peak;
  uint64_t refused = 0;  // allocations, since the container started
  Bytes refused_bytes;   // the size of the last of them
  int processes = 0;     // that hold something
  bool operator==(const UsageReading&) const = default;
};

// The first `gpus` of the file. FAILED_PRECONDITION: the file is cut, or of another kind or
// version.
Result<std::vector<UsageReading>> ReadUsage(int fd, size_t gpus);

// The processes that live and have a limiter, by their pids in their own PID namespaces. Errors as
// above.
Result<std::vector<int>> ReadPids(int fd);

}  // namespace tessera::agent
