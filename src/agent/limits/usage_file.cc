// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/usage_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

#include "src/limiter/region/region_file.h"

namespace tessera::agent {
namespace {

using limiter::GpuUsage;
using limiter::Usage;

// No GPU has so much memory, and the sum of kMaxSlots such numbers fits in 64 bits.
constexpr uint64_t kMostBytes = uint64_t{1} << 50;

template <typename T>
bool ReadAt(int fd, size_t offset, T* values, size_t count) {
  const size_t size = count * sizeof(T);
  return ::pread(fd, values, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

int64_t Plausible(uint64_t bytes) { return static_cast<int64_t>(std::min(bytes, kMostBytes)); }

// Whether a process owns the slot. The owner holds a lock on the byte at this offset until it ends.
bool IsOwned(int fd, size_t slot) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(slot);
  lock.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

struct Tail {
  uint64_t peak, refused, refused_bytes;
};
static_assert(offsetof(GpuUsage, refused) == offsetof(GpuUsage, peak) + offsetof(Tail, refused));
static_assert(offsetof(GpuUsage, refused_bytes) ==
              offsetof(GpuUsage, peak) + offsetof(Tail, refused_bytes));

bool ReadGpu(int fd, size_t gpu, size_t slots, UsageReading* reading) {
  const size_t base = offsetof(Usage, gpus) + gpu * sizeof(GpuUsage);
  std::vector<uint64_t> held(slots);
  Tail tail{};
  if (!ReadAt(fd, base + offsetof(GpuUsage, held), held.data(), slots) ||
      !ReadAt(fd, base + offsetof(GpuUsage, peak), &tail, 1)) {
    return false;
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    if (held[slot] == 0 || !IsOwned(fd, slot)) continue;
    reading->held += Bytes(Plausible(held[slot]));
    ++reading->processes;
  }
  reading->peak = Bytes(Plausible(tail.peak));
  reading->refused = tail.refused;
  reading->refused_bytes = Bytes(Plausible(tail.refused_bytes));
  return true;
}

Status TooShort() {
  return Status(Code::kFailedPrecondition, "the container's usage file is too short");
}

// Returns the number of slots that were ever used.
Result<size_t> ReadHeader(int fd) {
  limiter::Header header{};
  uint32_t slots = 0;
  if (!ReadAt(fd, offsetof(Usage, header), &header, 1) ||
      !ReadAt(fd, offsetof(Usage, slots_used), &slots, 1)) {
    return TooShort();
  }
  if (!limiter::CanRead(limiter::kUsageLayout, header)) {
    return Status(Code::kFailedPrecondition,
                  "the container's usage file is of another kind or version");
  }
  return std::min<size_t>(slots, limiter::kMaxSlots);
}

}  // namespace

Result<std::vector<UsageReading>> ReadUsage(int fd, size_t gpus) {
  ASSIGN_OR_RETURN(const size_t slots, ReadHeader(fd));
  std::vector<UsageReading> readings(std::min<size_t>(gpus, limiter::kMaxGpus));
  for (size_t gpu = 0; gpu < readings.size(); ++gpu) {
    if (!ReadGpu(fd, gpu, slots, &readings[gpu])) return TooShort();
  }
  return readings;
}

Result<std::vector<int>> ReadPids(int fd) {
  ASSIGN_OR_RETURN(const size_t slots, ReadHeader(fd));
  std::vector<int32_t> pids(slots);
  if (!ReadAt(fd, offsetof(Usage, pids), pids.data(), slots)) return TooShort();
  std::vector<int> live;
  for (size_t slot = 0; slot < slots; ++slot) {
    if (pids[slot] != 0 && IsOwned(fd, slot)) live.push_back(pids[slot]);
  }
  return live;
}

}  // namespace tessera::agent
