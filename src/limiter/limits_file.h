// SPDX-License-Identifier: Apache-2.0
// The agent's side of `limits` (region.h): makes the file of a container, and changes it while the
// container runs. Threads: one. Functions return 0 or an errno.
#pragma once

#include <cstdint>

#include "src/limiter/region.h"

namespace tessera::limiter {

class LimitsFile {
 public:
  LimitsFile() = default;
  ~LimitsFile();
  LimitsFile(const LimitsFile&) = delete;
  LimitsFile& operator=(const LimitsFile&) = delete;

  // Maps the file at `path`; makes it, whole or not at all, where it is missing. One that is there
  // stays as it is: a container that starts again, or one that runs while the agent starts, goes on
  // with it. EPROTO: the file there is of another version.
  int Open(const char* path);

  // Limits the device memory of a GPU ("GPU-f1e2…"), at once also for processes that run; 0 bytes:
  // not limited. EINVAL: not a UUID. ENOSPC: there are kMaxGpus others already.
  int SetMemory(const char* uuid, uint64_t bytes);
  const Limits& limits() const { return *limits_; }

 private:
  Limits* limits_ = nullptr;
};

}  // namespace tessera::limiter
