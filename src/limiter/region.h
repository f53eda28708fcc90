// SPDX-License-Identifier: Apache-2.0
// The two files through which the agent and the limiter of one container share state.
//
//   limits   what the container may use of each GPU. The agent creates it in a folder of the host,
//            which the runtime mounts read-only into the container
//   usage    what the container's processes hold. The first process creates it, in a small tmpfs
//            that the engine makes for this container: no container writes into a file system of
//            the host or of another container
//
// Layout. Both files start with a Header. All numbers are little endian and naturally aligned.
// An upgrade leaves running containers with files and limiters of another version, so:
//   - A new field takes reserved space or the end of the file; 0 means that the field is not set.
//     Each new field increments kVersion; older readers ignore the field.
//   - A change that older readers would misread also raises kOldestReader, which is written into
//     each file. Running containers keep their files, which older readers understand.
//   - A change after which the program cannot read older files, because a field has moved, raises
//     kOldestFile. Running containers are then shown as not limited until they restart.
// `limits` and `usage` have the same version.
//
// Trust. A process of the container can write anything into `usage`, so readers outside the
// container check every value. A damaged file does not affect the limits of other containers.
//
// Slots. A process that allocates device memory owns one slot: it holds an open-file-description
// lock (F_OFD_SETLK) on the byte of `usage` whose offset is the number of the slot. The mapping of
// the file keeps the open file description, and so the lock, until the process ends or calls exec.
// The next process that locks the slot of a dead process clears the slot (region/slots.h).
//
// Used memory of a GPU is the sum over all slots; the file has no total that could disagree. Memory
// that several processes share is in the slot of each process. `pieces` lists which slots hold the
// same piece, so that it counts once (region/shared_pieces.h).
//
// Compute. All times are nanoseconds of CLOCK_MONOTONIC, all amounts nanoseconds of GPU time, all
// rates and factors fixed-point numbers with 16 binary places (kOne). Each struct of compute limits
// is called a line, after the cache line that it fills. A line has one kind of writer: the agent,
// the processes of the container, or one process. The agent reads the ComputeUsage of a GPU every
// few milliseconds: its charge and the lines of the used slots are one contiguous block.
// compute/gate.h and compute/arbiter.h describe how limiter and agent use the lines.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::limiter {

inline constexpr uint32_t kLimitsMagic = 0x494d4c54;  // "TLMI"
inline constexpr uint32_t kUsageMagic = 0x53554c54;   // "TLUS"
// 3 added `pieces`; 4 `processes` and `reported_refusals`.
inline constexpr uint16_t kVersion = 4;
inline constexpr uint16_t kOldestReader = 2;
inline constexpr uint16_t kOldestFile = 2;

// Most accesses to the region need no memory order; code that needs one names it.
inline constexpr auto kRelaxed = std::memory_order_relaxed;

inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxSlots = 4096;  // processes of a container that use a GPU

// File names in the two folders.
inline constexpr char kLimitsFile[] = "limits";
inline constexpr char kUsageFile[] = "usage";

struct Header {
  uint32_t magic;
  uint16_t version;        // of the program that created the file
  uint16_t oldest_reader;  // the oldest version that can read the file
  uint64_t size;           // bytes of the file when it was created
};
static_assert(sizeof(Header) == 16);

// The agent is the only writer. The struct fills 64 bytes, so that two GPUs share no cache line.
struct GpuLimit {
  uint8_t uuid[16];              // as cuDeviceGetUuid reports it
  std::atomic<uint64_t> memory;  // device memory in bytes; 0: not limited
  // Bytes that NVML reports for the container's processes beyond what they hold in their slots.
  std::atomic<uint64_t> unaccounted;
  // 1 + the part of GpuUsage::refused that Events have reported; 0: not known.
  std::atomic<uint64_t> reported_refusals;
  uint64_t reserved[3];
};
static_assert(sizeof(GpuLimit) == 64);

// 1.0 as a rate or factor; a rate of kOne is a whole GPU.
inline constexpr uint32_t kOne = 1 << 16;

// What the processes of the container may use of the GPU's time.
struct ComputeLimit {
  // 0: not limited. The agent increments it, so that every thread gives up the GPU time that it has
  // taken in advance. A launch that need not wait reads no other field.
  std::atomic<uint32_t> epoch;
  std::atomic<uint32_t> flags;       // kComputeStop, kComputeLow
  std::atomic<int64_t> pool;         // limit of ComputeCharge::charged while the lease lasts
  std::atomic<int64_t> lease_end;    // afterwards `floor` is the rate, without flags and pool
  std::atomic<uint32_t> bias;        // factor of every charge, which corrects the measured time
  std::atomic<uint32_t> cap;         // rate while the lease lasts; 0: no limit but `pool`
  std::atomic<uint32_t> floor;       // rate without a lease
  std::atomic<uint32_t> slice_us;    // GPU time that a thread takes in advance
  std::atomic<uint32_t> window_us;   // GPU time that a process may have in flight
  std::atomic<uint32_t> quantum_us;  // length of a process's turn on the GPU
  uint32_t reserved[4];
};
static_assert(sizeof(ComputeLimit) == 64);

