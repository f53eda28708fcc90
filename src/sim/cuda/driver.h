// SPDX-License-Identifier: Apache-2.0
// What the simulated CUDA driver keeps in a process: the GPUs it sees, contexts and what lives in
// them. The API functions (device.cc, context.cc, memory.cc, module.cc, launch.cc, stream.cc) are
// thin over this. What the GPUs do, and when, is in engine.h.
//
// Threads: any. One mutex guards everything; it is never held while a thread sleeps or runs code of
// the program. The tables live as long as the process: a thread may still be inside when main
// returns.
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
#include "src/sim/cuda/array.h"
#include "src/sim/cuda/engine.h"
#include "src/sim/cuda/graph.h"
#include "src/sim/cuda/objects.h"
#include "src/sim/cuda/texture.h"
#include "src/sim/state.h"

#define CUDA_EXPORT extern "C" __attribute__((visibility("default")))
// The same function under another name. Per-thread default streams (_ptsz, _ptds) are the legacy
// one here, which orders more than it must.
#define CUDA_ALIAS(other, name) \
  extern "C" decltype(name) other __attribute__((visibility("default"), alias(#name)));

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
  // REQUIRES: `lock` holds mutex(). It is released while effects of the context's commands end.
  void DestroyContext(ContextTag* context, std::unique_lock<std::mutex>* lock);
  const std::set<ContextTag*>& contexts() const { return contexts_; }
  bool IsContext(ContextTag* context) const { return contexts_.contains(context); }
  // The error that ended the context, if any: a lost GPU, uncorrectable memory.
  Result HealthOf(ContextTag* context);
  Primary& PrimaryOf(Device device) { return primaries_[size_t(device)]; }

  Result Allocate(ContextTag* context, uint64_t bytes, MemoryKind kind, MemPoolTag* pool,
                  DevicePtr* pointer);
  Result Free(DevicePtr pointer);
  // The allocation that holds [pointer, pointer + bytes), or the first of several mappings without
  // a gap; null if there is none.
  Allocation* FindAllocation(DevicePtr pointer, uint64_t bytes = 1);
  void AddHostMemory(ContextTag* context, void* pointer, uint64_t bytes, bool registered,
                     unsigned flags);
  bool RemoveHostMemory(void* pointer, bool registered);
  MemPoolTag* PoolOf(Device device) { return pools_[size_t(device)]; }
  void SetPool(Device device, MemPoolTag* pool) { pools_[size_t(device)] = pool; }
  MemPoolTag* DefaultPoolOf(Device device) { return &default_pools_[size_t(device)]; }
  // Gives back to the GPU what the pool keeps, until it reserves at most `keep`.
  void Trim(MemPoolTag* pool, uint64_t keep);

  // Unmaps memory now, or later where commands that may touch it are still to come.
  void UnmapLater(DevicePtr base, uint64_t bytes);
  void UnmapUnused();

  Engine& engine() { return engine_; }
  Graphs& graphs() { return graphs_; }
  UserObjects& user_objects() { return user_objects_; }
  Arrays& arrays() { return arrays_; }
  Textures& textures() { return textures_; }
  GraphPools& graph_pools() { return graph_pools_; }
  StreamTag* CreateStream(ContextTag* context, unsigned flags, int priority);
  void DestroyStream(StreamTag* stream);
  bool IsStream(StreamTag* stream) const { return streams_.contains(stream); }
  // Null for a handle that is none. `stream` 0, 1 and 2 are the legacy stream of `context`.
  StreamTag* FindStream(ContextTag* context, Stream stream);

  std::unordered_set<EventTag*>& events() { return events_; }
  std::map<PhysicalMemory, Physical>& physical() { return physical_; }
  std::map<DevicePtr, uint64_t>& reservations() { return reservations_; }
  // The memory at an address and all that shares a block with it, so that others can map it.
  Result Export(const Allocation& allocation, ExportedMemory* exported);
  // By the address of the allocation.
  std::map<DevicePtr, ImportedMemory>& imports() { return imports_; }
  void Unimport(DevicePtr pointer);
  // Addresses for as many bytes, from a block's border on; 0: there are none.
  static DevicePtr FindAddresses(uint64_t bytes);
  std::map<DevicePtr, Allocation>& allocations() { return allocations_; }
  // Takes memory for the variables of the module, with what they begin with.
  Result PlaceGlobals(ModuleTag* module);
  // The address of a variable; 0: the module has none of that name.
  static DevicePtr FindGlobal(const ModuleTag& module, std::string_view name, uint64_t* bytes);
  std::map<ModuleTag*, std::unique_ptr<ModuleTag>>& modules() { return modules_; }
  std::map<LibraryTag*, std::unique_ptr<LibraryTag>>& libraries() { return libraries_; }
  std::map<LinkState, std::unique_ptr<LinkStateTag>>& links() { return links_; }
  std::set<MemPoolTag*>& made_pools() { return made_pools_; }
  // The function of that name in the module, which has it (`entry`), or answers to any name (null).
  FunctionTag* FunctionOf(ModuleTag* module, const std::string& name, const Entry* entry);
  // The kernel of that name in the library.
  KernelTag* KernelOf(LibraryTag* library, const std::string& name);
  // Null for a handle that is none, or where a library's module finds no memory in the context.
  FunctionTag* FindFunction(Function handle, ContextTag* context);
  KernelTag* FindKernel(Kernel handle);
  void Unload(ModuleTag* module);
  void Unload(LibraryTag* library);
  // The library as a module of the context; lives as long as both do. kOutOfMemory: there is no
  // room for its variables.
  Result ModuleOf(LibraryTag* library, ContextTag* context, ModuleTag** module);
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
  void Release(std::map<DevicePtr, Allocation>::iterator found);

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
  std::map<PhysicalMemory, Physical> physical_;
  std::map<DevicePtr, uint64_t> reservations_;   // of addresses, by their start
  std::map<DevicePtr, ExportedMemory> exports_;  // by the start of their blocks
  std::map<DevicePtr, ImportedMemory> imports_;
  struct Unused {
    DevicePtr base;
    uint64_t bytes;
    uint64_t order;  // of the last command that may touch it
  };
  std::vector<Unused> unused_;
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
  // Sleeps without the mutex until all is done that the streams have in their queues now, or until
  // the context dies; gives the context's health.
  Result Wait(StreamTag* stream);
  Result Wait(ContextTag* context);
  Result Wait(ContextTag* context, const TicketRef& ticket);
  // The same for all contexts of the process.
  void WaitForAll();
  // Puts a command at the end of the stream when there is room; a dead context takes nothing. Where
  // the stream is captured, the command becomes a node of that type.
  Result Push(StreamTag* stream, Command command, GraphNodeType type = GraphNodeType::kHost);
  std::unique_lock<std::mutex>* lock() { return &lock_; }

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

// The compute capability: 80 for 8.0.
inline int CcOf(const sim::GpuFacts& gpu) { return int(gpu.cc_major * 10 + gpu.cc_minor); }

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
