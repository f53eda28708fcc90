// SPDX-License-Identifier: Apache-2.0
// Memory of cuMemAlloc that other processes open. A handle names the process by its slot in the
// state, and the memory by a descriptor of it, which is opened by way of /proc: both processes are
// of one user and see each other there, as those who use CUDA's IPC in one pod do.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/sim/cuda/driver.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kMagic = 0x3143504953534554;  // "TESSIPC1"

// What is in a handle.
struct MemoryName {
  uint64_t magic;
  uint32_t slot;  // of the process
  int32_t fd;     // in it
  uint64_t inode;
  uint64_t offset, bytes;  // of the allocation in the file
};
static_assert(sizeof(MemoryName) <= sizeof(IpcMemHandle));

// The memory of the other process, or -1: it has freed it, has ended, or cannot be seen from here.
int OpenFile(sim::State& state, const MemoryName& name, uint64_t* bytes) {
  const int pid = state.HolderOf(name.slot);
  if (pid <= 0) return -1;
  char path[64];
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, name.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat info;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_ino == name.inode &&
      name.offset + name.bytes <= uint64_t(info.st_size)) {
    *bytes = uint64_t(info.st_size);
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

// Where the file is mapped; 0: nowhere.
DevicePtr MapFile(int fd, uint64_t bytes) {
  const DevicePtr base = Driver::FindAddresses(bytes);
  if (base == 0) return 0;
  void* at = reinterpret_cast<void*>(base);
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED) {
    return base;
  }
  munmap(at, bytes);
  return 0;
}

}  // namespace

CUDA_EXPORT Result cuIpcGetMemHandle(IpcMemHandle* handle, DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  if (handle == nullptr) return Result::kInvalidValue;
  // The pages change their place: nothing may run on them.
  call.WaitForAll();
  const Allocation* allocation = call->FindAllocation(pointer);
  if (allocation == nullptr || allocation->kind != MemoryKind::kDevice ||
      allocation->pool != nullptr || allocation->physical != 0 || allocation->imported ||
      allocation->graph != nullptr) {
    return Result::kInvalidValue;
  }
  ExportedMemory exported;
  const Result result = call->Export(*allocation, &exported);
  if (result != Result::kSuccess) return result;
  const MemoryName name{.magic = kMagic,
                        .slot = call->slot().index(),
                        .fd = exported.fd,
                        .inode = exported.inode,
                        .offset = allocation->block == 0 ? 0 : allocation->base - allocation->block,
                        .bytes = allocation->size};
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &name, sizeof(name));
  return Result::kSuccess;
}

CUDA_EXPORT Result cuIpcOpenMemHandle_v2(DevicePtr* pointer, IpcMemHandle handle, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  MemoryName name;
  memcpy(&name, &handle, sizeof(name));
  if (pointer == nullptr || flags != kIpcLazyEnablePeerAccess || name.magic != kMagic) {
    return Result::kInvalidValue;
  }
  // As the real driver: not in the process that has made the handle.
  if (name.slot == call->slot().index()) return Result::kInvalidContext;
  for (auto& [base, known] : call->imports()) {
    if (memcmp(&known.handle, &handle, sizeof(handle)) != 0) continue;
    ++known.opened;
    *pointer = base;
    return Result::kSuccess;
  }
  ImportedMemory memory{.handle = handle};
  const int fd = OpenFile(call->state(), name, &memory.mapped_bytes);
  if (fd < 0) return Result::kInvalidValue;
  memory.mapped = MapFile(fd, memory.mapped_bytes);
  close(fd);
  if (memory.mapped == 0) return Result::kOutOfMemory;
  Allocation allocation;
  allocation.base = memory.mapped + name.offset;
  allocation.size = name.bytes;
  allocation.context = call.context();
  allocation.imported = true;
  call->allocations()[allocation.base] = allocation;
  call->imports()[allocation.base] = memory;
  *pointer = allocation.base;
  return Result::kSuccess;
}
CUDA_ALIAS(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2)

CUDA_EXPORT Result cuIpcCloseMemHandle(DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  auto found = call->imports().find(pointer);
  if (found == call->imports().end()) return Result::kInvalidValue;
  if (--found->second.opened != 0) return Result::kSuccess;
  // Nothing that runs may lose its memory.
  call.WaitForAll();
  if (call->imports().contains(pointer)) call->Unimport(pointer);
  return Result::kSuccess;
}

}  // namespace tessera::cuda
