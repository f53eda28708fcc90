// SPDX-License-Identifier: Apache-2.0
// CUDA IPC: other processes open events, and memory of cuMemAlloc and of pools. A handle contains
// the exporter's slot in the state and a file descriptor of the exporter. The importer opens the
// descriptor through /proc, so both processes must run as one user and see each other in /proc.
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kMagic = 0x3143504953534554;       // "TESSIPC1"
constexpr uint64_t kEventMagic = 0x3156454953534554;  // "TESSIEV1"

// Contents of a memory handle.
struct MemoryHandleData {
  uint64_t magic;
  uint32_t slot;  // slot of the exporter
  int32_t fd;     // descriptor in the exporter
  uint64_t inode;
  uint64_t offset, bytes;  // allocation in the file
};
static_assert(sizeof(MemoryHandleData) <= sizeof(IpcMemHandle));

// Contents of an event handle.
struct EventHandleData {
  uint64_t magic;
  uint32_t slot;  // slot of the exporter
  int32_t fd;     // descriptor in the exporter
  uint64_t inode;
};
static_assert(sizeof(EventHandleData) <= sizeof(IpcEventHandle));

// Opens the descriptor of another process; -1: the descriptor is closed, or the process has ended
// or is not visible.
int OpenDescriptor(sim::State& state, uint32_t slot, int foreign_fd, struct stat* info) {
  const int pid = state.HolderOf(slot);
  if (pid <= 0) return -1;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, foreign_fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || fstat(fd, info) == 0) return fd;
  close(fd);
  return -1;
}

// Opens the memory of another process; -1: the memory or the process is gone, or not visible.
int OpenFile(sim::State& state, const MemoryHandleData& contents, uint64_t* bytes) {
  struct stat info;
  const int fd = OpenDescriptor(state, contents.slot, contents.fd, &info);
  if (fd >= 0 && info.st_ino == contents.inode && contents.offset <= uint64_t(info.st_size) &&
      contents.bytes <= uint64_t(info.st_size) - contents.offset) {
    *bytes = uint64_t(info.st_size);
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

// Maps the file; 0: the system refuses.
DevicePtr MapFile(int fd, uint64_t bytes) {
  const DevicePtr base = Driver::MapAddresses(bytes);
  if (base == 0) return 0;
  void* at = reinterpret_cast<void*>(base);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED) {
    return base;
  }
  munmap(at, bytes);
  return 0;
}

// Writes the handle by which other processes open the memory.
Result WriteMemoryHandle(Call& call, const Allocation& allocation, void* contents, size_t bytes) {
  ExportedMemory exported;
  const Result result = call->Export(allocation, &exported);
  if (result != Result::kSuccess) return result;
  const MemoryHandleData created{
      .magic = kMagic,
      .slot = call->slot().index(),
      .fd = exported.fd,
      .inode = exported.inode,
      .offset = allocation.block == 0 ? 0 : allocation.base - allocation.block,
      .bytes = allocation.size};
  memset(contents, 0, bytes);
  memcpy(contents, &created, sizeof(created));
  return Result::kSuccess;
}

// Maps the memory of a handle, or counts another user of it. `pool`: the imported pool, or null.
Result OpenMemoryHandle(ContextCall& call, const IpcMemHandle& handle, MemPoolTag* pool,
                        DevicePtr* pointer) {
  MemoryHandleData contents;
  memcpy(&contents, &handle, sizeof(contents));
  if (pointer == nullptr || contents.magic != kMagic) return Result::kInvalidValue;
  // As with the real driver, the process that created the handle must not open it.
  if (contents.slot == call->slot().index()) return Result::kInvalidContext;
  for (auto& [base, imported] : call->imports()) {
    if (memcmp(&imported.handle, &handle, sizeof(handle)) != 0) continue;
    ++imported.open_count;
    *pointer = base;
    return Result::kSuccess;
  }
  ImportedMemory memory{.handle = handle};
  const int fd = OpenFile(call->state(), contents, &memory.mapped_bytes);
  if (fd < 0) return Result::kInvalidValue;
  memory.mapped = MapFile(fd, memory.mapped_bytes);
  close(fd);
  if (memory.mapped == 0) return Result::kOutOfMemory;
  Allocation allocation;
  allocation.base = memory.mapped + contents.offset;
  allocation.size = contents.bytes;
  allocation.context = call.context();
  allocation.pool = pool;
  allocation.imported = true;
  call->allocations()[allocation.base] = allocation;
  call->imports()[allocation.base] = memory;
  *pointer = allocation.base;
  return Result::kSuccess;
}

// Memory that cuIpcOpenMemHandle has opened at this address; null: none.
ImportedMemory* FindOpened(ContextCall& call, DevicePtr pointer) {
  auto found = call->imports().find(pointer);
  const bool is_opened =
      found != call->imports().end() && call->allocations()[pointer].pool == nullptr;
  return is_opened ? &found->second : nullptr;
}

// Contents of the file of a shared pool.
struct PoolFileData {
  uint64_t magic;
  uint32_t gpu;
};

}  // namespace

CUDA_EXPORT Result cuIpcGetEventHandle(IpcEventHandle* handle, Event event) {
  CUDA_ENTER(ContextCall, call);
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  if (handle == nullptr || event->shared == nullptr) return Result::kInvalidValue;
  const EventHandleData contents{.magic = kEventMagic,
                                 .slot = call->slot().index(),
                                 .fd = event->shared->fd(),
                                 .inode = event->shared->inode()};
  *handle = {};
  memcpy(handle, &contents, sizeof(contents));
  return Result::kSuccess;
}

