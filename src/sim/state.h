// SPDX-License-Identifier: Apache-2.0
// The state of a simulated node, shared by everything that runs on it: libcuda, libnvidia-ml and
// simgpu map one file (state_layout.h) and so always agree. This is the only code that reads or
// writes it concurrently. Not for the rules of CUDA or NVML.
//
// It is linked into libraries that are loaded into other people's programs: libc only, no
// exception, no thread, no log, no signal handler. Functions return 0 or an errno.
//
// Who is alive. The folder also holds the file `slots`. A process that uses a GPU holds a POSIX
// record lock on the byte of its slot; the kernel drops it at the process's end, SIGKILL included,
// and tells everyone else who holds it, with the pid translated into the asker's pid namespace.
//   - POSIX drops all locks of a process when *any* descriptor of that file is closed in it. So the
//     descriptor is opened once for each folder and process, shared by all State objects of that
//     folder, and never closed; the libraries are linked with -z nodelete.
//   - A forked child holds no lock: ProcessSlot::mine() is false there.
//   - Questions go through F_OFD_GETLK, which reports the asker's own record locks, too.
//
// Used memory of a GPU is the sum over the slots whose lock is held; there is no second count that
// could disagree with it. Check and charge happen under a record lock for each GPU, so that a crash
// at any instruction frees it and leaves totals right.
//
// Threads: all functions may be called from any thread. Ownership: the mapping goes with the
// object.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "src/sim/state_layout.h"

namespace tessera::sim {

uint64_t MonotonicNs();

// A process on a GPU, as seen from here.
struct ProcessView {
  uint32_t slot = 0;
  int pid = 0;  // in the reader's pid namespace; 0 for a process outside of it
  uint64_t bytes = 0;
  uint32_t contexts = 0;
  uint64_t busy_ns = 0;  // until now
  char name[32] = "";
};

// Where utilisation stands, in percent; injected values win.
struct Load {
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

class State {
 public:
  // The folder of the state for the library or program that holds `address`: $SIMGPU_STATE_DIR,
  // else <A>/run/simgpu below the first ancestor A of its file that has one. "" if there is none.
  static std::string FindDir(const void* address);

  State() = default;
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Maps <dir>/state; read-only where it may not be written. ENOENT: no simulated node there;
  // EPROTO: not a state file of this version.
  int Open(const std::string& dir);
  // Makes <dir>/state from `image` (which is large: keep it off the stack), and an empty `slots`.
  // Replaces an old one; processes that still use that go on with it, alone.
  static int Create(const std::string& dir, const StateFile& image);

  bool valid() const { return file_ != nullptr; }
  bool writable() const { return writable_; }
  const std::string& dir() const { return dir_; }
  // REQUIRES: valid(). Facts may be read at will; for the rest there are functions below.
  const StateFile& file() const { return *file_; }
  StateFile& file() { return *file_; }
  uint32_t gpu_count() const { return file_->gpu_count; }
  const GpuFacts& facts(uint32_t gpu) const { return file_->facts[gpu]; }
  GpuLive& live(uint32_t gpu) { return file_->live[gpu]; }
  bool lost(uint32_t gpu) const { return file_->live[gpu].lost.load() != 0; }

  // True where $SIMGPU_DEV_ROOT/dev/nvidia<minor> exists: only such GPUs may be shown.
  bool NodeExists(uint32_t gpu) const;
  // "$SIMGPU_DEV_ROOT/dev/<name>".
  static std::string DevicePath(const char* name);

  // Memory of live processes on a GPU.
  uint64_t UsedBytes(uint32_t gpu);
  // The same while no process can charge more, so never more than the GPU really held at one
  // instant. Processes that charge wait meanwhile.
  uint64_t UsedBytesAtOnce(uint32_t gpu);
  // Fills at most `capacity` of `views` with the live processes that have a context or memory on
  // the GPU; returns how many there are. Cost: one system call for each.
  uint32_t Processes(uint32_t gpu, ProcessView* views, uint32_t capacity);
  // Busy in the last second: the turns that processes had. Memory utilisation is half of it.
  Load Utilization(uint32_t gpu);
  // Busy nanoseconds of a GPU since the node was made.
  uint64_t BusyNs(uint32_t gpu);

