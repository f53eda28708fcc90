// SPDX-License-Identifier: Apache-2.0
// Copies and fills. Each takes the time that its bytes take over PCIe or in GPU memory.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "src/sim/cuda/driver.h"
#include "src/sim/cuda/graph.h"
#include "src/sim/cuda/launch.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kCopyLatencyNs = 3'000;
constexpr uint64_t kPcieLaneBytesPerSecond = 250'000'000;  // of generation 1; doubles with each

enum class Way { kHostToDevice, kDeviceToHost, kDeviceToDevice, kAny };

uint64_t DurationOf(const sim::GpuFacts& gpu, uint64_t bytes, bool over_pcie) {
  uint64_t rate = gpu.memory_bytes_per_second / 2;  // read and written
  if (over_pcie) {
    const uint32_t doublings = gpu.pcie_gen_max > 0 ? gpu.pcie_gen_max - 1 : 0;
    rate = (kPcieLaneBytesPerSecond << doublings) * gpu.pcie_width_max;
  }
  if (rate == 0) return kCopyLatencyNs;
  return kCopyLatencyNs + uint64_t(double(bytes) * 1e9 / double(rate));
}

bool IsDeviceMemory(const Allocation* allocation) {
  return allocation != nullptr &&
         (allocation->kind == MemoryKind::kDevice || allocation->kind == MemoryKind::kManaged ||
          allocation->kind == MemoryKind::kArray);
}

// An address of the device side must be one that we gave out, all of it.
bool Covered(ContextCall& call, const void* pointer, uint64_t bytes) {
  return call->FindAllocation(reinterpret_cast<DevicePtr>(pointer), bytes) != nullptr;
}

struct Rows {
  uint64_t width = 0, height = 1, to_pitch = 0, from_pitch = 0;
  uint64_t bytes() const { return width * height; }
  uint64_t span(uint64_t pitch) const { return height == 0 ? 0 : pitch * (height - 1) + width; }
};

// Host memory that the GPU cannot reach by itself. The driver reads all of it before the call
// returns, and has written all of it.
bool IsPageable(const Allocation* allocation) { return allocation == nullptr; }

void MoveRows(void* to, const void* from, const Rows& rows) {
  for (uint64_t row = 0; row < rows.height; ++row) {
    memmove(static_cast<char*>(to) + row * rows.to_pitch,
            static_cast<const char*>(from) + row * rows.from_pitch, rows.width);
  }
}

// The rows as they are now, without gaps. Null: there is no memory for them.
std::shared_ptr<void> Snapshot(const void* from, Rows* rows) {
  std::shared_ptr<void> copy(malloc(rows->bytes()), free);
  if (copy == nullptr) return nullptr;
  MoveRows(copy.get(), from, {rows->width, rows->height, rows->width, rows->from_pitch});
  rows->from_pitch = rows->width;
  return copy;
}

Result CopyRows(void* to, const void* from, Rows rows, Way way, Stream stream, bool wait) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  if (rows.bytes() == 0) return wait ? call.Wait(queue) : Result::kSuccess;
  if (to == nullptr || from == nullptr) return Result::kInvalidValue;
  const bool to_device = way == Way::kHostToDevice || way == Way::kDeviceToDevice;
  const bool from_device = way == Way::kDeviceToHost || way == Way::kDeviceToDevice;
  if (to_device && !Covered(call, to, rows.span(rows.to_pitch))) return Result::kInvalidValue;
  if (from_device && !Covered(call, from, rows.span(rows.from_pitch))) return Result::kInvalidValue;
  const Allocation* source = call->FindAllocation(reinterpret_cast<DevicePtr>(from));
  const Allocation* target = call->FindAllocation(reinterpret_cast<DevicePtr>(to));
  const bool over_pcie = !IsDeviceMemory(source) || !IsDeviceMemory(target);
  Command command;
  command.kind = over_pcie ? Command::Kind::kTransfer : Command::Kind::kCompute;
  const sim::GpuFacts& gpu = call->FactsOf(call.context()->device);
  command.left_ns = double(DurationOf(gpu, rows.bytes(), over_pcie));
  if (wait && call->graphs().Invalidate(queue)) return Result::kStreamCaptureUnsupported;
  // A graph reads and writes the program's memory when it runs.
  const bool captured = call->graphs().CaptureOf(queue) != nullptr;
  if (IsPageable(target) && !captured) wait = true;
  std::shared_ptr<void> snapshot;
  if (IsPageable(source) && !wait && !captured) {
    snapshot = Snapshot(from, &rows);
    if (snapshot == nullptr)
      wait = true;
    else
      from = snapshot.get();
  }
  command.attended = wait;
  command.effect = [to, from, rows, snapshot] { MoveRows(to, from, rows); };
  const Result result = call.Push(queue, std::move(command), GraphNodeType::kMemcpy);
  return result == Result::kSuccess && wait ? call.Wait(queue) : result;
}

