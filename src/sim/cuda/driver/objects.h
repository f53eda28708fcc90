// SPDX-License-Identifier: Apache-2.0
// Objects that the program holds: memory, and the targets of ABI handles. Threads: REQUIRES the
// driver's mutex (driver.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/cuda_abi.h"
#include "src/sim/cuda/module/image.h"
#include "src/sim/cuda/stream/engine.h"
#include "src/sim/cuda/stream/kernel_times.h"
#include "src/sim/cuda/stream/shared_event.h"

namespace tessera::cuda {

struct GraphMemory;  // graph_memory.h
struct KnownKernel;  // kernels.h

inline constexpr uint64_t kBlockBytes = 2 << 20;  // unit of charges
inline constexpr uint64_t kSmallBytes = 1 << 20;  // maximum of allocations that share blocks

inline uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

enum class MemoryKind { kDevice, kManaged, kArray, kHost, kRegistered };

// The program's advice about managed memory. Devices are ordinals; kHost: the host.
struct ManagedAdvice {
  static constexpr int kHost = -1, kNone = -2;
  bool read_mostly = false;
  int preferred = kNone;
  int prefetched = kNone;  // device of the last prefetch
  std::set<int> accessed_by;
};

// Memory that the program knows by its address.
struct Allocation {
  DevicePtr base = 0;
  uint64_t size = 0;           // requested bytes
  uint64_t charged_bytes = 0;  // bytes charged to the GPU; 0 for a part of a block
  MemoryKind kind = MemoryKind::kDevice;
  ContextTag* context = nullptr;
  MemPoolTag* pool = nullptr;
  DevicePtr block = 0;  // shared block that contains it; 0: none
  unsigned flags = 0;
  // Set for a mapping of physical memory, which has no context.
  PhysicalMemory physical = 0;
  Device device = 0;
  unsigned access = kAccessReadWrite;
  bool imported = false;          // memory of another process, to which it is charged
  GraphMemory* graph = nullptr;   // set for memory of a graph node, which has no context
  bool is_module_memory = false;  // variables of a module, freed with it
  ManagedAdvice advice;
};

// Memory of this process that others may open: a memfd has replaced its pages.
struct ExportedMemory {
  int fd = -1;
  uint64_t inode = 0;
};

// Memory of another process that this process has opened.
struct ImportedMemory {
  IpcMemHandle handle = {};
  unsigned open_count = 1;  // opens minus closes
  DevicePtr mapped = 0;
  uint64_t mapped_bytes = 0;
};

// Memory of cuMemCreate. It lives as long as a handle, a mapping, or a descriptor that exports it.
struct PhysicalAllocation {
  PhysicalMemoryProperties properties = {};
  uint64_t bytes = 0;
  int fd = -1;           // memfd with its contents
  unsigned handles = 1;  // references that the program holds
  unsigned mappings = 0;
  bool charged = false;       // charged as memory of this process alone
  uint64_t shared_inode = 0;  // inode of the memfd if it is charged as shared memory (sim/state.h)
  uint32_t gpu = 0;           // the charged GPU
};

// The launch state that a function stores for the launch functions of CUDA before 4.0.
struct LegacyLaunchState {
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<unsigned char> parameters;
};

// Device memory that small allocations share.
struct MemoryBlock {
  uint64_t bytes = kBlockBytes;
  std::map<DevicePtr, uint64_t> free;  // ranges: start, bytes
};

}  // namespace tessera::cuda

// The handles of the ABI are pointers to the following types.
struct tessera::cuda::StreamTag {
  ContextTag* context = nullptr;
  unsigned flags = 0;  // 1: does not wait for the legacy stream
  int priority = 0;
  uint64_t id = 0;
  std::map<int, StreamAttribute> attributes;  // set by the program
  Queue queue;

  bool is_legacy() const;
  bool is_blocking() const { return (flags & 1) == 0; }
};

