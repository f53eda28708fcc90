// SPDX-License-Identifier: Apache-2.0
// The two files through which the agent and the limiter of one container share state.
//
//   limits   what the container may use of each GPU. The agent makes it in a folder of the host,
//            which the runtime mounts read-only into the container
//   usage    what the container's processes hold. The first of them makes it, in a small tmpfs that
//            the engine makes for this container: no container writes into a file system of the
//            host, or of another one
//
// Layout. Both files start with a Header. All numbers are little endian and naturally aligned.
// Fields are only ever added in reserved space; a change that an older reader would misread
// increments kVersion. The size of a file never changes.
//
// Trust. A process of the container can write anything into `usage`, so readers outside of it treat
// it as a claim and check what they read. Only the container itself is harmed by damage: its own
// limits are computed from it.
//
// Slots. A process that allocates device memory owns one slot: it holds an open-file-description
// lock (F_OFD_SETLK) on byte `slot` of `usage`. The mapping of the file keeps the description, and
// so the lock, until the process ends or executes another program, however it ends. What a dead
// process held is cleared by the next process that locks the slot: a sweeper, or its next owner.
//
// Used memory of a GPU is the sum over all slots; there is no total that could disagree with it.
// Pure declarations, for the limiter and for the agent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::limiter {

inline constexpr uint32_t kLimitsMagic = 0x494d4c54;  // "TLMI"
inline constexpr uint32_t kUsageMagic = 0x53554c54;   // "TLUS"
inline constexpr uint32_t kVersion = 1;

inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxSlots = 4096;  // processes of a container that use a GPU

// Names in the two folders.
inline constexpr char kLimitsFile[] = "limits";
inline constexpr char kUsageFile[] = "usage";

struct Header {
  uint32_t magic;
  uint32_t version;
  uint64_t size;  // of the file in bytes
};

// The agent is the only writer. 64 bytes, so that two GPUs share no cache line.
struct GpuLimit {
  uint8_t uuid[16];              // as cuDeviceGetUuid reports it
  std::atomic<uint64_t> memory;  // device memory in bytes; 0: not limited
  // Bytes that NVML reports for the container's processes beyond what they hold in their slots.
  std::atomic<uint64_t> unaccounted;
  uint64_t reserved[4];
};
static_assert(sizeof(GpuLimit) == 64);

struct Limits {
  Header header;
  uint32_t gpu_count;  // at most kMaxGpus
  uint32_t reserved[11];
  GpuLimit gpus[kMaxGpus];
};
static_assert(sizeof(Limits) == 64 + 64 * kMaxGpus);

struct GpuUsage {
  // By slot. `held` is what the process has; `pending` is what it is about to allocate, counted
  // against the limit while the driver is asked.
  std::atomic<uint64_t> held[kMaxSlots];
  std::atomic<uint64_t> pending[kMaxSlots];
  std::atomic<uint64_t> peak;           // the most that was held and reserved at once
  std::atomic<uint64_t> refused;        // allocations that the limit refused
  std::atomic<uint64_t> refused_bytes;  // the size of the last of them
  uint64_t reserved[5];
};
static_assert(sizeof(GpuUsage) == 2 * 8 * kMaxSlots + 64);

struct Usage {
  Header header;
  std::atomic<uint32_t> slots_used;  // one more than the highest slot that was ever owned
  uint32_t reserved[11];
  // By slot, of its owner: the process id in the owner's pid namespace (0: not owned), and its
  // start in clock ticks since boot (field 22 of /proc/PID/stat), which tells it from a later
  // process of that id.
  std::atomic<int32_t> pids[kMaxSlots];
  std::atomic<uint64_t> starts[kMaxSlots];
  GpuUsage gpus[kMaxGpus];
};
static_assert(offsetof(Usage, pids) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tessera::limiter