CUDA_EXPORT Result cuIpcOpenEventHandle(Event* event, IpcEventHandle handle) {
  CUDA_ENTER(ContextCall, call);
  EventHandleData contents;
  memcpy(&contents, &handle, sizeof(contents));
  if (event == nullptr || contents.magic != kEventMagic) return Result::kInvalidValue;
  // As with the real driver, the process that created the handle must not open it.
  if (contents.slot == call->slot().index()) return Result::kInvalidContext;
  struct stat info;
  const int fd = OpenDescriptor(call->state(), contents.slot, contents.fd, &info);
  if (fd >= 0 && info.st_ino != contents.inode) {
    close(fd);
    return Result::kInvalidValue;
  }
  auto shared = fd < 0 ? nullptr : SharedEvent::Open(fd);
  if (shared == nullptr) return Result::kInvalidValue;
  auto* created = new EventTag();
  created->context = call.context();
  created->flags = kEventNoTiming | kEventInterprocess;
  created->shared = std::move(shared);
  call->events().insert(created);
  *event = created;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuIpcGetMemHandle(IpcMemHandle* handle, DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  if (handle == nullptr) return Result::kInvalidValue;
  // The pages move, so no command may use them now.
  call.WaitForAll();
  const Allocation* allocation = call->FindAllocation(pointer);
  if (allocation == nullptr || allocation->kind != MemoryKind::kDevice ||
      allocation->pool != nullptr || allocation->physical != 0 || allocation->imported ||
      allocation->graph != nullptr || allocation->is_module_memory) {
    return Result::kInvalidValue;
  }
  return WriteMemoryHandle(call, *allocation, handle, sizeof(*handle));
}

CUDA_EXPORT Result cuIpcOpenMemHandle_v2(DevicePtr* pointer, IpcMemHandle handle, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (flags != kIpcLazyEnablePeerAccess) return Result::kInvalidValue;
  return OpenMemoryHandle(call, handle, nullptr, pointer);
}
CUDA_ALIAS(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2)

CUDA_EXPORT Result cuIpcCloseMemHandle(DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  ImportedMemory* memory = FindOpened(call, pointer);
  if (memory == nullptr) return Result::kInvalidValue;
  if (memory->open_count == 1) {
    // No running command may lose its memory. Meanwhile, other threads may open or close the
    // memory.
    call.WaitForAll();
    memory = FindOpened(call, pointer);
    if (memory == nullptr) return Result::kInvalidValue;
  }
  if (--memory->open_count == 0) call->Unimport(pointer);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemPoolExportToShareableHandle(void* shared, MemPool pool,
                                                    unsigned handle_type,
                                                    unsigned long long flags) {
  CUDA_ENTER(Call, call);
  if (shared == nullptr || flags != 0 || !call->created_pools().contains(pool) || pool->imported ||
      handle_type != kShareByFileDescriptor || (pool->handle_types & handle_type) == 0) {
    return Result::kInvalidValue;
  }
  const PoolFileData contents{.magic = kMagic, .gpu = call->GpuOf(pool->device)};
  const int fd = int(syscall(SYS_memfd_create, "simgpu-pool", MFD_CLOEXEC));
  if (fd < 0) return Result::kOperatingSystem;
  if (pwrite(fd, &contents, sizeof(contents), 0) != ssize_t(sizeof(contents))) {
    close(fd);
    return Result::kOperatingSystem;
  }
  *static_cast<int*>(shared) = fd;
  return Result::kSuccess;
}

// Creates a pool that only imports pointers.
CUDA_EXPORT Result cuMemPoolImportFromShareableHandle(MemPool* pool, void* shared,
                                                      unsigned handle_type,
                                                      unsigned long long flags) {
  CUDA_ENTER(Call, call);
  PoolFileData contents{};
  const int fd = int(reinterpret_cast<intptr_t>(shared));
  if (pool == nullptr || flags != 0 || handle_type != kShareByFileDescriptor ||
      pread(fd, &contents, sizeof(contents), 0) != ssize_t(sizeof(contents)) ||
      contents.magic != kMagic) {
    return Result::kInvalidValue;
  }
  for (Device device = 0; device < call->device_count(); ++device) {
    if (call->GpuOf(device) != contents.gpu) continue;
    auto* created = new MemPoolTag();
    created->device = device;
    created->imported = true;
    call->created_pools().insert(created);
    *pool = created;
    return Result::kSuccess;
  }
  return Result::kInvalidDevice;
}

CUDA_EXPORT Result cuMemPoolExportPointer(IpcMemHandle* data, DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  if (data == nullptr) return Result::kInvalidValue;
  // The pages move, so no command may use them now.
  call.WaitForAll();
  const Allocation* allocation = call->FindAllocation(pointer);
  if (allocation == nullptr || allocation->pool == nullptr || allocation->imported ||
      (allocation->pool->handle_types & kShareByFileDescriptor) == 0) {
    return Result::kInvalidValue;
  }
  return WriteMemoryHandle(call, *allocation, data, sizeof(*data));
}

CUDA_EXPORT Result cuMemPoolImportPointer(DevicePtr* pointer, MemPool pool, IpcMemHandle* data) {
  CUDA_ENTER(ContextCall, call);
  if (data == nullptr || !call->created_pools().contains(pool) || !pool->imported) {
    return Result::kInvalidValue;
  }
  return OpenMemoryHandle(call, *data, pool, pointer);
}

}  // namespace tessera::cuda
