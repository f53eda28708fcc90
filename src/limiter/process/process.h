// SPDX-License-Identifier: Apache-2.0
// The limiter in one process: it maps the region, and charges the device memory that the process
// holds.
//
// Start. Loading the library finds the driver's functions, maps one page, and records which file
// standard error is. cuInit maps the region and claims a slot; no other function of CUDA works
// before cuInit.
//
// Fork. CUDA does not work in a child of a process that has initialized it. The kernel wipes the
// page with the state in every child, whichever system call created the child. fork waits until a
// cuInit of another thread has returned, for at most about 0.2 s.
//
// Failure. If the region cannot be used, or kMaxSlots processes of the container already use it,
// one line on standard error gives the reason, and cuInit returns CUDA_ERROR_NOT_PERMITTED (800).
// With the flag kFailOpen, the process runs without a limit instead. After a temporary error, such
// as a lack of file descriptors, the next cuInit retries. The limiter never ends the process and
// installs no signal handler.
//
// Exec. The kernel releases the lock of the slot and closes the driver's files. The next process
// that needs memory clears the slot, as after the end of a process.
//
// Threads: any.
#pragma once

#include "api/cuda_abi.h"
#include "src/limiter/compute/throttle.h"
#include "src/limiter/loader/driver.h"
#include "src/limiter/memory/graph_memory.h"
#include "src/limiter/region/memory_budget.h"
#include "src/limiter/region/shared_pieces.h"
#include "src/limiter/tables/allocations.h"
#include "src/limiter/tables/charges.h"
#include "src/limiter/tables/context_memory.h"
#include "src/limiter/tables/contexts.h"
#include "src/limiter/tables/libraries.h"
#include "src/limiter/tables/moment.h"
#include "src/limiter/tables/physical_memory.h"
#include "src/limiter/tables/pools.h"

namespace tessera::limiter {

class Process {
 public:
  static Process& Get();

  // Maps the region and claims a slot, unless an earlier call did. kNotPermitted: see Failure.
  cuda::Result Init();
  // False: the process has no limits, or cuInit has not been called.
  bool IsLimiting() const;

  // The current context of this thread. Its `gpu` is an index in the limits; -1: there is no
  // context, or its GPU is not limited.
  Contexts::Info CurrentContext();
  // The GPU's index in the limits; -1: the GPU is not limited.
  int GpuOf(cuda::Device device);

  // Reserves `bytes` for `what`. False: they would exceed the limit; the refusal is reported.
  bool Reserve(int gpu, uint64_t bytes, const char* what = "an allocation");
  // Like Reserve, but counts the bytes as held; for allocations whose size is known before the
  // driver call. Charge must follow, or MemoryBudget::Release if the driver has refused.
  bool Hold(int gpu, uint64_t bytes);
  // False: held and unaccounted memory of the container together reach its limit; the refusal of
  // `what` is reported. Called before the driver loads a module or creates a context, whose memory
  // is unaccounted.
  bool HasRoom(int gpu, const char* what);
  // Records a refusal for the agent, and reports it on standard error. `bytes` is 0 if the size is
  // unknown.
  void Refuse(int gpu, uint64_t bytes, const char* what = "an allocation");
  // Charges `bytes` that the driver has allocated at `pointer`, instead of the `held` bytes of
  // Hold. False: out of host memory; nothing is charged, and the caller frees `pointer`.
  bool Charge(const Contexts::Info& context, cuda::DevicePtr pointer, uint64_t bytes,
              uint64_t held);
  // Like Charge, for an allocation from the pool with the index `pool`. Charges the growth of the
  // pool, and ends the reservation of `reserved` bytes.
  bool ChargePool(int gpu, cuda::DevicePtr pointer, int pool, uint64_t reserved);

  // Calls the driver's `free` for an allocation, and ends its charge on success.
  template <typename Free>
  cuda::Result Release(cuda::DevicePtr pointer, Free free);
  // Calls the driver's `create`, which makes a new context of the device current and writes
  // `*context`. Charges the context (context_memory.h), or refuses it if the limit has no room.
  template <typename Create>
  cuda::Result CreateContext(cuda::Context* context, cuda::Device device, Create create);
  // CreateContext for a call that retains the primary context of a device.
  template <typename Retain>
  cuda::Result RetainPrimary(cuda::Context* context, cuda::Device device, Retain retain);
  // Calls the driver's `destroy` for a context, and ends all of its charges on success.
  template <typename Destroy>
  cuda::Result DestroyContext(cuda::Context context, Destroy destroy);
  // Calls the driver's `destroy` for an array or a module, and ends its charge on success.
  template <typename Destroy>
  cuda::Result DestroyCharged(const void* handle, Destroy destroy);
  // DestroyCharged for a library, which has a charge in each context.
  template <typename UnloadCall>
  cuda::Result UnloadLibrary(cuda::Library library, UnloadCall unload);
  // Charges the variables of a library in each context of the process. False: they would exceed a
  // limit; the refusal is reported, and nothing is charged.
  bool ChargeInContexts(const Libraries::LoadedLibrary& library);
  // Ends the charges of ChargeInContexts.
  void EndChargeInContexts(const Libraries::LoadedLibrary& library);
  // DestroyContext for a call that releases or destroys the primary context of a device.
  template <typename Destroy>
  cuda::Result ReleasePrimary(cuda::Device device, Destroy destroy);