  // What root has set, or the default.
  uint32_t PowerLimitMw(uint32_t gpu) const;
  // True where an injected temperature is at slowdown or above, or an injected power draw at the
  // limit or above; what follows from load never is.
  bool Hot(uint32_t gpu) const;
  bool Capped(uint32_t gpu) const;
  // Starts and stops the clocks of HotNs and CappedNs. To be called after a change of the above.
  void NoteThrottling(uint32_t gpu);
  // Nanoseconds since the node was made.
  uint64_t HotNs(uint32_t gpu) const;
  uint64_t CappedNs(uint32_t gpu) const;

  // Events (XID, ECC). A listener remembers `last` = event_count() when it registers, then waits.
  uint64_t event_count() const { return file_->event_count.load(); }
  void PostEvent(uint32_t gpu, uint64_t type, uint64_t data);
  // Blocks until there is an event after `*last`, gives it and moves `*last` on. False:
  // `timeout_ms` passed without (0: does not wait). Events that the ring has lost are skipped.
  bool WaitEvent(uint64_t* last, uint32_t timeout_ms, EventView* event);

  // Injected failures. At the entry of every NVML call: 0, or the nvmlReturn_t to answer at once.
  // Where the call is to hang it blocks until the fault is cleared, then gives 0.
  // `gpu` is kAllGpus for calls without a device. Costs one load when nothing is injected.
  uint32_t CheckFault(const char* function, int32_t gpu) {
    return file_->active_faults.load(std::memory_order_relaxed) == 0
               ? 0
               : SlowCheckFault(function, gpu);
  }
  // ENOSPC when the table is full, EINVAL for a name that is too long.
  int AddFault(const char* function, int32_t gpu, uint32_t result, bool hang, uint64_t after,
               uint64_t times);
  // `function` null: all; else the faults of that name and GPU. Wakes calls that hang.
  void ClearFaults(const char* function, int32_t gpu);

  // Counts a call of something that is not implemented; see `simgpu unimplemented`.
  void CountUnimplemented(const char* function);
  // Where launches of a kernel are counted that the simulation does not compute, by the first 63
  // characters of its name. Null: the state is read-only, or there are too many kernels.
  AtomicU64* KernelCounter(const char* name);

  // Pid of who holds a byte of `slots`, -1: nobody. 0: somebody outside of our pid namespace.
  int HolderOf(uint32_t byte);

 private:
  friend class ProcessSlot;
  // Holds a byte of `slots` for this process, and its threads off each other.
  class ByteLock;

  uint64_t SumBytes(uint32_t gpu, bool only_live);
  uint32_t SlowCheckFault(const char* function, int32_t gpu);

  std::string dir_;
  StateFile* file_ = nullptr;
  bool writable_ = false;
  int slots_fd_ = -1;
  // Threads of one process are not kept apart by record locks.
  std::mutex mutex_;
};

// The place of this process in the state. For libcuda.
class ProcessSlot {
 public:
  // Claims a slot. EAGAIN: all kMaxSlots are held; EROFS: the state is read-only.
  // `state` outlives the slot, and there is one ProcessSlot for a State in a process.
  int Claim(State* state);
  // Gives it back; the end of the process does, too.
  void Release();

  // False before Claim and in a forked child; also after the program closed our descriptor and
  // another process took the slot.
  bool mine() const;

  // Charges `bytes` on a GPU if they fit. ENOMEM: they do not; ESTALE: !mine().
  int Charge(uint32_t gpu, uint64_t bytes);
  void Uncharge(uint32_t gpu, uint64_t bytes);
  void AddContexts(uint32_t gpu, int delta);

  // REQUIRES: claimed.
  State& state() { return *state_; }
  uint32_t index() const { return index_; }

 private:
  Slot& slot() const;

  State* state_ = nullptr;
  uint32_t index_ = 0;
  uint64_t owner_ = 0;
  int pid_ = 0;
};

}  // namespace tessera::sim
