// SPDX-License-Identifier: Apache-2.0
// The state of a simulated node. libcuda, libnvidia-ml and simgpu map one file (state_layout.h), so
// they always agree. This code does not know the rules of CUDA or NVML.
//
// This code is linked into libraries that users' programs load. So it uses only libc, and has no
// exception, thread, log or signal handler. Functions return 0 or an errno.
//
// Live processes. The folder also has the file `slots`. A process that uses a GPU holds a POSIX
// record lock on the byte of its slot. The kernel drops the lock at the end of the process, SIGKILL
// included. It reports the lock's holder to other processes, as a pid of the caller's namespace.
//   - POSIX drops all locks of a process when it closes *any* descriptor of the file. So a process
//     opens one descriptor for each folder, shares it between all State objects of that folder, and
//     never closes it; the libraries are linked with -z nodelete.
//   - A forked child holds no lock: ProcessSlot::IsOwned() is false there.
//   - HolderOf uses F_OFD_GETLK, which also reports record locks of the calling process.
//
// Used memory of a GPU, and of a GPU instance (MIG), is the sum over the slots whose lock is held.
// The file has no total that could disagree. Check and charge happen under a record lock for each
// GPU, so that a crash at any instruction releases the lock and leaves totals right.
//
// Memory that processes share is in a separate table. It is charged once, while one of its holders
// lives. NVML reports it for the first live holder.
//
// Threads: any. Ownership: the object owns the mapping.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "src/sim/state_layout.h"

namespace tessera::sim {

uint64_t MonotonicNs();

// A process on a GPU, as the calling process sees it.
struct ProcessView {
  uint32_t slot = 0;
  int pid = 0;  // in the caller's pid namespace; 0: outside of it
  uint64_t bytes = 0;
  uint32_t contexts = 0;
  uint32_t instance_plus_1 = 0;  // index of its compute instance + 1; 0: the whole GPU
  uint64_t busy_ns = 0;          // GPU time so far
  // Index of the newest sample that NVML shows (State::NewestProcessTimeSample), and the GPU time
  // in it.
  uint64_t sample_index = 0, sample_busy_ns = 0;
  char name[32] = "";
};

// Utilization in percent; injected values take precedence.
struct GpuUtilization {
  uint32_t gpu = 0;
  uint32_t memory = 0;
};

struct EventView {
  uint64_t sequence = 0;  // from 1
  uint64_t type = 0;
  uint64_t data = 0;
  uint64_t time_ns = 0;
  uint32_t gpu = 0;
};

// The capability to use a GPU instance (MIG), or a compute instance in it.
struct MigCapability {
  uint32_t gpu_minor;
  uint32_t gi;  // id of the GPU instance
  int ci = -1;  // id of the compute instance; -1: the GPU instance itself

  // Minor number of the device file, and the file's name in /dev.
  uint32_t number() const {
    return kFirstCapability + (gpu_minor * kGpuInstanceIds + gi) * (1 + kComputeInstanceIds) +
           uint32_t(1 + ci);
  }
  std::string device() const;

  static constexpr uint32_t kGpuInstanceIds = 15, kComputeInstanceIds = 8;
  // Number 1 is the capability to configure instances, 2 the capability to monitor them.
  static constexpr uint32_t kFirstCapability = 3;
};
inline constexpr unsigned kCapabilityMajor = 511;  // typical; a real kernel assigns it dynamically
// Contents of a capability's file in /proc; `number` and `mode` are those of its device file.
std::string CapabilityText(uint32_t number, unsigned mode);

class State {
 public:
  // The state folder for the library or program that contains `address`: $SIMGPU_STATE_DIR, else
  // <A>/run/simgpu in the nearest ancestor A of its file that has this folder, else the socket of
  // `simgpu serve` (state_socket.h). "": none.
  static std::string FindDir(const void* address);

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Maps <dir>/state (read-only if the process may not write it). If `dir` is a socket, maps the
  // file that it gives. ENOENT: no simulated node; EPROTO: not a state file of this version.
  int Open(const std::string& dir);
  // Creates <dir>/state from `image` (which is too large for the stack), and an empty `slots`.
  // Replaces an old state; processes that have mapped it keep using it.
  static int Create(const std::string& dir, const StateFile& image);

