// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/memory/copy.h"

#include <stdlib.h>
#include <string.h>

#include <iterator>
#include <memory>

#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

constexpr double kCopyLatencyNs = 3'000;
constexpr uint64_t kPcieLaneBytesPerSecond = 250'000'000;  // PCIe 1; each generation doubles it

bool IsDeviceMemory(const Allocation* allocation) {
  return allocation != nullptr &&
         (allocation->kind == MemoryKind::kDevice || allocation->kind == MemoryKind::kManaged ||
          allocation->kind == MemoryKind::kArray);
}

const Allocation* AllocationAt(Call& call, const void* pointer, uint64_t bytes = 1) {
  return call->FindAllocation(reinterpret_cast<DevicePtr>(pointer), bytes);
}

// True: the address is allocated device memory, or reserved for mappings (even without access).
bool IsDeviceAddress(Call& call, const void* pointer) {
  const auto at = reinterpret_cast<DevicePtr>(pointer);
  const auto reserved = call->reservations().upper_bound(at);
  if (reserved != call->reservations().begin()) {
    const auto& [base, size] = *std::prev(reserved);
    if (at - base < size) return true;
  }
  return IsDeviceMemory(AllocationAt(call, pointer));
}

// True: host memory that the GPU cannot access. The driver accesses all of it before the call
// returns.
bool IsPageable(const Allocation* allocation) { return allocation == nullptr; }

void MoveBox(const BoxCopy& copy) {
  for (uint64_t plane = 0; plane < copy.box.depth; ++plane) {
    char* to = static_cast<char*>(copy.to) + plane * copy.to_pitches.plane;
    const char* from = static_cast<const char*>(copy.from) + plane * copy.from_pitches.plane;
    for (uint64_t row = 0; row < copy.box.height; ++row) {
      memmove(to + row * copy.to_pitches.row, from + row * copy.from_pitches.row, copy.box.width);
    }
  }
}

// Reads the source now, into memory without gaps, which replaces the source in `copy`. Null: out of
// memory.
std::shared_ptr<void> Snapshot(BoxCopy* copy) {
  std::shared_ptr<void> bytes(malloc(copy->box.bytes()), free);
  if (bytes == nullptr) return nullptr;
  BoxCopy reading = *copy;
  reading.to = bytes.get();
  reading.to_pitches = {copy->box.width, copy->box.width * copy->box.height};
  MoveBox(reading);
  copy->from = bytes.get();
  copy->from_pitches = reading.to_pitches;
  return bytes;
}

Result Enqueue(ContextCall& call, BoxCopy copy, Stream stream, bool wait) {
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  if (copy.box.empty()) return wait ? call.Wait(queue) : Result::kSuccess;
  Command command;
  Result result = PlanCopy(call, copy, &command);
  if (result != Result::kSuccess) return result;
  if (wait && call->graphs().Invalidate(queue)) return Result::kStreamCaptureUnsupported;
  // A captured copy reads and writes the program's memory when its graph runs.
  if (call->graphs().CaptureOf(queue) == nullptr) {
    if (IsPageable(AllocationAt(call, copy.to))) wait = true;
    if (IsPageable(AllocationAt(call, copy.from)) && !wait) {
      const std::shared_ptr<void> snapshot = Snapshot(&copy);
      if (snapshot == nullptr) wait = true;
      command.effect = [copy, snapshot] { MoveBox(copy); };
    }
  }
  command.has_waiter = wait;
  result = call.Push(queue, std::move(command), GraphNodeType::kMemcpy);
  return result == Result::kSuccess && wait ? call.Wait(queue) : result;
}

// Copies contiguous bytes.
Result Copy(const void* to, const void* from, size_t bytes, Direction direction, Stream stream,
            bool wait) {
  CUDA_ENTER(ContextCall, call);
  return Enqueue(
      call, {.to = const_cast<void*>(to), .from = from, .box = {bytes}, .direction = direction},
      stream, wait);
}

const void* At(DevicePtr pointer) { return reinterpret_cast<const void*>(pointer); }

Result CheckArray(Call& call, Array array) {
  if (!call->arrays().IsArray(array)) return Result::kInvalidHandle;
  // Sparse and deferred arrays have no memory.
  return array->base == 0 ? Result::kInvalidValue : Result::kSuccess;
}

// Contiguous bytes of an array, whose rows and planes follow each other without gaps.
struct ArrayRange {
  Array array = nullptr;
  size_t offset = 0;

