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
//
// Compute. All times are nanoseconds of CLOCK_MONOTONIC, all amounts nanoseconds of GPU time, all
// rates and factors fixed-point numbers with 16 binary places (kOne). The agent reads the
// ComputeUsage of a GPU every few milliseconds: its charge and the lines of the used slots are one
// contiguous block. A line has one kind of writer: the agent, the processes of the container, or
// one process. compute/gate.h and compute/arbiter.h say what the two sides do with the lines.
// Pure declarations, for the limiter and for the agent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::limiter {

inline constexpr uint32_t kLimitsMagic = 0x494d4c54;  // "TLMI"
inline constexpr uint32_t kUsageMagic = 0x53554c54;   // "TLUS"
inline constexpr uint32_t kVersion = 2;

// Words of the region stand for themselves; where order matters, it is said.
inline constexpr auto kRelaxed = std::memory_order_relaxed;

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

// 1.0 as a rate or factor; a rate of kOne is a whole GPU.
inline constexpr uint32_t kOne = 1 << 16;

// What the processes of the container may use of the GPU's time.
struct ComputeLimit {
  // 0: not limited. Incremented to make every thread give up the GPU time that it has taken in
  // advance. The only word that a launch reads when it is not blocked.
  std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> flags;       // kComputeStop, kComputeLow
  std::atomic<int64_t> pool;         // up to where `charged` may grow while the lease lasts
  std::atomic<int64_t> lease_end;    // afterwards flags and pool are void, and `floor` is the rate
  std::atomic<uint32_t> bias;        // factor of every charge, which corrects the meter
  std::atomic<uint32_t> cap;         // rate while the lease lasts; 0: only the pool limits
  std::atomic<uint32_t> floor;       // rate without a lease
  std::atomic<uint32_t> slice_us;    // GPU time that a thread takes in advance
  std::atomic<uint32_t> window_us;   // GPU time that a process may have in flight
  std::atomic<uint32_t> quantum_us;  // of the driver's turns between processes
  uint32_t reserved[4];
};
static_assert(sizeof(ComputeLimit) == 64);

inline constexpr uint32_t kComputeStop = 1;  // launch nothing
inline constexpr uint32_t kComputeLow = 2;   // of a low priority class

// What the agent knows about the share of GPU time that the driver's turns give to one process.
struct ComputePart {
  std::atomic<uint32_t> sequence;  // odd while the agent writes
  std::atomic<uint32_t> part;      // rate at which the process makes progress while it has work
  std::atomic<int64_t> integral;   // of `part` over time, until `at`
  std::atomic<int64_t> at;
  std::atomic<uint32_t> contended;  // not 0: other containers or processes use the GPU
  uint32_t reserved;
};
static_assert(sizeof(ComputePart) == 32);

// A process that cannot be limited uses the GPU without a limit. Without this flag it cannot use
// it.
inline constexpr uint32_t kFailOpen = 1;

struct Limits {
  Header header;
  uint32_t gpu_count;           // at most kMaxGpus
  std::atomic<uint32_t> flags;  // kFailOpen
  uint32_t reserved[10];
  GpuLimit gpus[kMaxGpus];
  ComputeLimit compute[kMaxGpus];
  ComputePart parts[kMaxGpus][kMaxSlots];  // by GPU and slot; only pages in use take memory
};
static_assert(offsetof(Limits, parts) == 64 + 2 * 64 * kMaxGpus);

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

// Of all processes of the container together.
struct ComputeCharge {
  std::atomic<int64_t> charged;       // GPU time that launches have been charged
  std::atomic<int64_t> allowance;     // grows at the rate of the limit; `charged` stays below it
  std::atomic<int64_t> allowance_at;  // until when it has grown
  std::atomic<uint32_t> slots;        // one more than the highest slot with a line below
  uint32_t reserved;
  std::atomic<int64_t> waited;  // time that threads waited before launches
  uint64_t reserved_too[3];
};
static_assert(sizeof(ComputeCharge) == 64);

// Of one process. Counters only grow; the others are claims about the present.
struct ComputeSlot {
  std::atomic<int64_t> metered;       // GPU time of work that has ended
  std::atomic<int64_t> in_flight;     // estimated GPU time of launches that have not ended
  std::atomic<int64_t> last_launch;   // when it launched last
  std::atomic<int64_t> last_long;     // when work of at least 0.4 quanta was last in flight
  std::atomic<int64_t> last_wait;     // when the pool, a stop or the window last made it wait
  std::atomic<int64_t> seen;          // when it last wrote this line
  std::atomic<int64_t> longest;       // length of its longest recent launch
  std::atomic<int64_t> last_limited;  // when the limit of its container last made it wait
};
static_assert(sizeof(ComputeSlot) == 64);

struct ComputeUsage {
  ComputeCharge charge;
  ComputeSlot slots[kMaxSlots];
};

struct Usage {
  Header header;
  std::atomic<uint32_t> slots_used;  // one more than the highest slot that was ever owned
  uint32_t reserved[11];
  // By slot, of its owner: the process id in the owner's pid namespace (0: not owned), and its
  // start in clock ticks since boot (field 22 of /proc/PID/stat), which tells it from a later
  // process of that id.
  std::atomic<int32_t> pids[kMaxSlots];
  std::atomic<uint64_t> starts[kMaxSlots];
  // By slot: the GPUs, as bits, on whose lines in `compute` its owner writes.
  std::atomic<uint32_t> compute_gpus[kMaxSlots];
  GpuUsage gpus[kMaxGpus];
  ComputeUsage compute[kMaxGpus];
};
static_assert(offsetof(Usage, pids) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tessera::limiter