Result Copy(const void* to, const void* from, size_t bytes, Way way, Stream stream, bool wait) {
  return CopyRows(const_cast<void*>(to), from, {bytes, 1, bytes, bytes}, way, stream, wait);
}

const void* At(DevicePtr pointer) { return reinterpret_cast<const void*>(pointer); }

// What is in an array, without gaps between rows.
struct ArrayContents {
  DevicePtr base = 0;
  uint64_t row_bytes = 0, bytes = 0;
};

Result Look(Array array, ArrayContents* contents) {
  CUDA_ENTER(ContextCall, call);
  if (!call->arrays().IsArray(array)) return Result::kInvalidHandle;
  // Sparse and deferred arrays have no memory here.
  if (array->base == 0) return Result::kInvalidValue;
  *contents = {array->base, array->row_bytes(), array->bytes()};
  return Result::kSuccess;
}

// A copy of bytes in a row, of which one side or both are in arrays.
const void* InArray(Array array, size_t offset, size_t bytes, Result* result) {
  ArrayContents contents;
  if (*result == Result::kSuccess) *result = Look(array, &contents);
  if (*result != Result::kSuccess) return nullptr;
  const bool inside = offset <= contents.bytes && bytes <= contents.bytes - offset;
  if (!inside) *result = Result::kInvalidValue;
  return At(contents.base + offset);
}

Result CopyToArray(Array array, size_t offset, const void* from, size_t bytes, Way way,
                   Stream stream, bool wait) {
  Result result = Result::kSuccess;
  const void* to = InArray(array, offset, bytes, &result);
  return result == Result::kSuccess ? Copy(to, from, bytes, way, stream, wait) : result;
}

Result CopyFromArray(void* to, Array array, size_t offset, size_t bytes, Way way, Stream stream,
                     bool wait) {
  Result result = Result::kSuccess;
  const void* from = InArray(array, offset, bytes, &result);
  return result == Result::kSuccess ? Copy(to, from, bytes, way, stream, wait) : result;
}

// One side of a two-dimensional copy.
struct Side {
  MemoryType type;
  const void* host;
  DevicePtr device;
  Array array;
  size_t x, y, pitch;
  const void* start = nullptr;

  bool on_device() const { return type == MemoryType::kDevice || type == MemoryType::kArray; }
  Result Find(size_t width, size_t height);
};

Result Side::Find(size_t width, size_t height) {
  if (type == MemoryType::kArray) {
    ArrayContents contents;
    const Result result = Look(array, &contents);
    if (result != Result::kSuccess) return result;
    const size_t rows = contents.bytes / contents.row_bytes;
    if (x > contents.row_bytes || width > contents.row_bytes - x || y > rows ||
        height > rows - y) {
      return Result::kInvalidValue;
    }
    pitch = contents.row_bytes;
    start = At(contents.base);
  } else if (type == MemoryType::kHost) {
    start = host;
  } else if (type == MemoryType::kDevice || type == MemoryType::kUnified) {
    start = At(device);
  }
  if (pitch == 0) pitch = width;
  if (start == nullptr || pitch < width) return Result::kInvalidValue;
  start = static_cast<const char*>(start) + y * pitch + x;
  return Result::kSuccess;
}

Result Copy2D(const Memcpy2D* copy, Stream stream, bool wait) {
  if (copy == nullptr) return Result::kInvalidValue;
  Side to{copy->dst_type, copy->dst_host, copy->dst_device, copy->dst_array,
          copy->dst_x,    copy->dst_y,    copy->dst_pitch};
  Side from{copy->src_type, copy->src_host, copy->src_device, copy->src_array,
            copy->src_x,    copy->src_y,    copy->src_pitch};
  Result result = to.Find(copy->width, copy->height);
  if (result == Result::kSuccess) result = from.Find(copy->width, copy->height);
  if (result != Result::kSuccess) return result;
  const Way way = to.on_device() && from.on_device() ? Way::kDeviceToDevice
                  : to.on_device()                   ? Way::kHostToDevice
                  : from.on_device()                 ? Way::kDeviceToHost
                                                     : Way::kAny;
  return CopyRows(const_cast<void*>(to.start), from.start,
                  {copy->width, copy->height, to.pitch, from.pitch}, way, stream, wait);
}

