// SPDX-License-Identifier: Apache-2.0
// What the simulated CUDA driver keeps in a process: the GPUs it sees, contexts and what lives in
// them. The API functions (device.cc, context.cc, memory.cc, module.cc, launch.cc, stream.cc) are thin
// over this.
//
// Time is simulated by bookkeeping: the effect of an operation (a copy, a kernel) happens when the
// program asks for it, and the stream remembers when the GPU would be done with it. Who synchronises
// sleeps until then. Call order is an order that a real GPU could have chosen, too, as events are
// recorded before they are waited for.
//
// Threads: any. One mutex guards everything; it is never held while a thread sleeps or runs code of the
// program. The tables live as long as the process: a thread may still be inside when main returns.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "api/cuda_abi.h"
#include "src/sim/cuda/image.h"
#include "src/sim/state.h"

#define CUDA_EXPORT extern "C" __attribute__((visibility("default")))
// The same function under another name. Per-thread default streams (_ptsz, _ptds) are the legacy one
// here, which orders more than it must.
#define CUDA_ALIAS(other, name) \
  extern "C" decltype(name) other __attribute__((visibility("default"), alias(#name)));

namespace tessera::cuda {

inline constexpr uint64_t kBlockBytes = 2 << 20;  // what memory is charged in
inline constexpr uint64_t kSmallBytes = 1 << 20;  // up to here allocations share a block

enum class MemoryKind { kDevice, kManaged, kHost, kRegistered };

// A piece of memory that the program knows.
struct Allocation {
  DevicePtr base = 0;
  uint64_t size = 0;     // asked for
  uint64_t charged = 0;  // to the GPU; 0 for a part of a block
  MemoryKind kind = MemoryKind::kDevice;
  ContextTag* context = nullptr;
  MemPoolTag* pool = nullptr;
  DevicePtr block = 0;  // of its context or pool that it is a part of, or 0
  unsigned flags = 0;
};

// Device memory that small allocations share.
struct Block {
  uint64_t bytes = kBlockBytes;
  std::map<DevicePtr, uint64_t> free;  // ranges
};

}  // namespace tessera::cuda

// Handles of the ABI point at these.
struct tessera::cuda::StreamTag {
  ContextTag* context = nullptr;
  unsigned flags = 0;  // 1: does not wait for the legacy stream
  int priority = 0;
  uint64_t id = 0;
  uint64_t ready_ns = 0;  // when the GPU is done with all that was launched
};

struct tessera::cuda::EventTag {
  ContextTag* context = nullptr;
  unsigned flags = 0;  // 2: no timing
  bool recorded = false;
  uint64_t at_ns = 0;
};

struct tessera::cuda::FunctionTag {
  ModuleTag* module = nullptr;
  Entry entry;
  int max_dynamic_shared = 0;
};

struct tessera::cuda::ModuleTag {
  ContextTag* context = nullptr;
  LibraryTag* library = nullptr;  // that it is a part of
  Image image;
  std::map<std::string, std::unique_ptr<FunctionTag>> functions;
};

struct tessera::cuda::KernelTag {
  LibraryTag* library = nullptr;
  std::string name;
};

struct tessera::cuda::LibraryTag {
  Image image;
  std::map<std::string, std::unique_ptr<KernelTag>> kernels;
  std::map<ContextTag*, ModuleTag*> modules;
};

// `reserved` is what the pool takes of the GPU: blocks that small allocations share, large
// allocations, and what is kept of freed ones. It keeps them while it reserves no more than its
// release threshold.
struct tessera::cuda::MemPoolTag {
  int device = 0;
  bool built_in = false;
  uint64_t used = 0, used_high = 0;
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t max_size = 0;
  uint64_t release_threshold = 0;
  std::map<DevicePtr, Block> blocks;
  std::multimap<uint64_t, DevicePtr> kept;  // by size
};

struct tessera::cuda::ContextTag {
  int device = 0;  // ordinal
  unsigned flags = 0;
  uint64_t id = 0;
  unsigned api_version = 0;
  uint32_t epoch = 0;                 // GpuLive::poison_epoch when it was made
  Result error = Result::kSuccess;    // once dead, always dead
  StreamTag legacy;
  std::set<StreamTag*> streams;
  std::map<DevicePtr, Block> blocks;
  std::set<ContextTag*> peers;
  std::map<int, size_t> limits;
};

namespace tessera::cuda {

struct Primary {
  ContextTag* context = nullptr;
  unsigned retained = 0;
  unsigned flags = 0;
};

class Driver {
 public:
  // The one of this process; made at the first call, never destroyed.
  static Driver& Get();

  Result Init(unsigned flags);
  bool initialised() const { return initialised_; }
  // True in a child of a process that had initialised: CUDA does not survive fork.
  bool forked() const;

  // The CUDA version of the driver, such as 12040; read once. Answers before cuInit, too. kNoNode:
  // there is no simulated node, and every version of CUDA is below this one.
  static constexpr unsigned kNoNode = UINT_MAX;
  unsigned CudaVersion();

  sim::State& state() { return state_; }
  sim::ProcessSlot& slot() { return slot_; }
  int device_count() const { return int(gpus_.size()); }
  bool IsDevice(Device device) const { return device >= 0 && device < device_count(); }
  uint32_t GpuOf(Device device) const { return gpus_[size_t(device)]; }
  const sim::GpuFacts& FactsOf(Device device) { return state_.facts(GpuOf(device)); }

  std::mutex& mutex() { return mutex_; }

  // All below: REQUIRES mutex().
  Result CreateContext(Device device, unsigned flags, unsigned api_version, ContextTag** context);
  void DestroyContext(ContextTag* context);
  bool IsContext(ContextTag* context) const { return contexts_.contains(context); }
  // The error that ended the context, if any: a lost GPU, uncorrectable memory.
  Result HealthOf(ContextTag* context);
  Primary& PrimaryOf(Device device) { return primaries_[size_t(device)]; }

  Result Allocate(ContextTag* context, uint64_t bytes, MemoryKind kind, MemPoolTag* pool,
                  DevicePtr* pointer);
  Result Free(DevicePtr pointer);
  // The allocation that holds [pointer, pointer + bytes); null if there is none.
  Allocation* FindAllocation(DevicePtr pointer, uint64_t bytes = 1);
  void AddHostMemory(ContextTag* context, void* pointer, uint64_t bytes, bool registered,
                     unsigned flags);
  bool RemoveHostMemory(void* pointer, bool registered);
  MemPoolTag* PoolOf(Device device) { return pools_[size_t(device)]; }
  void SetPool(Device device, MemPoolTag* pool) { pools_[size_t(device)] = pool; }
  MemPoolTag* DefaultPoolOf(Device device) { return &default_pools_[size_t(device)]; }
  // Gives back to the GPU what the pool keeps, until it reserves at most `keep`.
  void Trim(MemPoolTag* pool, uint64_t keep);

  StreamTag* CreateStream(ContextTag* context, unsigned flags, int priority);
  void DestroyStream(StreamTag* stream);
  // Null for a handle that is none. `stream` 0, 1 and 2 are the legacy stream of `context`.
  StreamTag* FindStream(ContextTag* context, Stream stream);
  // Puts `duration_ns` of work at the end of the stream; gives when it starts and ends.
  struct Span {
    uint64_t start_ns, end_ns;
  };
  Span Enqueue(StreamTag* stream, uint64_t duration_ns, bool busy = true);
  uint64_t ReadyAt(StreamTag* stream);
  uint64_t ReadyAt(ContextTag* context);

  std::set<EventTag*>& events() { return events_; }
  std::map<ModuleTag*, std::unique_ptr<ModuleTag>>& modules() { return modules_; }
  std::map<LibraryTag*, std::unique_ptr<LibraryTag>>& libraries() { return libraries_; }
  std::set<MemPoolTag*>& made_pools() { return made_pools_; }
  FunctionTag* FindFunction(Function handle, ContextTag* context);
  // The library as a module of the context; lives as long as both do.
  ModuleTag* ModuleOf(LibraryTag* library, ContextTag* context);
  uint64_t NextId() { return ++last_id_; }

 private:
  Driver() = default;
  Result FindGpus();
  Result Map(uint64_t bytes, uint32_t gpu, DevicePtr* pointer);
  void Unmap(DevicePtr base, uint64_t bytes, uint32_t gpu);
  // Takes whole blocks of the GPU, for a pool or, where it is null, for a context; and gives them
  // back.
  Result TakeBlocks(MemPoolTag* pool, uint64_t bytes, uint32_t gpu, uint64_t* taken,
                    DevicePtr* base);
  void GiveBlocks(MemPoolTag* pool, DevicePtr base, uint64_t bytes, uint32_t gpu);
  uint32_t GpuOf(const Allocation& allocation) const;
  std::map<DevicePtr, Block>& BlocksOf(const Allocation& allocation);
  Result AllocatePart(uint64_t bytes, uint32_t gpu, Allocation* allocation);
  void FreePart(const Allocation& allocation);

  std::atomic<bool> initialised_ = false;
  std::atomic<unsigned> cuda_version_ = kNoNode;
  int pid_ = 0;
  std::mutex init_mutex_;
  std::mutex mutex_;
  sim::State state_;
  sim::ProcessSlot slot_;
  std::vector<uint32_t> gpus_;
  std::vector<Primary> primaries_;
  std::vector<MemPoolTag> default_pools_;
  std::vector<MemPoolTag*> pools_;
  std::set<ContextTag*> contexts_;
  std::map<DevicePtr, Allocation> allocations_;
  std::set<EventTag*> events_;
  std::map<ModuleTag*, std::unique_ptr<ModuleTag>> modules_;
  std::map<LibraryTag*, std::unique_ptr<LibraryTag>> libraries_;
  std::set<MemPoolTag*> made_pools_;
  uint64_t last_id_ = 0;
};

// The contexts that this thread has pushed; the last is current.
std::vector<ContextTag*>& ContextStack();

// An entered call: initialised, not forked, and the driver's mutex held while it lives.
class Call {
 public:
  Call();
  Result result() const { return result_; }
  Driver* operator->() { return &driver_; }
  Driver& driver() { return driver_; }
  // Sleeps until `when_ns` without the mutex, or until the GPU dies; gives the context's health.
  Result Wait(ContextTag* context, uint64_t when_ns);
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  Driver& driver_;
  std::unique_lock<std::mutex> lock_;
  Result result_;
};

// The same with a context that is current and well.
class ContextCall : public Call {
 public:
  ContextCall();
  Result result() const { return result_; }
  ContextTag* context() { return context_; }

 private:
  ContextTag* context_ = nullptr;
  Result result_;
};

// A pointer that the program wants filled, or does not.
template <typename T, typename V>
Result Put(T* out, V value) {
  if (out == nullptr) return Result::kInvalidValue;
  *out = static_cast<T>(value);
  return Result::kSuccess;
}
template <typename T, typename V>
void PutIf(T* out, V value) {
  if (out != nullptr) *out = static_cast<T>(value);
}

}  // namespace tessera::cuda

#define CUDA_ENTER(Kind, call) \
  Kind call;                   \
  if (call.result() != Result::kSuccess) return call.result()
