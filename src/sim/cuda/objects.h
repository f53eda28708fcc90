// SPDX-License-Identifier: Apache-2.0
// What the program has of the simulated driver: memory, and what the handles of the ABI point at.
// Threads: REQUIRES the driver's mutex (driver.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/cuda_abi.h"
#include "src/sim/cuda/engine.h"
#include "src/sim/cuda/image.h"
#include "src/sim/cuda/shared_event.h"

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
  bool imported = false;         // of another process, which pays for it
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
  int fd = -1;           // of a memfd with its contents
  unsigned handles = 1;  // references that the program holds
  unsigned mappings = 0;
  bool charged = false;  // to the GPU by this process: not what another one has exported
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
  TicketRef ticket;    // null: not recorded by this process
  // Of an event that other processes may open; null: none may.
  std::shared_ptr<SharedEvent> shared;
  uint64_t record = 0;  // of `ticket` in `shared`
  // Where it was recorded in a capture: its id, and the nodes that came before.
  uint64_t capture = 0;
  std::vector<GraphNodeTag*> captured;

  // True: another process has recorded the event last.
  bool is_remote() const { return shared != nullptr && shared->last_record() != record; }
};

struct tessera::cuda::FunctionTag {
  ModuleTag* module = nullptr;
  Entry entry;
  int max_dynamic_shared = 0;
  // Looked up when it is made.
  const KnownKernel* known = nullptr;  // null: it computes nothing
  uint64_t configured_ns = 0;          // duration that the environment sets; 0: none
  // Of its launches, where it computes nothing. Null before the first one.
  std::atomic<uint64_t>* counter = nullptr;
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
  unsigned attached = 1;            // how often cuCtxDetach must be called to destroy it
  uint32_t epoch = 0;               // GpuLive::poison_epoch when it was made
  Result error = Result::kSuccess;  // once dead, always dead
  StreamTag legacy;
  std::set<StreamTag*> streams;
  std::map<DevicePtr, Block> blocks;
  std::map<DevicePtr, Block> array_blocks;  // arrays share no block with other memory
  std::set<ContextTag*> peers;
  std::map<int, size_t> limits;
  std::map<int, uint64_t> limit_bytes;  // what they take of the GPU beyond the defaults
};

inline bool tessera::cuda::StreamTag::is_legacy() const { return this == &context->legacy; }