template <typename T>
Result PlanFill(ContextCall& call, DevicePtr to, T value, size_t count, Command* command) {
  if (to % sizeof(T) != 0 || count > UINT64_MAX / sizeof(T) ||
      call->FindAllocation(to, count * sizeof(T)) == nullptr) {
    return Result::kInvalidValue;
  }
  const sim::GpuFacts& gpu = call->FactsOf(call.context()->device);
  command->left_ns = double(DurationOf(gpu, count * sizeof(T), false));
  command->effect = [=] { std::fill_n(reinterpret_cast<T*>(to), count, value); };
  return Result::kSuccess;
}

template <typename T>
Result Fill(DevicePtr to, T value, size_t count, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  if (count == 0) return Result::kSuccess;
  Command command;
  const Result result = PlanFill(call, to, value, count, &command);
  if (result != Result::kSuccess) return result;
  return call.Push(queue, std::move(command), GraphNodeType::kMemset);
}

}  // namespace

// Of one row; programs fill two-dimensional memory by kernels.
Result PlanMemset(ContextCall& call, const MemsetNodeParameters& parameters, Command* command) {
  if (parameters.height > 1) return Result::kNotSupported;
  const size_t count = parameters.width;
  switch (parameters.element_bytes) {
    case 1: return PlanFill(call, parameters.to, uint8_t(parameters.value), count, command);
    case 2: return PlanFill(call, parameters.to, uint16_t(parameters.value), count, command);
    case 4: return PlanFill(call, parameters.to, parameters.value, count, command);
    default: return Result::kInvalidValue;
  }
}

CUDA_EXPORT Result cuMemcpy(DevicePtr to, DevicePtr from, size_t bytes) {
  return Copy(At(to), At(from), bytes, Way::kAny, nullptr, true);
}
CUDA_EXPORT Result cuMemcpyAsync(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  return Copy(At(to), At(from), bytes, Way::kAny, stream, false);
}
CUDA_EXPORT Result cuMemcpyHtoD_v2(DevicePtr to, const void* from, size_t bytes) {
  return Copy(At(to), from, bytes, Way::kHostToDevice, nullptr, true);
}
CUDA_EXPORT Result cuMemcpyDtoH_v2(void* to, DevicePtr from, size_t bytes) {
  return Copy(to, At(from), bytes, Way::kDeviceToHost, nullptr, true);
}
CUDA_EXPORT Result cuMemcpyDtoD_v2(DevicePtr to, DevicePtr from, size_t bytes) {
  return Copy(At(to), At(from), bytes, Way::kDeviceToDevice, nullptr, false);
}
CUDA_EXPORT Result cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes,
                                        Stream stream) {
  return Copy(At(to), from, bytes, Way::kHostToDevice, stream, false);
}
CUDA_EXPORT Result cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream stream) {
  return Copy(to, At(from), bytes, Way::kDeviceToHost, stream, false);
}
CUDA_EXPORT Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t bytes,
                                        Stream stream) {
  return Copy(At(to), At(from), bytes, Way::kDeviceToDevice, stream, false);
}
CUDA_EXPORT Result cuMemcpyPeer(DevicePtr to, Context, DevicePtr from, Context, size_t bytes) {
  return Copy(At(to), At(from), bytes, Way::kDeviceToDevice, nullptr, false);
}
CUDA_EXPORT Result cuMemcpyPeerAsync(DevicePtr to, Context, DevicePtr from, Context, size_t bytes,
                                     Stream stream) {
  return Copy(At(to), At(from), bytes, Way::kDeviceToDevice, stream, false);
}
CUDA_EXPORT Result cuMemcpy2D_v2(const Memcpy2D* copy) { return Copy2D(copy, nullptr, true); }
CUDA_EXPORT Result cuMemcpy2DAsync_v2(const Memcpy2D* copy, Stream stream) {
  return Copy2D(copy, stream, false);
}