  Result Find(Call& call, size_t bytes, const void** pointer) const {
    const Result result = CheckArray(call, array);
    if (result != Result::kSuccess) return result;
    const bool inside = offset <= array->bytes() && bytes <= array->bytes() - offset;
    return inside ? Put(pointer, At(array->base + offset)) : Result::kInvalidValue;
  }
};

Result CopyToArray(const ArrayRange& to, const void* from, size_t bytes, Direction direction,
                   Stream stream, bool wait) {
  CUDA_ENTER(ContextCall, call);
  BoxCopy copy{.from = from, .box = {bytes}, .direction = direction};
  const void* pointer = nullptr;
  const Result result = to.Find(call, bytes, &pointer);
  copy.to = const_cast<void*>(pointer);
  return result == Result::kSuccess ? Enqueue(call, copy, stream, wait) : result;
}

Result CopyFromArray(void* to, const ArrayRange& from, size_t bytes, Direction direction,
                     Stream stream, bool wait) {
  CUDA_ENTER(ContextCall, call);
  BoxCopy copy{.to = to, .box = {bytes}, .direction = direction};
  const Result result = from.Find(call, bytes, &copy.from);
  return result == Result::kSuccess ? Enqueue(call, copy, stream, wait) : result;
}

// One side of a copy as the program describes it.
struct CopySide {
  MemoryType type;
  const void* host;
  DevicePtr device;
  Array array;
  size_t x, y, z, pitch, height;

  bool on_device() const { return type == MemoryType::kDevice || type == MemoryType::kArray; }
  Result Find(Call& call, const Box& box, const void** start, Pitches* pitches) const;
  Result FindInArray(Call& call, const Box& box, const void** start, Pitches* pitches) const;
};

Result CopySide::FindInArray(Call& call, const Box& box, const void** start,
                             Pitches* pitches) const {
  const Result result = CheckArray(call, array);
  if (result != Result::kSuccess) return result;
  const uint64_t rows = array->descriptor.height == 0 ? 1 : array->descriptor.height;
  const uint64_t planes = array->rows() / rows;
  const auto inside = [](uint64_t at, uint64_t count, uint64_t all) {
    return at <= all && count <= all - at;
  };
  if (!inside(x, box.width, array->row_bytes()) || !inside(y, box.height, rows) ||
      !inside(z, box.depth, planes)) {
    return Result::kInvalidValue;
  }
  *pitches = {array->row_bytes(), array->row_bytes() * rows};
  return Put(start, At(array->base + z * pitches->plane + y * pitches->row + x));
}

Result CopySide::Find(Call& call, const Box& box, const void** start, Pitches* pitches) const {
  if (type == MemoryType::kArray) return FindInArray(call, box, start, pitches);
  const void* memory = type == MemoryType::kHost ? host : At(device);
  if (type > MemoryType::kUnified || memory == nullptr) return Result::kInvalidValue;
  const uint64_t rows = height == 0 ? box.height : height;
  pitches->row = pitch == 0 ? box.width : pitch;
  const bool too_large = __builtin_mul_overflow(pitches->row, rows, &pitches->plane);
  if (too_large || pitches->row < box.width || (box.depth > 1 && rows < box.height)) {
    return Result::kInvalidValue;
  }
  return Put(start, static_cast<const char*>(memory) + z * pitches->plane + y * pitches->row + x);
}

Result CopyIn3D(const Memcpy3D* copy, Stream stream, bool wait) {
  CUDA_ENTER(ContextCall, call);
  if (copy == nullptr) return Result::kInvalidValue;
  BoxCopy found;
  const Result result = ResolveCopy(call, *copy, &found);
  return result == Result::kSuccess ? Enqueue(call, found, stream, wait) : result;
}

Result CopyIn2D(const Memcpy2D* copy, Stream stream, bool wait) {
  if (copy == nullptr) return Result::kInvalidValue;
  const auto in_3d = Widen<Memcpy3D>(*copy);
  return CopyIn3D(&in_3d, stream, wait);
}

}  // namespace

double CopyNs(const sim::GpuFacts& gpu, uint64_t bytes, bool over_pcie) {
  uint64_t rate = gpu.memory_bytes_per_second / 2;  // reads and writes
  if (over_pcie) {
    const uint32_t doublings = gpu.pcie_gen_max > 0 ? gpu.pcie_gen_max - 1 : 0;
    rate = (kPcieLaneBytesPerSecond << doublings) * gpu.pcie_width_max;
  }
  return rate == 0 ? kCopyLatencyNs : kCopyLatencyNs + double(bytes) * 1e9 / double(rate);
}

