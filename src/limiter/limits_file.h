// SPDX-License-Identifier: Apache-2.0
// The agent's side of `limits` (region.h): makes the file of a container, and changes it while the
// container runs. Threads: one. Functions return 0 or an errno.
#pragma once

#include <cstdint>

#include "src/limiter/compute/arbiter.h"
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

  // Whether processes that cannot be limited may use the GPUs all the same.
  void SetFailOpen(bool fail_open);
  // Limits the device memory of a GPU ("GPU-f1e2…"), at once also for processes that run; 0 bytes:
  // not limited. EINVAL: not a UUID. ENOSPC: there are kMaxGpus others already.
  int SetMemory(const char* uuid, uint64_t bytes);
  // What the container's processes have of a GPU beyond what their slots hold. ENOENT: there is no
  // limit of that GPU.
  int SetUnaccounted(const char* uuid, uint64_t bytes);
  // The index of a GPU in `limits`; -1: it is not there, or not a UUID.
  int Find(const char* uuid) const;
  // The rates of the GPU's time that hold until an Arbiter grants more, and after it is gone, as
  // fractions of the GPU; 0: not limited. Errors as of SetMemory.
  int SetCompute(const char* uuid, double cap, double floor);
  // What an Arbiter has decided for the GPU with this index in limits().
  void Write(uint32_t gpu, const Arbiter::Grant& grant);
  void Write(uint32_t gpu, const Arbiter::Part& part);
  const Limits& limits() const { return *limits_; }

 private:
  int FindOrAdd(const char* uuid, uint32_t* index);
  void Show(uint32_t index);

  Limits* limits_ = nullptr;
};

}  // namespace tessera::limiter