CUDA_EXPORT Result cuMemcpyHtoA_v2(Array to, size_t offset, const void* from, size_t bytes) {
  return CopyToArray(to, offset, from, bytes, Way::kHostToDevice, nullptr, true);
}
CUDA_EXPORT Result cuMemcpyHtoAAsync_v2(Array to, size_t offset, const void* from, size_t bytes,
                                        Stream stream) {
  return CopyToArray(to, offset, from, bytes, Way::kHostToDevice, stream, false);
}
CUDA_EXPORT Result cuMemcpyDtoA_v2(Array to, size_t offset, DevicePtr from, size_t bytes) {
  return CopyToArray(to, offset, At(from), bytes, Way::kDeviceToDevice, nullptr, false);
}
CUDA_EXPORT Result cuMemcpyAtoH_v2(void* to, Array from, size_t offset, size_t bytes) {
  return CopyFromArray(to, from, offset, bytes, Way::kDeviceToHost, nullptr, true);
}
CUDA_EXPORT Result cuMemcpyAtoHAsync_v2(void* to, Array from, size_t offset, size_t bytes,
                                        Stream stream) {
  return CopyFromArray(to, from, offset, bytes, Way::kDeviceToHost, stream, false);
}
CUDA_EXPORT Result cuMemcpyAtoD_v2(DevicePtr to, Array from, size_t offset, size_t bytes) {
  return CopyFromArray(reinterpret_cast<void*>(to), from, offset, bytes, Way::kDeviceToDevice,
                       nullptr, false);
}
CUDA_EXPORT Result cuMemcpyAtoA_v2(Array to, size_t to_offset, Array from, size_t from_offset,
                                   size_t bytes) {
  Result result = Result::kSuccess;
  const void* source = InArray(from, from_offset, bytes, &result);
  if (result != Result::kSuccess) return result;
  return CopyToArray(to, to_offset, source, bytes, Way::kDeviceToDevice, nullptr, false);
}

CUDA_EXPORT Result cuMemsetD8_v2(DevicePtr to, unsigned char value, size_t count) {
  return Fill(to, value, count, nullptr);
}
CUDA_EXPORT Result cuMemsetD16_v2(DevicePtr to, unsigned short value, size_t count) {
  return Fill(to, value, count, nullptr);
}
CUDA_EXPORT Result cuMemsetD32_v2(DevicePtr to, unsigned value, size_t count) {
  return Fill(to, value, count, nullptr);
}
CUDA_EXPORT Result cuMemsetD8Async(DevicePtr to, unsigned char value, size_t count, Stream stream) {
  return Fill(to, value, count, stream);
}
CUDA_EXPORT Result cuMemsetD16Async(DevicePtr to, unsigned short value, size_t count,
                                    Stream stream) {
  return Fill(to, value, count, stream);
}
CUDA_EXPORT Result cuMemsetD32Async(DevicePtr to, unsigned value, size_t count, Stream stream) {
  return Fill(to, value, count, stream);
}

CUDA_ALIAS(cuMemcpy_ptds, cuMemcpy)
CUDA_ALIAS(cuMemcpyAsync_ptsz, cuMemcpyAsync)
CUDA_ALIAS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)
CUDA_ALIAS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)
CUDA_ALIAS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2)
CUDA_ALIAS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)
CUDA_ALIAS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2)
CUDA_ALIAS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)
CUDA_ALIAS(cuMemcpyPeer_ptds, cuMemcpyPeer)
CUDA_ALIAS(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync)
CUDA_ALIAS(cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2)
CUDA_ALIAS(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2)
CUDA_ALIAS(cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2)
CUDA_ALIAS(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2)
CUDA_ALIAS(cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA_v2)
CUDA_ALIAS(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync_v2)
CUDA_ALIAS(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA_v2)
CUDA_ALIAS(cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH_v2)
CUDA_ALIAS(cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync_v2)
CUDA_ALIAS(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2)
CUDA_ALIAS(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA_v2)
CUDA_ALIAS(cuMemsetD8_v2_ptds, cuMemsetD8_v2)
CUDA_ALIAS(cuMemsetD16_v2_ptds, cuMemsetD16_v2)
CUDA_ALIAS(cuMemsetD32_v2_ptds, cuMemsetD32_v2)
CUDA_ALIAS(cuMemsetD8Async_ptsz, cuMemsetD8Async)
CUDA_ALIAS(cuMemsetD16Async_ptsz, cuMemsetD16Async)
CUDA_ALIAS(cuMemsetD32Async_ptsz, cuMemsetD32Async)

}  // namespace tessera::cuda
