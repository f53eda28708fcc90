// SPDX-License-Identifier: Apache-2.0
// The limiter in one process: the region, and what the process holds of each GPU.
//
// Start. Loading the library finds the driver's functions, makes one page, and does nothing else.
// cuInit, without which no other function of CUDA works, maps the region and claims a slot.
//
// Fork. CUDA does not survive fork in a child of a process that has initialized it. The kernel
// wipes the page that says "initialized" in every child, whichever system call made it, so the
// child starts anew.
//
// Failure. Where the region cannot be used, one line on standard error says why, and cuInit returns
// CUDA_ERROR_NOT_PERMITTED; or, where the limits say kFailOpen, the process is not limited. The
// limiter never ends the process and installs no signal handler.
//
// Threads: any.
#pragma once

#include "api/cuda_abi.h"
#include "src/limiter/accounts.h"
#include "src/limiter/allocations.h"
#include "src/limiter/charges.h"
#include "src/limiter/contexts.h"
#include "src/limiter/graph_memory.h"
#include "src/limiter/physical_memory.h"
#include "src/limiter/pools.h"
#include "src/limiter/throttle.h"

namespace tessera::limiter {

class Process {
 public:
  static Process& Get();

  // Maps the region and claims a slot, once. kNotPermitted: see above.
  cuda::Result Init();
  // False: nothing is limited in this process, or cuInit has not been called.
  bool limiting() const;

  // The context that is current in this thread, with its GPU's index in the limits; -1: there is no
  // context, or no limit on that GPU.
  Contexts::Known CurrentContext();
  // The index in the limits, or -1.
  int GpuOf(cuda::Device device);

  // Reserves what an allocation of `bytes` may take. False: it would exceed the limit, which is
  // reported.
  bool Reserve(int gpu, uint64_t bytes);
  // Notes and reports that the program is told to be out of memory.
  void Refuse(int gpu, uint64_t bytes);
  // The driver has allocated `bytes` at `pointer`, for which `reserved` were reserved. False: there
  // is no memory to remember it; nothing is charged then, and the caller frees it again.
  bool Charge(const Contexts::Known& context, cuda::DevicePtr pointer, uint64_t bytes,
              uint64_t reserved);
  // The same for memory of a pool, which is charged with the pool.
  bool ChargePool(int gpu, cuda::DevicePtr pointer, int pool, uint64_t reserved);

  // Calls `free` of the driver for an allocation, and ends its charge where that succeeds.
  template <typename Free>
  cuda::Result Release(cuda::DevicePtr pointer, Free free);
  // Calls `destroy` of the driver for a context, and ends all of its charges where that succeeds.
  template <typename Destroy>
  cuda::Result DestroyContext(cuda::Context context, Destroy destroy);
  // The same for a call that destroys the primary context of a device, or only one reference to it.
  template <typename Destroy>
  cuda::Result ReleasePrimary(cuda::Device device, Destroy destroy);
  void SetPrimary(cuda::Device device, cuda::Context context);

  // The limit of device memory in bytes of a GPU in the limits; 0 where it has none, and for -1.
  uint64_t LimitOf(int gpu) const { return gpu < 0 ? 0 : accounts_.Limit(gpu); }
  // The index in pools(), or -1: its memory is not charged.
  int FindPool(cuda::MemPool pool) const { return limiting() ? pools_.Find(pool) : -1; }

  Accounts& accounts() { return accounts_; }
  Charges& charges() { return charges_; }
  Pools& pools() { return pools_; }
  GraphNeeds& graph_needs() { return graph_needs_; }
  PhysicalPieces& physical() { return physical_; }

 private:
  static constexpr int kMaxDevices = 64;

  enum State : int;
  State Open();
  void Reset();
  void EndCharge(const Allocation& allocation, uint64_t pointer);
  void EndContext(uint64_t id);
  void EndPrimary(cuda::Device device);

  Accounts accounts_;
  Allocations allocations_;
  Allocations blocks_;  // that small allocations share, by their address
  Charges charges_;
  Contexts contexts_;
  Pools pools_;
  GraphNeeds graph_needs_;
  PhysicalPieces physical_;
  // By device ordinal.
  std::atomic<int> gpus_[kMaxDevices] = {};  // index in the limits + 2, 0: not asked yet
  std::atomic<cuda::Context> primaries_[kMaxDevices] = {};
};

// The entry is removed before the driver is asked: as soon as it has freed the pointer, another
// thread may get it.
template <typename Free>
cuda::Result Process::Release(cuda::DevicePtr pointer, Free free) {
  Allocation allocation;
  if (!limiting() || !allocations_.Remove(pointer, &allocation)) return free();
  const cuda::Result result = free();
  if (result == cuda::Result::kSuccess) {
    EndCharge(allocation, pointer);
  } else {
    allocations_.Insert(pointer, allocation);
  }
  return result;
}

template <typename Destroy>
cuda::Result Process::DestroyContext(cuda::Context context, Destroy destroy) {
  if (!limiting()) return destroy();
  Throttle::Get().DropMarks();
  Contexts::Known known;
  const bool is_known = contexts_.Remove(context, &known);
  const cuda::Result result = destroy();
  if (result == cuda::Result::kSuccess) {
    EndContext(known.id);
  } else if (is_known) {
    contexts_.Restore(context, known);
  }
  return result;
}

// Whether the context is gone shows only afterwards. What another thread allocates in a primary
// context that it retains again in between is not charged.
template <typename Destroy>
cuda::Result Process::ReleasePrimary(cuda::Device device, Destroy destroy) {
  if (limiting()) Throttle::Get().DropMarks();
  const cuda::Result result = destroy();
  if (limiting() && result == cuda::Result::kSuccess) EndPrimary(device);
  return result;
}

}  // namespace tessera::limiter