struct tessera::cuda::EventTag {
  ContextTag* context = nullptr;
  unsigned flags = 0;  // 2: no timing
  TicketRef ticket;    // null: not recorded by this process
  // Set if other processes may open the event.
  std::shared_ptr<SharedEvent> shared;
  uint64_t record = 0;  // number of `ticket` in `shared`
  // Set if recorded in a capture: the id of the capture, and the nodes that the event waits for.
  uint64_t capture = 0;
  std::vector<GraphNodeTag*> captured;

  // True: another process has recorded the event last.
  bool is_remote() const { return shared != nullptr && shared->last_record() != record; }
};

struct tessera::cuda::FunctionTag {
  ModuleTag* module = nullptr;
  Entry entry;
  int max_dynamic_shared = 0;
  const KnownKernel* known_kernel = nullptr;  // null: the kernel computes nothing
  KernelTimes times;                          // from $SIMGPU_KERNEL_NS; may be empty
  // Launches of a kernel that computes nothing. Null before the first launch.
  std::atomic<uint64_t>* launch_counter = nullptr;
  LegacyLaunchState legacy_launch;
};

struct tessera::cuda::ModuleTag {
  ContextTag* context = nullptr;
  LibraryTag* library = nullptr;  // null: loaded without a library
  Image image;
  std::map<std::string, std::unique_ptr<FunctionTag>> functions;
  DevicePtr globals = 0;  // memory of its variables; 0: none
};

struct tessera::cuda::KernelTag {
  LibraryTag* library = nullptr;
  std::string name;
  std::map<Device, int> max_dynamic_shared;  // set by the program
};

struct tessera::cuda::LibraryTag {
  Image image;
  std::map<std::string, std::unique_ptr<KernelTag>> kernels;
  std::map<ContextTag*, ModuleTag*> modules;
};

// A link in progress or complete. The program may read its image until it is destroyed.
struct tessera::cuda::LinkStateTag {
  int cc = 0;
  std::string ptx;
  std::vector<std::string> other_inputs;  // inputs that are not PTX: cubins, fat binaries, objects
  std::string image;
};

// `reserved` is the sum of the pool's memory on the GPU: blocks that small allocations share, large
// allocations, and freed memory. The pool keeps freed memory while `reserved` is at most the
// release threshold.
struct tessera::cuda::MemPoolTag {
  int device = 0;
  bool imported = false;      // pool of another process; it allocates nothing here
  unsigned handle_types = 0;  // types of handles for other processes
  uint64_t used = 0, used_high = 0;
  uint64_t reserved = 0, reserved_high = 0;
  uint64_t max_size = 0;
  std::map<Device, unsigned> access;  // access of other devices
  uint64_t release_threshold = 0;
  std::map<DevicePtr, MemoryBlock> blocks;
  std::multimap<uint64_t, DevicePtr> free_blocks;  // by size
  // The points in streams at which memory was freed. The next allocation waits for them.
  std::vector<TicketRef> frees;
};

struct tessera::cuda::ContextTag {
  int device = 0;  // ordinal
  unsigned flags = 0;
  uint64_t id = 0;
  unsigned api_version = 0;
  unsigned attach_count = 1;        // the cuCtxDetach call that lowers it to 0 destroys the context
  uint32_t epoch = 0;               // SimGpuState::poison_epoch at its creation
  Result error = Result::kSuccess;  // the error that ended the context, for good
  StreamTag legacy;
  std::set<StreamTag*> streams;
  std::map<DevicePtr, MemoryBlock> blocks;
  std::map<DevicePtr, MemoryBlock> array_blocks;  // arrays share no block with other memory
  std::set<ContextTag*> peers;
  std::map<int, size_t> limits;
  std::map<int, uint64_t> limit_bytes;  // device memory beyond the defaults
};

inline bool tessera::cuda::StreamTag::is_legacy() const { return this == &context->legacy; }
