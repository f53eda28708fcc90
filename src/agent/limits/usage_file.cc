// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/usage_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "src/limiter/region/region_file.h"

namespace tessera::agent {
namespace {

using limiter::GpuUsage;
using limiter::SharedPiece;
using limiter::Usage;

// No GPU has so much memory, and the sum of kMaxSlots such numbers fits in 64 bits.
constexpr uint64_t kMaxBytes = uint64_t{1} << 50;
constexpr Bytes kMaxHeld{static_cast<int64_t>(kMaxBytes * limiter::kMaxSlots)};

template <typename T>
bool ReadAt(int fd, size_t offset, T* values, size_t count) {
  const size_t size = count * sizeof(T);
  return ::pread(fd, values, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

int64_t ClampBytes(uint64_t bytes) { return static_cast<int64_t>(std::min(bytes, kMaxBytes)); }

// Whether a process owns the slot. The owner holds a lock on the byte at this offset until it ends.
bool IsOwned(int fd, size_t slot) {
  // The kernel reports locks of other open file descriptions only, and also on a descriptor that is
  // open for reading.
  struct flock lock = limiter::ByteRange(static_cast<int64_t>(slot));
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// The members of GpuUsage after the slots.
struct Tail {
  uint64_t peak, refused, refused_bytes;
};
static_assert(offsetof(GpuUsage, refused) == offsetof(GpuUsage, peak) + offsetof(Tail, refused));
static_assert(offsetof(GpuUsage, refused_bytes) ==
              offsetof(GpuUsage, peak) + offsetof(Tail, refused_bytes));

// A copy of a SharedPiece, without atomics.
struct PieceCopy {
  uint64_t id, bytes;
  uint32_t gpu, reserved;
  std::array<uint16_t, limiter::kMaxHolders> holders;
  std::array<uint64_t, 7> reserved_too;
};
static_assert(sizeof(PieceCopy) == sizeof(SharedPiece));
static_assert(offsetof(PieceCopy, holders) == offsetof(SharedPiece, holders));

// Returns none for a file of an older version.
std::vector<PieceCopy> ReadPieces(int fd) {
  uint32_t used = 0;
  if (!ReadAt(fd, offsetof(Usage, pieces_used), &used, 1)) return {};
  std::vector<PieceCopy> pieces(std::min(used, limiter::kMaxPieces));
  if (!ReadAt(fd, offsetof(Usage, pieces), pieces.data(), pieces.size())) return {};
  return pieces;
}

// The bytes that the slots of running processes count more than once.
Bytes CountedTwice(int fd, size_t gpu, size_t slots, const std::vector<PieceCopy>& pieces) {
  Bytes twice;
  for (const PieceCopy& piece : pieces) {
    if (piece.gpu != gpu) continue;
    const auto holders = std::ranges::count_if(piece.holders, [&](uint16_t holder) {
      return holder != 0 && holder <= slots && IsOwned(fd, holder - 1u);
    });
    if (holders < 2) continue;
    // The sum over kMaxPieces pieces with kMaxHolders holders each would overflow.
    twice = std::min(twice + Bytes(ClampBytes(piece.bytes)) * (holders - 1), kMaxHeld);
  }
  return twice;
}

bool ReadGpu(int fd, size_t gpu, size_t slots, const std::vector<PieceCopy>& pieces,
             UsageReading* reading) {
  const size_t base = offsetof(Usage, gpus) + gpu * sizeof(GpuUsage);
  std::vector<uint64_t> held(slots);
  Tail tail{};
  if (!ReadAt(fd, base + offsetof(GpuUsage, held), held.data(), slots) ||
      !ReadAt(fd, base + offsetof(GpuUsage, peak), &tail, 1)) {
    return false;
  }
  for (size_t slot = 0; slot < slots; ++slot) {
    if (held[slot] == 0 || !IsOwned(fd, slot)) continue;
    reading->held += Bytes(ClampBytes(held[slot]));
    ++reading->processes;
  }
  reading->held -= std::min(reading->held, CountedTwice(fd, gpu, slots, pieces));
  reading->peak = Bytes(ClampBytes(tail.peak));
  reading->refused = tail.refused;
  reading->refused_bytes = Bytes(ClampBytes(tail.refused_bytes));
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
      !ReadAt(fd, offsetof(Usage, slots_end), &slots, 1)) {
    return TooShort();
  }
  if (!limiter::CanRead(limiter::kUsageLayout, header)) {
    return Status(Code::kFailedPrecondition,
                  "the container's usage file is of another kind or version");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < header.size)
    return TooShort();
  return std::min<size_t>(slots, limiter::kMaxSlots);
}

}  // namespace

Result<std::vector<UsageReading>> ReadUsage(int fd, size_t gpus) {
  ASSIGN_OR_RETURN(const size_t slots, ReadHeader(fd));
  std::vector<UsageReading> readings(std::min<size_t>(gpus, limiter::kMaxGpus));
  const std::vector<PieceCopy> pieces = ReadPieces(fd);
  for (size_t gpu = 0; gpu < readings.size(); ++gpu) {
    if (!ReadGpu(fd, gpu, slots, pieces, &readings[gpu])) return TooShort();
  }
  return readings;
}

Result<std::vector<int>> ReadPids(int fd) {
  ASSIGN_OR_RETURN(const size_t slots, ReadHeader(fd));
  std::vector<int32_t> pids(slots);
  if (!ReadAt(fd, offsetof(Usage, pids), pids.data(), slots)) return TooShort();
  std::vector<int> running_pids;
  for (size_t slot = 0; slot < slots; ++slot) {
    if (pids[slot] != 0 && IsOwned(fd, slot)) running_pids.push_back(pids[slot]);
  }
  return running_pids;
}

}  // namespace tessera::agent