uint64_t Box::Span(const Pitches& pitches) const {
  uint64_t planes = 0, rows = 0, span = 0;
  const bool too_large = __builtin_mul_overflow(pitches.plane, depth - 1, &planes) ||
                         __builtin_mul_overflow(pitches.row, height - 1, &rows) ||
                         __builtin_add_overflow(planes, rows, &span) ||
                         __builtin_add_overflow(span, width, &span);
  return too_large ? UINT64_MAX : span;
}

Result ResolveCopy(Call& call, const Memcpy3D& copy, BoxCopy* found) {
  if (copy.src_level != 0 || copy.dst_level != 0) return Result::kInvalidValue;
  const CopySide to{copy.dst_type, copy.dst_host, copy.dst_device, copy.dst_array, copy.dst_x,
                    copy.dst_y,    copy.dst_z,    copy.dst_pitch,  copy.dst_height};
  const CopySide from{copy.src_type, copy.src_host, copy.src_device, copy.src_array, copy.src_x,
                      copy.src_y,    copy.src_z,    copy.src_pitch,  copy.src_height};
  found->box = {copy.width, copy.height, copy.depth};
  const void* start = nullptr;
  Result result = to.Find(call, found->box, &start, &found->to_pitches);
  found->to = const_cast<void*>(start);
  if (result == Result::kSuccess) {
    result = from.Find(call, found->box, &found->from, &found->from_pitches);
  }
  found->direction = to.on_device() && from.on_device() ? Direction::kDeviceToDevice
                     : to.on_device()                   ? Direction::kHostToDevice
                     : from.on_device()                 ? Direction::kDeviceToHost
                                                        : Direction::kAny;
  return result;
}