  bool valid() const { return file_ != nullptr; }
  bool writable() const { return writable_; }
  const std::string& dir() const { return dir_; }
  uint64_t inode() const { return inode_; }  // of the mapped file
  // REQUIRES: valid().
  const StateFile& file() const { return *file_; }
  StateFile& file() { return *file_; }
  uint32_t gpu_count() const { return file_->gpu_count; }
  const GpuFacts& facts(uint32_t gpu) const { return file_->facts[gpu]; }
  SimGpuState& gpu_state(uint32_t gpu) { return file_->gpu_states[gpu]; }
  bool is_lost(uint32_t gpu) const { return file_->gpu_states[gpu].lost.load() != 0; }

  // True: $SIMGPU_DEV_ROOT/dev/nvidia<minor> exists. Programs see only such GPUs.
  bool DeviceFileExists(uint32_t gpu) const;
  // "$SIMGPU_DEV_ROOT/dev/<name>".
  static std::string DevicePath(const char* name);
  // True: the process may open that device file with these flags.
  static bool MayOpen(const char* name, int flags);

  static constexpr uint32_t kWholeGpu = 0xFFFFFFFF;
  // Memory of live processes on a GPU, or in one of its GPU instances.
  uint64_t UsedBytes(uint32_t gpu, uint32_t gpu_instance = kWholeGpu) {
    return SumBytes(gpu, /*only_live=*/true, gpu_instance);
  }
  // UsedBytes, computed while no process can charge memory. So the sum never exceeds the memory
  // that was in use at one moment.
  uint64_t UsedBytesConsistent(uint32_t gpu);
  // Writes the live processes that have a context or memory on the GPU, at most `capacity`, to
  // `views`. Returns their total number. Cost: a system call for each process.
  uint32_t Processes(uint32_t gpu, ProcessView* views, uint32_t capacity);
  // The percentage of the last second in which processes had turns. Memory utilization is half of
  // that.
  GpuUtilization Utilization(uint32_t gpu);
  // The number of the newest sample that NVML shows, which ended at least kSampleDelayNs before
  // `now_ns` (CLOCK_MONOTONIC).
  static constexpr uint64_t kSampleDelayNs = 200'000'000;
  static uint64_t NewestProcessTimeSample(uint64_t now_ns);
  // Busy nanoseconds of a GPU, MIG instances included, since the creation of the node.
  uint64_t BusyNs(uint32_t gpu);

  // The turns of a compute instance (SlotGpu::instance_plus_1), or of the GPU for 0.
  TurnQueue& TurnQueueOf(uint32_t gpu, uint32_t instance_plus_1) {
    SimGpuState& gpu_state = file_->gpu_states[gpu];
    return instance_plus_1 == 0 ? gpu_state.turns
                                : gpu_state.compute_instances[instance_plus_1 - 1].turns;
  }

