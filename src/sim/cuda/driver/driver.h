// SPDX-License-Identifier: Apache-2.0
// The state of the simulated CUDA driver in a process: visible GPUs, contexts, and the objects in
// them. The API functions of the other folders are a thin layer above it. The engine (engine.h)
// computes when the GPUs execute commands.
//
// Threads: any. One mutex guards everything; no thread holds it while it sleeps or runs code of the
// program. The tables are never destroyed: a thread may still use them when main returns.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "api/cuda_abi.h"
#include "src/sim/cuda/array/array.h"
#include "src/sim/cuda/array/texture.h"
#include "src/sim/cuda/driver/objects.h"
#include "src/sim/cuda/graph/graph.h"
#include "src/sim/cuda/stream/engine.h"
#include "src/sim/cuda/stream/per_thread.h"
#include "src/sim/state.h"

#define CUDA_EXPORT extern "C" __attribute__((visibility("default")))
// Exports a function under a second name.
#define CUDA_ALIAS(other, name) \
  extern "C" decltype(name) other __attribute__((visibility("default"), alias(#name)));

namespace tessera::cuda {

struct PrimaryContext {
  ContextTag* context = nullptr;
  unsigned retain_count = 0;
  unsigned flags = 0;
};

class Driver {
 public:
  // The driver of this process, created at the first call and never destroyed.
  static Driver& Get();

  Result Init(unsigned flags);
  bool initialized() const { return initialized_; }
  // True in a child of an initialized process: CUDA does not work after fork.
  bool forked() const;

  // The CUDA version of the driver, such as 12040, also before cuInit. kNoNode, which is above
  // every version, if the simulated node is missing.
  static constexpr unsigned kNoNode = UINT_MAX;
  unsigned CudaVersion();

  sim::State& state() { return state_; }
  sim::ProcessSlot& slot() { return slot_; }
  int device_count() const { return int(gpus_.size()); }
  bool IsDevice(Device device) const { return device >= 0 && device < device_count(); }
  uint32_t GpuOf(Device device) const { return gpus_[size_t(device)]; }
  // The facts of the GPU, or with MIG of the part of the GPU that the process uses.
  const sim::GpuFacts& FactsOf(Device device) {
    return mig_facts_ != nullptr ? *mig_facts_ : state_.facts(GpuOf(device));
  }
  // Used memory of the GPU, or of the process's GPU instance.
  uint64_t UsedBytes(uint32_t gpu);

  std::mutex& mutex() { return mutex_; }

  // All functions below: REQUIRES mutex().
  Result CreateContext(Device device, unsigned flags, unsigned api_version, ContextTag** context);
  // REQUIRES: `lock` holds mutex(). It is released while effects of the context's commands end.
  void DestroyContext(ContextTag* context, std::unique_lock<std::mutex>* lock);
  const std::set<ContextTag*>& contexts() const { return contexts_; }
  bool IsContext(ContextTag* context) const { return contexts_.contains(context); }
  // kSuccess, or the error that ended the context: a lost GPU, or an uncorrectable memory error.
  Result HealthOf(ContextTag* context);
  PrimaryContext& PrimaryContextOf(Device device) { return primary_contexts_[size_t(device)]; }

  Result Allocate(ContextTag* context, uint64_t bytes, MemoryKind kind, MemPoolTag* pool,
                  DevicePtr* pointer);
  Result Free(DevicePtr pointer);
  // The allocation that contains [pointer, pointer + bytes). If adjacent mappings together contain
  // the range, the first of them. Null: none.
  Allocation* FindAllocation(DevicePtr pointer, uint64_t bytes = 1);
  void AddHostMemory(ContextTag* context, void* pointer, uint64_t bytes, bool registered,
                     unsigned flags);
  bool RemoveHostMemory(void* pointer, bool registered);
  MemPoolTag* PoolOf(Device device) { return pools_[size_t(device)]; }
  void SetPool(Device device, MemPoolTag* pool) { pools_[size_t(device)] = pool; }
  MemPoolTag* DefaultPoolOf(Device device) { return &default_pools_[size_t(device)]; }
  // Frees unused memory of the pool until the pool reserves at most `keep` bytes.
  void Trim(MemPoolTag* pool, uint64_t keep);

  // Unmaps memory after all queued commands that may touch it.
  void UnmapLater(DevicePtr base, uint64_t bytes);
  void UnmapPending();

  Engine& engine() { return engine_; }
  Graphs& graphs() { return graphs_; }
  UserObjects& user_objects() { return user_objects_; }
  Arrays& arrays() { return arrays_; }
  Textures& textures() { return textures_; }
  GraphPools& graph_pools() { return graph_pools_; }
  StreamTag* CreateStream(ContextTag* context, unsigned flags, int priority);
  void DestroyStream(StreamTag* stream);
  bool IsStream(StreamTag* stream) const { return streams_.contains(stream); }
  // Null: invalid handle. Handle 1 is the legacy stream of `context`, 2 the thread's own stream,
  // and 0 one of these (per_thread.h).
  StreamTag* FindStream(ContextTag* context, Stream stream);

  std::unordered_set<EventTag*>& events() { return events_; }
  std::map<PhysicalMemory, PhysicalAllocation>& physical() { return physical_; }
  // REQUIRES: the shared memory has no handle and no mapping in this process. Ends its charge as
  // soon as all exported descriptors are closed.
  void EndSharedCharge(const PhysicalAllocation& physical);
  // Ends the charges of shared memory whose exported descriptors are closed. Functions that
  // allocate or report memory call it first.
  void EndClosedCharges();
  std::map<DevicePtr, uint64_t>& reservations() { return reservations_; }
  // Makes the block of the allocation shared, so that other processes can map it.
  Result Export(const Allocation& allocation, ExportedMemory* exported);
  // Keys are addresses of the allocations.
  std::map<DevicePtr, ImportedMemory>& imports() { return imports_; }
  void Unimport(DevicePtr pointer);
  // Maps untouched memory at unused addresses, aligned to a block; 0: the system refuses.
  static DevicePtr MapAddresses(uint64_t bytes);
  std::map<DevicePtr, Allocation>& allocations() { return allocations_; }
  // Allocates and initializes the variables of the module.
  Result AllocateGlobals(ModuleTag* module);
  // The address of a variable; 0: the module has no variable of that name.
  static DevicePtr FindGlobal(const ModuleTag& module, std::string_view name, uint64_t* bytes);
  std::map<ModuleTag*, std::unique_ptr<ModuleTag>>& modules() { return modules_; }
  std::map<LibraryTag*, std::unique_ptr<LibraryTag>>& libraries() { return libraries_; }
  std::map<LinkState, std::unique_ptr<LinkStateTag>>& links() { return links_; }
  std::set<MemPoolTag*>& created_pools() { return created_pools_; }
  // The function of that name in the module. `entry` is null if the image accepts any name.
  FunctionTag* FunctionOf(ModuleTag* module, const std::string& name, const Entry* entry);
  KernelTag* KernelOf(LibraryTag* library, const std::string& name);
  // Null: invalid handle, or out of memory for a library's module in the context.
  FunctionTag* FindFunction(Function handle, ContextTag* context);
  KernelTag* FindKernel(Kernel handle);
  void Unload(ModuleTag* module);
  void Unload(LibraryTag* library);
  // The module of the library in the context, which lives as long as both. kOutOfMemory: no room
  // for its variables.
  Result ModuleOf(LibraryTag* library, ContextTag* context, ModuleTag** module);
  uint64_t NextId() { return ++last_id_; }

  // While an object of this class exists in a thread, memory that the thread allocates has
  // addresses of 32 bits.
  class NarrowAddresses {
   public:
    NarrowAddresses() { narrow_addresses = true; }
    ~NarrowAddresses() { narrow_addresses = false; }
    NarrowAddresses(const NarrowAddresses&) = delete;
    NarrowAddresses& operator=(const NarrowAddresses&) = delete;
  };

 private:
  static inline thread_local bool narrow_addresses = false;
  Driver() = default;
  Result FindGpus();
  void UseInstance();
  Result Map(uint64_t bytes, uint32_t gpu, DevicePtr* pointer);
  void Unmap(DevicePtr base, uint64_t bytes, uint32_t gpu);
  // Allocate and free whole blocks of the GPU for a pool, or for a context if `pool` is null.
  Result AllocateBlocks(MemPoolTag* pool, uint64_t bytes, uint32_t gpu, uint64_t* taken,
                        DevicePtr* base);
  void FreeBlocks(MemPoolTag* pool, DevicePtr base, uint64_t bytes, uint32_t gpu);
  uint32_t GpuOf(const Allocation& allocation) const;
  std::map<DevicePtr, MemoryBlock>& BlocksOf(const Allocation& allocation);
  Result AllocateInBlock(uint64_t bytes, uint32_t gpu, Allocation* allocation);
  void FreeInBlock(const Allocation& allocation);
  void Release(std::map<DevicePtr, Allocation>::iterator found);

  std::atomic<bool> initialized_ = false;
  std::atomic<unsigned> cuda_version_ = kNoNode;
  int pid_ = 0;
  std::mutex init_mutex_;
  std::mutex mutex_;
  sim::State state_;
  sim::ProcessSlot slot_;
  std::vector<uint32_t> gpus_;
  // With MIG the process has one device: a compute instance.
  uint32_t instance_ = sim::kMaxInstances;
  std::unique_ptr<sim::GpuFacts> mig_facts_;
  std::vector<PrimaryContext> primary_contexts_;
  std::vector<MemPoolTag> default_pools_;
  std::vector<MemPoolTag*> pools_;
  std::set<ContextTag*> contexts_;
  std::map<DevicePtr, Allocation> allocations_;
  std::map<PhysicalMemory, PhysicalAllocation> physical_;
  // Memory that only exported descriptors keep alive.
  std::vector<PhysicalAllocation> exported_only_;
  std::map<DevicePtr, uint64_t> reservations_;   // bytes by start address
  std::map<DevicePtr, ExportedMemory> exports_;  // by start of the block
  std::map<DevicePtr, ImportedMemory> imports_;
  struct PendingUnmap {
    DevicePtr base;
    uint64_t bytes;
    uint64_t order;  // order of the last command that may touch the memory
  };
  std::vector<PendingUnmap> pending_unmaps_;
  Engine engine_{this};
  Graphs graphs_;
  UserObjects user_objects_;
  Arrays arrays_;
  Textures textures_;
  GraphPools graph_pools_{this};
  std::unordered_set<StreamTag*> streams_;
  std::unordered_set<FunctionTag*> functions_;
  std::unordered_set<KernelTag*> kernels_;
  std::unordered_set<EventTag*> events_;
  std::map<ModuleTag*, std::unique_ptr<ModuleTag>> modules_;
  std::map<LibraryTag*, std::unique_ptr<LibraryTag>> libraries_;
  std::map<LinkState, std::unique_ptr<LinkStateTag>> links_;
  std::set<MemPoolTag*> created_pools_;
  uint64_t last_id_ = 0;
};

// The contexts that this thread has pushed; the last context is current.
std::vector<ContextTag*>& ContextStack();

// A call of an initialized, not forked process. It holds the driver's mutex.
class Call {
 public:
  Call();
  Result result() const { return result_; }
  Driver* operator->() { return &driver_; }
  Driver& driver() { return driver_; }
  // Sleeps without the mutex until all commands that are queued now are done, or until the context
  // dies. Returns the health of the context.
  Result Wait(StreamTag* stream);
  Result Wait(ContextTag* context);
  Result Wait(ContextTag* context, const TicketRef& ticket);
  // Waits for all contexts of the process.
  void WaitForAll();
  // Waits until the stream has room for the command, and appends it; a dead context takes no
  // commands. In a captured stream, the command becomes a node of that type.
  Result Push(StreamTag* stream, Command command, GraphNodeType type = GraphNodeType::kHost);
  std::unique_lock<std::mutex>* lock() { return &lock_; }

 private:
  Driver& driver_;
  std::unique_lock<std::mutex> lock_;

 protected:
  Result result_;
};

// A call that needs a current, healthy context.
class ContextCall : public Call {
 public:
  ContextCall();
  ContextTag* context() { return context_; }

 private:
  ContextTag* context_ = nullptr;
};

// Calls that also look up their object. An unknown object ends them with kInvalidDevice or
// kInvalidHandle.
struct DeviceCall : Call {
  explicit DeviceCall(Device device) {
    if (result_ != Result::kSuccess) return;
    if (driver().IsDevice(device)) {
      facts = &driver().FactsOf(device);
    } else {
      result_ = Result::kInvalidDevice;
    }
  }
  const sim::GpuFacts* facts = nullptr;
};

struct StreamCall : ContextCall {
  explicit StreamCall(Stream handle) {
    if (result_ != Result::kSuccess) return;
    stream = driver().FindStream(context(), handle);
    if (stream == nullptr) result_ = Result::kInvalidHandle;
  }
  StreamTag* stream = nullptr;
};

struct FunctionCall : ContextCall {
  explicit FunctionCall(Function handle) {
    if (result_ != Result::kSuccess) return;
    function = driver().FindFunction(handle, context());
    if (function == nullptr) result_ = Result::kInvalidHandle;
  }
  FunctionTag* function = nullptr;
};

// Compute capability: 80 for 8.0.
inline int CcOf(const sim::GpuFacts& gpu) { return int(gpu.cc_major * 10 + gpu.cc_minor); }

// Write an out-parameter. If it is null, Put returns kInvalidValue, and PutIf does nothing.
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

// The arguments name the object that the call looks up.
#define CUDA_ENTER(Kind, call, ...) \
  Kind call{__VA_ARGS__};           \
  if (call.result() != Result::kSuccess) return call.result()
