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
#include "src/sim/cuda/image.h"
#include "src/sim/state.h"

#define CUDA_EXPORT extern "C" __attribute__((visibility("default")))
// The same function under another name. Per-thread default streams (_ptsz, _ptds) are the legacy one
// here, which orders more than it must.
#define CUDA_ALIAS(other, name) \
  extern "C" decltype(name) other __attribute__((visibility("default"), alias(#name)));

namespace tessera::cuda {

struct KnownKernel;  // kernels.h

inline constexpr uint64_t kBlockBytes = 2 << 20;  // what memory is charged in
inline constexpr uint64_t kSmallBytes = 1 << 20;  // up to here allocations share a block

enum class MemoryKind { kDevice, kManaged, kArray, kHost, kRegistered };

// What the program has advised about managed memory. Devices are ordinals; kHost: the host.
struct ManagedAdvice {
  static constexpr int kHost = -1, kNone = -2;
  bool read_mostly = false;
  int preferred = kNone;
  int prefetched = kNone;  // where it was last moved to
  std::set<int> accessed_by;
};

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
  // A mapping of physical memory; it has no context.
  PhysicalMemory physical = 0;
  Device device = 0;
  unsigned access = kAccessReadWrite;
  bool imported = false;  // of another process, which pays for it
  GraphMemory* graph = nullptr;  // memory of a node of a graph; it has no context
  bool of_module = false;        // the variables of a module, which go with it
  ManagedAdvice advice;
};

// Memory of this process that others may open: a memfd has taken the place of its pages.
struct ExportedMemory {
  int fd = -1;
  uint64_t inode = 0;
};

// Memory of another process that this one has opened.
struct ImportedMemory {
  IpcMemHandle handle = {};
  unsigned opened = 1;  // how often; it is closed as often
  DevicePtr mapped = 0;
  uint64_t mapped_bytes = 0;
};

// What cuMemCreate made: it lives as long as a handle or a mapping of it does.
struct Physical {
  PhysicalMemoryProperties properties = {};
  uint64_t bytes = 0;
  int fd = -1;             // of a memfd with its contents
  unsigned handles = 1;    // references that the program holds
  unsigned mappings = 0;
  bool charged = false;    // to the GPU by this process: not what another one has exported
};

// What a function keeps for launches as before CUDA 4.0.
struct KeptLaunch {
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<unsigned char> parameters;
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
  std::map<int, StreamAttribute> attributes;  // that the program has set
  Queue queue;

  bool is_legacy() const;
  bool is_blocking() const { return (flags & 1) == 0; }
};

struct tessera::cuda::EventTag {
  ContextTag* context = nullptr;
  unsigned flags = 0;  // 2: no timing
  TicketRef ticket;    // null: not recorded
  // Where it was recorded in a capture: its id, and the nodes that came before.
  uint64_t capture = 0;
  std::vector<GraphNodeTag*> captured;
};

struct tessera::cuda::FunctionTag {
  ModuleTag* module = nullptr;
  Entry entry;
  int max_dynamic_shared = 0;
  // Looked up when it is made.
  const KnownKernel* known = nullptr;  // null: it computes nothing
  uint64_t configured_ns = 0;          // duration that the environment sets; 0: none
  KeptLaunch kept;
};

struct tessera::cuda::ModuleTag {
  ContextTag* context = nullptr;
  LibraryTag* library = nullptr;  // that it is a part of
  Image image;
  std::map<std::string, std::unique_ptr<FunctionTag>> functions;
  DevicePtr globals = 0;  // memory of its variables; 0: it has none
};

struct tessera::cuda::KernelTag {
  LibraryTag* library = nullptr;
  std::string name;
  std::map<Device, int> max_dynamic_shared;  // what the program has set
};

struct tessera::cuda::LibraryTag {
  Image image;
  std::map<std::string, std::unique_ptr<KernelTag>> kernels;
  std::map<ContextTag*, ModuleTag*> modules;
};

// A link that is not destroyed. The program reads the image until then.
struct tessera::cuda::LinkStateTag {
  int cc = 0;
  std::string ptx;
  std::vector<std::string> others;  // cubins, fat binaries, objects
  std::string image;
};

// `reserved` is what the pool takes of the GPU: blocks that small allocations share, large
// allocations, and what is kept of freed ones. It keeps them while it reserves no more than its
// release threshold.
struct tessera::cuda::MemPoolTag {
  int device = 0;
  bool built_in = false;
  bool imported = false;      // of another process; nothing is allocated from it here
  unsigned handle_types = 0;  // by which other processes may import it
  uint64_t used = 0, used_high = 0;
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t max_size = 0;
  std::map<Device, unsigned> access;  // of other devices than its own
  uint64_t release_threshold = 0;
  std::map<DevicePtr, Block> blocks;
  std::multimap<uint64_t, DevicePtr> kept;  // by size
  // Ends of streams that have freed memory. What is allocated next may be the same memory.
  std::vector<TicketRef> frees;
};

struct tessera::cuda::ContextTag {
  int device = 0;  // ordinal
  unsigned flags = 0;
  uint64_t id = 0;
  unsigned api_version = 0;
  unsigned attached = 1;              // how often cuCtxDetach must be called to destroy it
  uint32_t epoch = 0;                 // GpuLive::poison_epoch when it was made
  Result error = Result::kSuccess;    // once dead, always dead
  StreamTag legacy;
  std::set<StreamTag*> streams;
  std::map<DevicePtr, Block> blocks;
  std::map<DevicePtr, Block> array_blocks;  // arrays share no block with other memory
  std::set<ContextTag*> peers;
  std::map<int, size_t> limits;
  std::map<int, uint64_t> limit_bytes;  // what they take of the GPU beyond the defaults
};

inline bool tessera::cuda::StreamTag::is_legacy() const { return this == &context->legacy; }

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
  // The allocation that holds [pointer, pointer + bytes), or the first of several mappings without a
  // gap; null if there is none.
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
  std::map<DevicePtr, uint64_t> reservations_;  // of addresses, by their start
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