  // MIG. Instances are indices in the tables of SimGpuState. EINVAL: MIG mode is off, or no such
  // profile or placement; ENOSPC: the slices are taken; EBUSY: in use. EROFS: read-only.
  bool IsMigEnabled(uint32_t gpu) const { return file_->gpu_states[gpu].mig_mode.load() != 0; }
  // EBUSY: instances exist, or processes use the GPU; the mode stays pending.
  int SetMigMode(uint32_t gpu, bool on);
  // SetMigMode without a check for instances and processes. As a reset of the GPU does, it destroys
  // all instances, even if processes use them. REQUIRES: the GPU supports MIG.
  int ForceMigMode(uint32_t gpu, bool on);
  static constexpr uint32_t kAnyStart = 0xFFFFFFFF;
  // kAnyStart: the instance gets the placement that leaves the most placements free.
  int CreateGpuInstance(uint32_t gpu, uint32_t profile, uint32_t start, uint32_t* instance);
  int DestroyGpuInstance(uint32_t gpu, uint32_t instance);
  int CreateComputeInstance(uint32_t gpu, uint32_t gpu_instance, uint32_t slices, uint32_t start,
                            uint32_t* instance);
  int DestroyComputeInstance(uint32_t gpu, uint32_t instance);
  // Placements (bit n: start n) that are free for a profile now; 0 at its limit of instances.
  uint32_t FreeStarts(uint32_t gpu, uint32_t profile) const;
  // FreeStarts for a compute instance with this number of slices.
  uint32_t FreeComputeStarts(uint32_t gpu, uint32_t gpu_instance, uint32_t slices) const;
  const MigProfile& ProfileOf(uint32_t gpu, uint32_t gpu_instance) const {
    return facts(gpu)
        .mig_profiles[file_->gpu_states[gpu].gpu_instances[gpu_instance].profile.load()];
  }
  uint32_t MultiprocessorsOf(uint32_t gpu, uint32_t gpu_instance, uint32_t slices) const;
  // "MIG-<uuid>", and "1c.2g.20gb" or "2g.20gb" if it has all slices of its GPU instance.
  std::string InstanceUuid(uint32_t gpu, uint32_t compute_instance) const;
  std::string InstanceProfile(uint32_t gpu, uint32_t compute_instance) const;
  // The compute instance at position `rank` in the order of ids; kMaxInstances: none.
  enum class InstanceFilter { kUsable, kAll };
  uint32_t InstanceByRank(uint32_t gpu, uint32_t rank,
                          InstanceFilter filter = InstanceFilter::kUsable) const;
  // True: this process may open the capability files of the compute instance and its GPU instance.
  bool MayUse(uint32_t gpu, uint32_t compute_instance) const;

  // The limit that root has set, or the default.
  uint32_t PowerLimitMw(uint32_t gpu) const;
  // True: an injected temperature has reached the slowdown temperature, or an injected power draw
  // has reached the limit. Values that derive from load never throttle.
  bool IsThermallyThrottled(uint32_t gpu) const;
  bool IsPowerThrottled(uint32_t gpu) const;
  // Updates ThermalThrottlingNs and PowerThrottlingNs. REQUIRES: called after each change of an
  // injected value or of the power limit.
  void UpdateThrottling(uint32_t gpu);
  // Nanoseconds of throttling since the creation of the node.
  uint64_t ThermalThrottlingNs(uint32_t gpu) const;
  uint64_t PowerThrottlingNs(uint32_t gpu) const;

  // Events (XID, ECC). A listener sets `last` = event_count() when it registers, then waits.
  uint64_t event_count() const { return file_->event_count.load(); }
  void PostEvent(uint32_t gpu, uint64_t type, uint64_t data);
  // Waits for the next event after `*last`, and advances `*last` to it. False: no event within
  // `timeout_ms` (0: does not wait). Events that the ring has lost are skipped.
  bool WaitEvent(uint64_t* last, uint32_t timeout_ms, EventView* event);

  // Injected failures. Every NVML call calls this function first. It returns 0, or the nvmlReturn_t
  // that the call must return. If the call must hang, the function blocks until the fault is
  // cleared, and then returns 0. `gpu` is kAllGpus for calls without a device. Cost without faults:
  // one load.
  uint32_t CheckFault(const char* function, int32_t gpu) {
    return file_->active_faults.load(std::memory_order_relaxed) == 0
               ? 0
               : SlowCheckFault(function, gpu);
  }
  // Adds a fault. The first `skipped_calls` matching calls succeed; then `times` calls fail or hang
  // (0: all). ENOSPC: the table is full. EINVAL: the name is too long.
  int AddFault(const char* function, int32_t gpu, uint32_t result, bool hang,
               uint64_t skipped_calls, uint64_t times);
  // Clears the faults of that name and GPU, or all if `function` is null. Wakes hanging calls.
  void ClearFaults(const char* function, int32_t gpu);

