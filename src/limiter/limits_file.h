// SPDX-License-Identifier: Apache-2.0
// Creates the file `limits` of a container (region.h) for the agent, and changes it while the
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

  // Maps the file at `path`, and creates it atomically if it is missing. An existing file keeps its
  // contents, also if another agent version wrote it: a container that restarts, or that runs while
  // the agent restarts, keeps its limits. EPROTO: this version cannot read the file, or the file
  // excludes this version.
  int Open(const char* path);

  // True: processes that cannot be limited use the GPUs without a limit. False: they get no GPU.
  void SetFailOpen(bool fail_open);
  // Limits the device memory of a GPU ("GPU-f1e2…"), with immediate effect on running processes; 0
  // bytes: not limited. EINVAL: `uuid` is no UUID. ENOSPC: the file has kMaxGpus other GPUs.
  int SetMemory(const char* uuid, uint64_t bytes);
  // Sets GpuLimit::unaccounted. ENOENT: the file does not have the GPU.
  int SetUnaccounted(const char* uuid, uint64_t bytes);
  // Records that Events have reported the first `refused` refusals on the GPU with this index in
  // limits().
  void SetReportedRefusals(uint32_t gpu, uint64_t refused);
  // The index of a GPU in limits(); -1: the file does not have it, or `uuid` is no UUID.
  int Find(const char* uuid) const;
  // Sets `cap` and `floor` of the GPU's ComputeLimit, as fractions of the GPU; 0: not limited.
  // Returns the errors of SetMemory.
  int SetCompute(const char* uuid, double cap, double floor);
  // Writes a decision of the Arbiter for the GPU with this index in limits().
  void Write(uint32_t gpu, const Arbiter::Allowance& allowance);
  void Write(uint32_t gpu, const Arbiter::ProcessPart& part);
  const Limits& limits() const { return *limits_; }

 private:
  int FindOrAdd(const char* uuid, uint32_t* index);
  void PublishGpu(uint32_t index);

  Limits* limits_ = nullptr;
};

}  // namespace tessera::limiter