inline constexpr uint32_t kComputeStop = 1;  // launch nothing
inline constexpr uint32_t kComputeLow = 2;   // the container has low priority

// The share of GPU time that one process gets from the driver, which lets processes take turns on
// the GPU. The agent measures the share.
struct ComputePart {
  std::atomic<uint32_t> sequence;      // odd while the agent writes
  std::atomic<uint32_t> part;          // rate at which the process makes progress while it has work
  std::atomic<int64_t> part_integral;  // integral of `part` over time, until `at`
  std::atomic<int64_t> at;
  std::atomic<uint32_t> contended;  // not 0: other containers or processes use the GPU
  std::atomic<uint32_t> processes;  // processes on the GPU, this one included; 0: unknown
};
static_assert(sizeof(ComputePart) == 32);

// With this flag, a process that cannot be limited uses the GPU without a limit. Without it, the
// process gets no GPU.
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
  // Bytes by slot; both count against the limit. `held`: allocated by the process, or counted
  // before it calls the driver to allocate them. `pending`: reserved by the process for such a
  // call.
  std::atomic<uint64_t> held[kMaxSlots];
  std::atomic<uint64_t> pending[kMaxSlots];
  std::atomic<uint64_t> peak;           // maximum of held and pending bytes together
  std::atomic<uint64_t> refused;        // allocations that the limit refused
  std::atomic<uint64_t> refused_bytes;  // size of the last refused allocation; 0: a module or
                                        // a context of unknown size
  uint64_t reserved[5];
};
static_assert(sizeof(GpuUsage) == 2 * 8 * kMaxSlots + 64);

// The line that all processes of the container share.
struct ComputeCharge {
  std::atomic<int64_t> charged;       // GPU time charged for launches
  std::atomic<int64_t> allowance;     // grows at the rate of the limit; `charged` stays below it
  std::atomic<int64_t> allowance_at;  // time at which `allowance` was computed
  std::atomic<uint32_t> slots;        // 1 + the highest slot with a ComputeSlot in use
  uint32_t reserved;
  std::atomic<int64_t> waited;  // time that threads waited before launches
  // Running mean of the GPU time of launches for which no price, not even a similar one, was known;
  // 0: none yet.
  std::atomic<int64_t> unknown_price;
  // GPU time of copies and sets within device memory, by their prices. NVML's utilization does not
  // include them.
  std::atomic<int64_t> copied;
  uint64_t reserved2;
};
static_assert(sizeof(ComputeCharge) == 64);

// The line that one process writes. Counters only grow; the other fields describe the present.
struct ComputeSlot {
  std::atomic<int64_t> metered;         // GPU time of work that has ended
  std::atomic<int64_t> in_flight;       // estimated GPU time of launches that have not ended
  std::atomic<int64_t> last_launch;     // time of the last launch
  std::atomic<int64_t> last_long_work;  // when work of 0.4 kQuantum or more was last in flight
  std::atomic<int64_t> last_wait;       // when the pool, a stop or the window last delayed a launch
  std::atomic<int64_t> last_written;    // when the process last wrote this line
  std::atomic<int64_t> longest;         // GPU time of the longest recent launch
  std::atomic<int64_t> last_limited;    // when the limit of the container last delayed a launch
};
static_assert(sizeof(ComputeSlot) == 64);

struct ComputeUsage {
  ComputeCharge charge;
  ComputeSlot slots[kMaxSlots];
};

// Device memory that processes export and import.
inline constexpr uint32_t kMaxPieces = 1024;
inline constexpr uint32_t kMaxHolders = 24;  // of one piece

struct SharedPiece {
  std::atomic<uint64_t> id;     // from the marks of its descriptors (memory/shared_handles.h)
  std::atomic<uint64_t> bytes;  // size of the piece; each holder has them in its slot
  std::atomic<uint32_t> gpu;
  uint32_t reserved;
  std::atomic<uint16_t> holders[kMaxHolders];  // slot + 1, or 0; all 0: the entry is free
  uint64_t reserved2[7];
};
static_assert(sizeof(SharedPiece) == 128);

struct Usage {
  Header header;
  std::atomic<uint32_t> slots_end;  // 1 + the highest slot that was ever owned
  uint32_t reserved[11];
  // By slot: the process id of the owner in its pid namespace (0: not owned), and its start. The
  // lower 40 bits of the start are its time in clock ticks since boot (field 22 of /proc/PID/stat),
  // which differs for a later process with the same id. The upper 24 bits are a part of the
  // address of the stack (field 28), which differs after exec; 0: unknown, as for processes of
  // other users.
  std::atomic<int32_t> pids[kMaxSlots];
  std::atomic<uint64_t> starts[kMaxSlots];
  // By slot: bit i is set if the owner writes its line in compute[i].
  std::atomic<uint32_t> compute_gpus[kMaxSlots];
  GpuUsage gpus[kMaxGpus];
  ComputeUsage compute[kMaxGpus];
  std::atomic<uint32_t> pieces_used;       // 1 + the highest entry that was ever used
  std::atomic<uint32_t> piece_departures;  // incremented when a holder leaves a piece
  uint64_t reserved2[7];
  SharedPiece pieces[kMaxPieces];
};
static_assert(offsetof(Usage, pids) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tessera::limiter