  // Counts a call of an unimplemented function; see `simgpu unimplemented`.
  void CountUnimplemented(const char* function);
  // The counter of launches that compute nothing, by the first 63 characters of the kernel's name.
  // Null: the state is read-only, or the table is full.
  AtomicU64* KernelCounter(const char* name);

  // Pid of the process that holds a byte of `slots`; 0: outside of the pid namespace; -1: none.
  int HolderOf(uint32_t byte);

 private:
  friend class ProcessSlot;
  // Locks a byte of `slots` against other processes, and a mutex against other threads.
  class ByteLock;

  // `gpu_instance`: an index, or kWholeGpu.
  uint64_t SumBytes(uint32_t gpu, bool only_live, uint32_t gpu_instance = kWholeGpu);
  // The lowest slot that holds the memory; kMaxSlots: none.
  uint32_t FirstHolder(const SharedMemory& memory, bool only_live);
  SharedMemory* FindShared(uint32_t gpu, uint64_t inode);
  bool IsUsed(uint32_t gpu, uint32_t compute_instance);
  // Removes an instance with its files. REQUIRES: the lock of kMigByte; the instance is present.
  void RemoveComputeInstance(uint32_t gpu, uint32_t instance);
  void RemoveGpuInstance(uint32_t gpu, uint32_t instance);
  // Create and remove the files of a capability, as far as this process has the permission.
  void CreateCapabilityFiles(const MigCapability& capability) const;
  void RemoveCapabilityFiles(const MigCapability& capability) const;
  uint32_t SlowCheckFault(const char* function, int32_t gpu);

  std::string dir_;
  StateFile* file_ = nullptr;
  bool writable_ = false;
  uint64_t inode_ = 0;
  int slots_fd_ = -1;
  // Record locks do not exclude threads of one process.
  std::mutex mutex_;
};

// The slot of this process in the state, for libcuda.
class ProcessSlot {
 public:
  // Claims a slot. EAGAIN: all kMaxSlots are held; EROFS: the state is read-only. `state` outlives
  // the slot. A process has one ProcessSlot for a State.
  int Claim(State* state);
  // Releases the slot, as does the end of the process.
  void Release();

  // True: this process owns the slot. False: before Claim, in a forked child, or if the program has
  // closed the descriptor and another process has claimed the slot.
  bool IsOwned() const;

  // Charges `bytes` on a GPU. ENOMEM: they do not fit; ESTALE: !IsOwned().
  int Charge(uint32_t gpu, uint64_t bytes);
  // From now on, charges and turns on the GPU belong to the compute instance.
  void UseInstance(uint32_t gpu, uint32_t compute_instance);
  void Uncharge(uint32_t gpu, uint64_t bytes);
  void AddContexts(uint32_t gpu, int delta);

  // Makes this process a holder of shared memory, which the inode of its file identifies. The
  // memory is charged unless another live process holds it. `charged`: this process has already
  // charged the bytes; they now become shared. ENOMEM: no room on the GPU; ENOSPC: the table is
  // full.
  int Share(uint32_t gpu, uint64_t inode, uint64_t bytes, bool charged);
  // This process is no longer a holder.
  void Unshare(uint32_t gpu, uint64_t inode);

  // REQUIRES: claimed.
  State& state() { return *state_; }
  uint32_t index() const { return index_; }

 private:
  SlotRecord& slot() const;
  // The GPU instance of this process; State::kWholeGpu: none.
  uint32_t GpuInstanceOf(uint32_t gpu) const;
  bool HasRoom(uint32_t gpu, uint64_t bytes) const;  // REQUIRES: the lock of kChargeByte

  State* state_ = nullptr;
  uint32_t index_ = 0;
  uint64_t claim_id_ = 0;
  int pid_ = 0;
};

}  // namespace tessera::sim
