// SPDX-License-Identifier: Apache-2.0
// Layout of the file <driver root>/run/simgpu/state. All processes of a node map it, in any pid and
// mount namespace, so it has no pointers. A crash cannot leave data incomplete: every word that
// changes after creation is independent of others and written in one store. Behavior: state.h.
//
// Facts (GpuFacts) never change after `simgpu create`. Zero means "none", unless the comment of a
// field says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

namespace tessera::sim {

inline constexpr uint64_t kStateMagic = 0x3155504753534554;  // "TESSGPU1"
inline constexpr uint32_t kStateVersion = 7;
inline constexpr uint32_t kMaxGpus = 16;
inline constexpr uint32_t kMaxLinks = 18;
inline constexpr uint32_t kMaxSlots = 2048;  // processes that use the GPUs at one time
inline constexpr uint32_t kMaxShared = 512;  // pieces of memory that processes share, for each GPU
inline constexpr uint32_t kMaxEvents = 256;
inline constexpr uint32_t kMaxFaults = 128;
inline constexpr uint32_t kMaxCounters = 1024;
inline constexpr uint32_t kBusySamples = 32;
inline constexpr uint32_t kTurnRecords = 16;
inline constexpr uint32_t kProcessTimeSamples = 8;
inline constexpr uint32_t kMaxMigProfiles = 10;
inline constexpr uint32_t kMaxInstances = 8;  // GPU instances of a GPU, and its compute instances
inline constexpr int32_t kAllGpus = -1;

using AtomicU32 = std::atomic<uint32_t>;
using AtomicI32 = std::atomic<int32_t>;
using AtomicU64 = std::atomic<uint64_t>;
static_assert(AtomicU64::is_always_lock_free && sizeof(AtomicU64) == 8);

struct PciAddress {
  uint32_t domain, bus, device, function;
};

// One NVLink of a GPU. The numbers are NVML's.
struct NvLink {
  uint32_t active;       // 0: not connected
  uint32_t remote_type;  // 0 GPU, 2 NVSwitch, 0xFF unknown
  int32_t remote_gpu;    // index in this node; -1 behind a switch
  uint32_t remote_link;  // number of the link at the other end
  PciAddress remote;
};

// A profile of GPU instances (MIG). The numbers are the numbers of NVML and nvidia-smi.
struct MigProfile {
  char name[16];       // "1g.10gb+me"; empty: the end of the list
  uint32_t number;     // NVML_GPU_INSTANCE_PROFILE_*
  uint32_t id;         // as "nvidia-smi mig -lgip" shows it
  uint32_t slices;     // of compute
  uint32_t size;       // slices of memory
  uint32_t starts;     // bit n: an instance may begin at slice n of memory
  uint32_t instances;  // maximum number of instances on a GPU
  uint32_t sm_count;
  uint32_t copy_engines, decoders, encoders, jpegs, ofas;
  uint64_t memory_bytes;
};

// The constants of a GPU. Strings are NUL-terminated; enumerations are NVML's numbers.
struct GpuFacts {
  char uuid[48];  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  char name[96];
  char serial[32];
  char vbios[32];
  char board_part_number[32];
  char board_id_text[32];
  char inforom_image[16], inforom_oem[16], inforom_ecc[16];  // versions; empty: has none
  uint32_t minor;                                            // of /dev/nvidia<minor>
  uint32_t brand;
  uint32_t architecture;
  uint32_t cc_major, cc_minor;
  uint32_t sm_count;
  uint32_t max_threads_per_sm;
  uint32_t shared_per_block_optin, shared_per_sm, registers_per_sm;
  uint32_t l2_bytes;
  uint32_t memory_bus_bits;
  uint32_t async_engines;
  uint32_t mig_capable;
  uint32_t max_mig_devices;
  uint32_t ecc_enabled;
  uint32_t display_mode;
  uint32_t row_banks;  // banks of memory with spare rows; 0: pages are retired instead

  PciAddress pci;
  uint32_t pci_device_id;  // device << 16 | vendor, as in nvmlPciInfo_t
  uint32_t pci_subsystem_id;
  uint32_t pci_class;  // 0x030200 (3D controller) or 0x030000 (VGA)
  uint32_t pcie_gen_max, pcie_width_max;
  int32_t numa_node;  // -1: none

  uint64_t memory_bytes;    // NVML's total
  uint64_t reserved_bytes;  // reserved by the driver; not in CUDA's total
  uint64_t context_bytes;   // taken by one context
  uint64_t bar1_bytes;
  uint64_t memory_bytes_per_second;

  uint32_t clock_graphics_max, clock_sm_max, clock_mem_max, clock_video_max;  // MHz
  uint32_t clock_graphics_idle, clock_sm_idle, clock_mem_idle, clock_video_idle;
  uint32_t power_limit_mw, power_min_mw, power_max_mw, power_idle_mw;
  uint32_t temperature_idle_c, temperature_slowdown_c, temperature_shutdown_c;
  uint32_t temperature_memory_max_c;