Result PlanCopy(ContextCall& call, const BoxCopy& copy, Command* command) {
  if (copy.box.empty()) return Result::kSuccess;
  if (copy.to == nullptr || copy.from == nullptr) return Result::kInvalidValue;
  // The whole range of a device side must be allocated. A side with a device address is a device
  // side even if the function allows host memory.
  const bool to_device = copy.direction == Direction::kHostToDevice ||
                         copy.direction == Direction::kDeviceToDevice ||
                         IsDeviceAddress(call, copy.to);
  const bool from_device = copy.direction == Direction::kDeviceToHost ||
                           copy.direction == Direction::kDeviceToDevice ||
                           IsDeviceAddress(call, copy.from);
  const uint64_t to_span = copy.box.Span(copy.to_pitches);
  const uint64_t from_span = copy.box.Span(copy.from_pitches);
  if (to_span == UINT64_MAX || from_span == UINT64_MAX ||
      (to_device && AllocationAt(call, copy.to, to_span) == nullptr) ||
      (from_device && AllocationAt(call, copy.from, from_span) == nullptr)) {
    return Result::kInvalidValue;
  }
  const bool over_pcie = !IsDeviceMemory(AllocationAt(call, copy.from)) ||
                         !IsDeviceMemory(AllocationAt(call, copy.to));
  command->kind = over_pcie ? Command::Kind::kTransfer : Command::Kind::kCompute;
  command->remaining_ns =
      CopyNs(call->FactsOf(call.context()->device), copy.box.bytes(), over_pcie);
  command->effect = [copy] { MoveBox(copy); };
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemcpy(DevicePtr to, DevicePtr from, size_t bytes) {
  return Copy(At(to), At(from), bytes, Direction::kAny, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  return Copy(At(to), At(from), bytes, Direction::kAny, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyHtoD_v2(DevicePtr to, const void* from, size_t bytes) {
  return Copy(At(to), from, bytes, Direction::kHostToDevice, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpyDtoH_v2(void* to, DevicePtr from, size_t bytes) {
  return Copy(to, At(from), bytes, Direction::kDeviceToHost, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpyDtoD_v2(DevicePtr to, DevicePtr from, size_t bytes) {
  return Copy(At(to), At(from), bytes, Direction::kDeviceToDevice, nullptr, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes,
                                        Stream stream) {
  return Copy(At(to), from, bytes, Direction::kHostToDevice, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream stream) {
  return Copy(to, At(from), bytes, Direction::kDeviceToHost, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  return Copy(At(to), At(from), bytes, Direction::kDeviceToDevice, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyPeer(DevicePtr to, Context, DevicePtr from, Context, size_t bytes) {
  return Copy(At(to), At(from), bytes, Direction::kDeviceToDevice, nullptr, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyPeerAsync(DevicePtr to, Context, DevicePtr from, Context, size_t bytes,
                                     Stream stream) {
  return Copy(At(to), At(from), bytes, Direction::kDeviceToDevice, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpy2D_v2(const Memcpy2D* copy) {
  return CopyIn2D(copy, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpy2DAsync_v2(const Memcpy2D* copy, Stream stream) {
  return CopyIn2D(copy, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpy3D_v2(const Memcpy3D* copy) {
  return CopyIn3D(copy, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpy3DAsync_v2(const Memcpy3D* copy, Stream stream) {
  return CopyIn3D(copy, stream, /*wait=*/false);
}
// The contexts of both sides are ignored: all devices share one address space.
CUDA_EXPORT Result cuMemcpy3DPeer(const Memcpy3D* copy) {
  return CopyIn3D(copy, nullptr, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpy3DPeerAsync(const Memcpy3D* copy, Stream stream) {
  return CopyIn3D(copy, stream, /*wait=*/false);
}

CUDA_EXPORT Result cuMemcpyHtoA_v2(Array to, size_t offset, const void* from, size_t bytes) {
  return CopyToArray({to, offset}, from, bytes, Direction::kHostToDevice, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpyHtoAAsync_v2(Array to, size_t offset, const void* from, size_t bytes,
                                        Stream stream) {
  return CopyToArray({to, offset}, from, bytes, Direction::kHostToDevice, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyDtoA_v2(Array to, size_t offset, DevicePtr from, size_t bytes) {
  return CopyToArray({to, offset}, At(from), bytes, Direction::kDeviceToDevice, nullptr,
                     /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyAtoH_v2(void* to, Array from, size_t offset, size_t bytes) {
  return CopyFromArray(to, {from, offset}, bytes, Direction::kDeviceToHost, nullptr, /*wait=*/true);
}
CUDA_EXPORT Result cuMemcpyAtoHAsync_v2(void* to, Array from, size_t offset, size_t bytes,
                                        Stream stream) {
  return CopyFromArray(to, {from, offset}, bytes, Direction::kDeviceToHost, stream, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyAtoD_v2(DevicePtr to, Array from, size_t offset, size_t bytes) {
  return CopyFromArray(reinterpret_cast<void*>(to), {from, offset}, bytes,
                       Direction::kDeviceToDevice, nullptr, /*wait=*/false);
}
CUDA_EXPORT Result cuMemcpyAtoA_v2(Array to, size_t to_offset, Array from, size_t from_offset,
                                   size_t bytes) {
  CUDA_ENTER(ContextCall, call);
  const void *source = nullptr, *target = nullptr;
  Result result = ArrayRange{from, from_offset}.Find(call, bytes, &source);
  if (result == Result::kSuccess) result = ArrayRange{to, to_offset}.Find(call, bytes, &target);
  if (result != Result::kSuccess) return result;
  return Enqueue(call,
                 {.to = const_cast<void*>(target),
                  .from = source,
                  .box = {bytes},
                  .direction = Direction::kDeviceToDevice},
                 nullptr, /*wait=*/false);
}

CUDA_PER_THREAD(cuMemcpy_ptds, cuMemcpy, 3)
CUDA_PER_THREAD(cuMemcpyAsync_ptsz, cuMemcpyAsync, 4)
CUDA_PER_THREAD(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2, 3)
CUDA_PER_THREAD(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2, 3)
CUDA_PER_THREAD(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2, 3)
CUDA_PER_THREAD(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2, 4)
CUDA_PER_THREAD(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2, 4)
CUDA_PER_THREAD(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2, 4)
CUDA_PER_THREAD(cuMemcpyPeer_ptds, cuMemcpyPeer, 5)
CUDA_PER_THREAD(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync, 6)
CUDA_ALIAS(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2)
CUDA_PER_THREAD(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2, 1)
CUDA_PER_THREAD(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2, 1)
CUDA_PER_THREAD(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2, 2)
CUDA_PER_THREAD(cuMemcpy3D_v2_ptds, cuMemcpy3D_v2, 1)
CUDA_PER_THREAD(cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DAsync_v2, 2)
CUDA_PER_THREAD(cuMemcpy3DPeer_ptds, cuMemcpy3DPeer, 1)
CUDA_PER_THREAD(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync, 2)
CUDA_PER_THREAD(cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA_v2, 4)
CUDA_PER_THREAD(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync_v2, 5)
CUDA_PER_THREAD(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA_v2, 4)
CUDA_PER_THREAD(cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH_v2, 4)
CUDA_PER_THREAD(cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync_v2, 5)
CUDA_PER_THREAD(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2, 4)
CUDA_PER_THREAD(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA_v2, 5)

}  // namespace tessera::cuda