  // The memory limit of a GPU in bytes; 0: no limit, or `gpu` is -1.
  uint64_t LimitOf(int gpu) const { return gpu < 0 ? 0 : memory_budget_.Limit(gpu); }
  // Adds a pool, and returns its index in pools(). -1: the table has no room; the failure is
  // reported.
  int AddPool(cuda::MemPool pool, int gpu);
  // The index in pools(); -1: the table does not have the pool.
  int FindPool(cuda::MemPool pool) const { return IsLimiting() ? pools_.Find(pool) : -1; }

  MemoryBudget& memory_budget() { return memory_budget_; }
  Charges& charges() { return charges_; }
  Pools& pools() { return pools_; }
  GraphNeeds& graph_needs() { return graph_needs_; }
  Libraries& libraries() { return libraries_; }
  PhysicalPieces& physical_pieces() { return physical_pieces_; }
  SharedPieces& shared_pieces() { return shared_pieces_; }

 private:
  static constexpr int kMaxDevices = 64;

  enum State : int;
  State Open();
  void Reset();
  // Ends charges of closed exports, and returns unused memory of pools to the driver.
  void Reclaim(int gpu);
  void EndCharge(const Allocation& allocation, uint64_t pointer);
  // False: out of host memory.
  bool InsertAllocation(cuda::DevicePtr pointer, const Allocation& allocation);
  void EndContext(const Contexts::Info& info);
  // Reserves the memory of a context before the driver creates the context. False: the limit has no
  // room.
  bool ReserveContext(int gpu, uint64_t* reserved);
  // Charges a context that the driver has created. False: the limit has no room; the caller
  // destroys the context.
  bool ChargeContext(int gpu, cuda::Context context, uint64_t last_id, uint64_t reserved);
  // Free bytes of the device, if it is the device of the current context; else 0.
  static uint64_t FreeBytesOf(cuda::Device device);
  bool ChargeLibrary(const Libraries::LoadedLibrary& library, const Contexts::Info& context);
  // ChargeLibrary for all libraries in a new context.
  bool ChargeLibraries(const Contexts::Info& context);
  void SetPrimary(cuda::Device device, cuda::Context context);
  void EndPrimary(cuda::Device device, uint64_t last_id);