  uint32_t nvlink_version;
  uint32_t nvlink_mbps;   // one link, one direction
  uint32_t nvlink_count;  // links that the chip has
  uint32_t pad;
  NvLink links[kMaxLinks];
  // nvmlGpuTopologyLevel_t to each GPU of the node: 10 one switch … 50 across sockets; 0 to itself.
  uint32_t pcie_level[kMaxGpus];

  MigProfile mig_profiles[kMaxMigProfiles];

  uint32_t fabric_state;  // 0 not supported, 3 completed
  uint32_t fabric_clique;
  uint8_t fabric_cluster[16];
};

// A sample of busy time, from which utilization is computed.
struct BusySample {
  AtomicU64 time_ns;   // CLOCK_MONOTONIC
  AtomicU64 total_ns;  // TurnQueue::busy_ns at `time_ns`
  AtomicU64 until_ns;  // TurnQueue::busy_until_ns at `time_ns`
};

// The turns of processes on a GPU or on a compute instance (turns.h). Only the holder of `lock`
// writes the fields after it.
struct TurnQueue {
  AtomicU32 lock;               // the holder's slot + 1; 0: free
  AtomicU32 last_slot_plus_1;   // of the process with the last turn; 0: none yet
  AtomicU64 quantum_start_ns;   // start of the uninterrupted turns of this process
  AtomicU64 busy_ns;            // the sum of all turns
  AtomicU64 busy_until_ns;      // CLOCK_MONOTONIC: end of the last turn, maybe in the future
  AtomicU64 busy_sample_count;  // written so far; the ring has the last kBusySamples
  BusySample busy_samples[kBusySamples];
};

// MIG instances. A record lock of the GPU in `slots` serializes changes (state_mig.cc).
struct GpuInstance {
  AtomicU32 present;  // written last
  AtomicU32 profile;  // index in GpuFacts::mig_profiles
  AtomicU32 id;
  AtomicU32 start;  // first slice of memory
};
struct ComputeInstance {
  AtomicU32 present;       // written last
  AtomicU32 gpu_instance;  // index in SimGpuState::gpu_instances
  AtomicU32 id;            // in its GPU instance
  AtomicU32 start, slices;
  uint32_t pad;
  AtomicU64 uuid_high, uuid_low;  // "MIG-<uuid>"
  TurnQueue turns;
};

// The variable state of a simulated GPU; GpuFacts has the constants. Every process may read it;
// only simgpu and the two libraries write it.
struct SimGpuState {
  AtomicU32 lost;             // fallen off the bus
  AtomicU32 recovery_action;  // NVML field 230: 0 none, 1 reset, 2 reboot, 3 drain
  AtomicU32 poison_epoch;     // contexts of an older epoch are dead, with poison_result
  AtomicU32 poison_result;    // CUresult
  // The next five fields override simulated values. kDerived: no override, the value follows the
  // load.
  AtomicU32 temperature_c;
  AtomicU32 memory_temperature_c;
  AtomicU32 power_mw;
  AtomicU32 utilization_gpu;  // percent
  AtomicU32 utilization_memory;
  AtomicU32 compute_mode;
  AtomicU32 persistence_mode;
  AtomicU32 retired_pending;
  AtomicU32 mig_mode;          // 1: on
  AtomicU32 ecc_mode_pending;  // ECC mode after the next boot, which a simulated node never has
  // Settings of root; 0: the default.
  AtomicU32 power_limit_mw;
  AtomicU32 locked_graphics_min, locked_graphics_max;  // MHz
  AtomicU32 locked_mem_min, locked_mem_max;
  AtomicU32 application_graphics, application_mem;
  AtomicU32 mig_pending;  // the mode that the driver was last asked for
  // volatile: since the driver was loaded. aggregate: for the life of the board.
  AtomicU64 ecc_corrected_volatile, ecc_uncorrected_volatile;
  AtomicU64 ecc_corrected_aggregate, ecc_uncorrected_aggregate;
  AtomicU64 remapped_corrected, remapped_uncorrected, remapped_pending, remapped_failed;
  AtomicU64 retired_corrected, retired_uncorrected;  // pages
  // since: CLOCK_MONOTONIC at which heat or power began to lower the clocks; 0: the clocks are not
  // lowered. before: the sum of earlier periods.
  AtomicU64 thermal_throttling_since_ns, thermal_throttling_before_ns;
  AtomicU64 power_throttling_since_ns, power_throttling_before_ns;
  AtomicU64 pcie_replays;
  AtomicU64 energy_base_mj;
  TurnQueue turns;  // of the GPU without MIG
  GpuInstance gpu_instances[kMaxInstances];
  ComputeInstance compute_instances[kMaxInstances];
};
inline constexpr uint32_t kDerived = 0xFFFFFFFF;

// A period in which a process has the whole GPU, or the whole compute instance. CLOCK_MONOTONIC.
struct TurnRecord {
  AtomicU64 start_ns, end_ns;
  AtomicU64 turns_before_ns;  // SlotGpu::turns_ns before this turn
};

// GPU time of a process in one sample of the driver. Sample `index` is the period from
// index * kSamplePeriodNs to (index + 1) * kSamplePeriodNs of CLOCK_MONOTONIC.
inline constexpr uint64_t kSamplePeriodNs = 167'000'000;
struct ProcessTimeSample {
  AtomicU64 index;
  AtomicU64 busy_ns;
};

// Memory and time of one process on one GPU.
struct SlotGpu {
  // The process writes these fields.
  AtomicU64 bytes;  // with contexts
  AtomicU32 contexts;
  AtomicU32 instance_plus_1;  // index of the compute instance + 1; 0: the whole GPU
  AtomicU64 requested_ns;     // total GPU time; the part above `turns_ns` waits for a turn
  AtomicU64 wait_start_ns;    // CLOCK_MONOTONIC
  AtomicU64 turns_consumed;   // turns before the process's current one
  // The holder of TurnQueue::lock writes these fields.
  AtomicU64 turns_ns;    // the sum of its turns
  AtomicU64 turn_count;  // turns so far; the ring has the last kTurnRecords
  TurnRecord turns[kTurnRecords];
  // The sample `index` is at index % kProcessTimeSamples.
  ProcessTimeSample samples[kProcessTimeSamples];
};

// One process. The slot is valid while its record lock in the file `slots` is held, which the
// kernel drops at the end of the process. The contents of an unlocked slot are ignored.
struct SlotRecord {
  AtomicU64 claim_id;  // random number of the claim; 0: never used, or released
  AtomicU64 start_ns;
  char name[32];
  SlotGpu gpus[kMaxGpus];
};

// Memory in a file that several processes may hold (cuMemExportToShareableHandle). It counts once,
// as long as a live slot holds it. The lock of kChargeByte guards changes of all fields except
// `holders`.
struct SharedMemory {
  AtomicU64 inode;                // of the file; 0: never used
  AtomicU64 bytes;                // not in SlotGpu::bytes
  AtomicU32 gpu_instance_plus_1;  // index + 1; 0: the whole GPU
  uint32_t pad;
  AtomicU64 holders[kMaxSlots / 64];  // a bit for each slot
};

struct Event {
  AtomicU64 sequence;  // number of the event; 0 while it is written
  AtomicU64 type;      // nvmlEventType: 1, 2 ECC; 8 XID
  AtomicU64 data;      // XID number
  AtomicU64 time_ns;   // CLOCK_REALTIME
  AtomicU32 gpu;
  uint32_t pad;
};

// kFaultClaimed: a process is writing the fault.
enum FaultState : uint32_t { kFaultFree, kFaultActive, kFaultClaimed };

// An injected failure of NVML calls.
struct Fault {
  AtomicU32 state;    // FaultState, written last
  AtomicI32 gpu;      // index, or kAllGpus
  AtomicU32 result;   // nvmlReturn_t
  AtomicU32 hang;     // 1: the call does not return before the fault is cleared
  AtomicU64 after;    // calls that succeed first
  AtomicU64 times;    // calls that fail; 0: all
  AtomicU64 calls;    // matching calls so far
  char function[64];  // "nvmlDeviceGetMemoryInfo"; "*": every function
};

// kCounterClaimed: a process is writing the name.
enum CounterState : uint32_t { kCounterFree, kCounterClaimed, kCounterReady };
struct NamedCounter {
  AtomicU32 state;  // CounterState
  uint32_t pad;
  AtomicU64 count;
  char name[64];
};

struct StateFile {
  uint64_t magic;
  uint32_t version;
  uint32_t size;         // sizeof(StateFile)
  AtomicU64 generation;  // incremented when the driver is loaded again
  uint64_t created_ns;   // CLOCK_REALTIME
  char node_name[64];
  char profile[64];
  char driver_version[32];  // "550.163.01"
  char nvml_version[32];    // "12.550.163.01"
  uint32_t cuda_version;    // 12040
  uint32_t gpu_count;

  AtomicU32 event_signal;  // futex, incremented with each event
  AtomicU32 fault_signal;  // futex, incremented when faults change
  AtomicU32 active_faults;
  AtomicU32 slots_end;    // 1 + the highest slot that was ever claimed
  AtomicU64 event_count;  // events so far; the ring has the last kMaxEvents

  GpuFacts facts[kMaxGpus];
  SimGpuState gpu_states[kMaxGpus];
  Event events[kMaxEvents];
  Fault faults[kMaxFaults];
  NamedCounter counters[kMaxCounters];         // calls of unimplemented functions
  NamedCounter kernel_counters[kMaxCounters];  // launches that computed nothing
  SlotRecord slots[kMaxSlots];
  AtomicU32 shared_end[kMaxGpus];  // 1 + the highest entry that was ever used
  SharedMemory shared[kMaxGpus][kMaxShared];
};

}  // namespace tessera::sim