  MemoryBudget memory_budget_;
  Allocations allocations_;
  SharedBlocks shared_blocks_;
  Charges charges_;
  Contexts contexts_;
  ContextMemory context_memory_;
  Pools pools_;
  GraphNeeds graph_needs_;
  Libraries libraries_;
  SharedPieces shared_pieces_;
  PhysicalPieces physical_pieces_;
  // By device ordinal.
  std::atomic<int> gpus_[kMaxDevices] = {};  // index in the limits + 2; 0: unknown
  std::atomic<cuda::Context> primary_contexts_[kMaxDevices] = {};
};

template <typename Free>
cuda::Result Process::Release(cuda::DevicePtr pointer, Free free) {
  if (!IsLimiting()) return free();
  Allocation allocation;
  const bool is_known = allocations_.Remove(pointer, &allocation);
  const cuda::Result result = free();
  const bool is_freed = result == cuda::Result::kSuccess;
  const bool ends_charge =
      is_known ? is_freed || !allocations_.Restore(pointer, allocation)
               : is_freed && pointer != 0 && allocations_.RemoveRestored(pointer, &allocation);
  if (ends_charge) EndCharge(allocation, pointer);
  return result;
}

// The size of a context is the difference of free memory before and after its creation. Free memory
// can be read only while a context of the same device is current. If no such context is current
// before the call, this function creates a second context, measures it, and destroys it.
template <typename Create>
cuda::Result Process::CreateContext(cuda::Context* context, cuda::Device device, Create create) {
  const int gpu = GpuOf(device);
  if (gpu < 0 || context == nullptr) return create();
  uint64_t reserved = 0;
  if (!ReserveContext(gpu, &reserved)) return cuda::Result::kOutOfMemory;
  const uint64_t last_id = contexts_.last_id();
  const bool measures = context_memory_.NeedsMeasurement(gpu);
  uint64_t before = measures ? FreeBytesOf(device) : 0;
  cuda::Result result = create();
  if (measures && result == cuda::Result::kSuccess) {
    const cuda::Context created = *context;
    const bool creates_twice = before == 0;
    if (creates_twice) before = FreeBytesOf(device);
    const bool is_complete = !creates_twice || create() == cuda::Result::kSuccess;
    const uint64_t after = is_complete ? FreeBytesOf(device) : before;
    if (creates_twice && is_complete) (void)driver.cuCtxDestroy_v2(*context);
    *context = created;
    context_memory_.RecordSize(gpu, after < before ? before - after : 0);
  }
  if (result == cuda::Result::kSuccess && !ChargeContext(gpu, *context, last_id, reserved)) {
    (void)DestroyContext(*context, [&] { return driver.cuCtxDestroy_v2(*context); });
    result = cuda::Result::kOutOfMemory;
  }
  memory_budget_.Cancel(gpu, reserved);
  return result;
}

// A primary context that exists already takes no further memory.
template <typename Retain>
cuda::Result Process::RetainPrimary(cuda::Context* context, cuda::Device device, Retain retain) {
  const int gpu = GpuOf(device);
  int active = 1;
  const uint64_t last_id = gpu < 0 ? 0 : contexts_.last_id();
  const bool creates =
      gpu >= 0 && context != nullptr &&
      driver.cuDevicePrimaryCtxGetState(device, nullptr, &active) == cuda::Result::kSuccess &&
      active == 0;
  uint64_t reserved = 0;
  if (creates && !ReserveContext(gpu, &reserved)) return cuda::Result::kOutOfMemory;
  const uint64_t before =
      creates && context_memory_.NeedsMeasurement(gpu) ? FreeBytesOf(device) : 0;
  cuda::Result result = retain();
  if (result == cuda::Result::kSuccess && context != nullptr) SetPrimary(device, *context);
  if (!creates) return result;
  if (result == cuda::Result::kSuccess) {
    const uint64_t after = before == 0 ? 0 : FreeBytesOf(device);
    context_memory_.RecordSize(gpu, after < before ? before - after : 0);
    if (!ChargeContext(gpu, *context, last_id, reserved)) {
      (void)ReleasePrimary(device, [&] { return driver.cuDevicePrimaryCtxRelease(device); });
      result = cuda::Result::kOutOfMemory;
    }
  }
  memory_budget_.Cancel(gpu, reserved);
  return result;
}

template <typename Destroy>
cuda::Result Process::DestroyContext(cuda::Context context, Destroy destroy) {
  if (!IsLimiting()) return destroy();
  Throttle::Get().DropMarks();
  const uint64_t last_id = contexts_.last_id();
  const cuda::Result result = destroy();
  if (result != cuda::Result::kSuccess) return result;
  Contexts::Info info;
  (void)contexts_.Remove(context, last_id, &info);
  EndContext(info);
  return result;
}

template <typename Destroy>
cuda::Result Process::DestroyCharged(const void* handle, Destroy destroy) {
  if (!IsLimiting()) return destroy();
  const uint64_t call_moment = NextMoment();
  const cuda::Result result = destroy();
  if (result == cuda::Result::kSuccess) charges_.End(handle, call_moment, &memory_budget_);
  return result;
}

template <typename UnloadCall>
cuda::Result Process::UnloadLibrary(cuda::Library library, UnloadCall unload) {
  if (!IsLimiting()) return unload();
  const uint64_t call_moment = NextMoment();
  const cuda::Result result = unload();
  Libraries::LoadedLibrary info;
  const bool ends_charge =
      result == cuda::Result::kSuccess && libraries_.Remove(library, call_moment, &info);
  if (ends_charge) EndChargeInContexts(info);
  return result;
}

// Only after the call is it known whether the release has destroyed the context. If another thread
// retains the primary context again during the call, the allocations of that thread until the end
// of the call are not charged.
template <typename Destroy>
cuda::Result Process::ReleasePrimary(cuda::Device device, Destroy destroy) {
  if (!IsLimiting()) return destroy();
  Throttle::Get().DropMarks();
  const uint64_t last_id = contexts_.last_id();
  const cuda::Result result = destroy();
  if (result == cuda::Result::kSuccess) EndPrimary(device, last_id);
  return result;
}

}  // namespace tessera::limiter
